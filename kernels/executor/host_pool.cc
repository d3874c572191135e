#include "kernels/executor/host_pool.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <tbb/parallel_for.h>
#include <unistd.h>

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/host_memory.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

std::byte* HostPool::Get(int64_t bytes) {
  if (bytes <= bytes_) return data_;
  Release();
  bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  // Huge pages, touched by all cores before they are pinned: several times as fast as
  // cudaHostAlloc, which zeroes small pages with one thread.
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const auto fail = [&](const char* reason) {
    throw Error(fmt::format("cannot pin {:.1f} GiB of host memory: {}",
                            static_cast<double>(bytes) / (int64_t{1} << 30), reason),
                "host pool", "use a shorter context, a smaller batch or a host with more memory");
  };
  if (data == MAP_FAILED) fail("no address space");
  // Touching more than there is would end the process, not fail.
  if (bytes > FreeHostBytes()) {
    munmap(data, static_cast<size_t>(bytes));
    fail("not as much is free");
  }
  madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  auto* first = static_cast<std::byte*>(data);
  const int64_t page = sysconf(_SC_PAGESIZE);
  tbb::parallel_for(int64_t{0}, bytes / kHugePage, [&](int64_t i) {
    for (int64_t at = 0; at < kHugePage; at += page) {
      *static_cast<volatile std::byte*>(first + i * kHugePage + at) = std::byte{0};
    }
  });
  const cudaError_t status =
      cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterDefault);
  if (status != cudaSuccess) {
    cudaGetLastError();
    munmap(data, static_cast<size_t>(bytes));
    fail(cudaGetErrorString(status));
  }
  data_ = first;
  bytes_ = bytes;
  return data_;
}

HostPool::~HostPool() { Release(); }

void HostPool::Release() noexcept {
  if (data_ == nullptr) return;
  cudaHostUnregister(data_);
  munmap(data_, static_cast<size_t>(bytes_));
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace stallcast::kernels
