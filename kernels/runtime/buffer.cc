#include "kernels/runtime/buffer.h"

#include <fmt/format.h>

#include <string>

#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

std::string Gibibytes(double bytes) { return fmt::format("{:.2f} GiB", bytes / (1 << 30)); }

const char* CallOf(Memory memory) {
  return memory == Memory::kDevice ? "cudaMalloc" : "cudaHostAlloc";
}

[[noreturn]] void ThrowOutOfMemory(int64_t bytes, Memory memory) {
  if (memory == Memory::kPinned) {
    throw Error(fmt::format("out of pinned host memory: {} asked for", Gibibytes(bytes)),
                CallOf(memory), "lower the context or the batch, or free host memory");
  }
  size_t free_bytes = 0, total_bytes = 0;
  Check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  throw Error(fmt::format("out of device memory: {} asked for, {} of {} free", Gibibytes(bytes),
                          Gibibytes(free_bytes), Gibibytes(total_bytes)),
              CallOf(memory), "lower the context, the batch or the budget");
}

}  // namespace

void* Allocate(int64_t bytes, Memory memory) {
  if (bytes < 0) {
    throw Error(fmt::format("{} bytes asked for", bytes), "device buffer",
                "check the sizes that the caller multiplies");
  }
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  const auto size = static_cast<size_t>(bytes);
  const cudaError_t status =
      memory == Memory::kDevice ? cudaMalloc(&data, size) : cudaHostAlloc(&data, size, 0);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    ThrowOutOfMemory(bytes, memory);
  }
  Check(status, CallOf(memory));
  return data;
}

void ZeroBytes(void* data, int64_t bytes) {
  Check(cudaMemset(data, 0, static_cast<size_t>(bytes)), "cudaMemset");
}

void Free(void* data, Memory memory) noexcept {
  // A destructor cannot report: a context that is gone has freed the memory already.
  memory == Memory::kPinned ? cudaFreeHost(data) : cudaFree(data);
}

}  // namespace stallcast::kernels
