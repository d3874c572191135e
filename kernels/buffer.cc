#include "kernels/buffer.h"

#include <fmt/format.h>

#include <string>

#include "kernels/cuda_error.h"
#include "kernels/host_memory.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

std::string Gibibytes(double bytes) { return fmt::format("{:.2f} GiB", bytes / (1 << 30)); }

const char* CallOf(Memory memory) {
  switch (memory) {
    case Memory::kDevice:
      return "cudaMalloc";
    case Memory::kPinned:
      return "cudaHostAlloc";
    case Memory::kManaged:
      return "cudaMallocManaged";
  }
  return "";
}

[[noreturn]] void ThrowOutOfMemory(int64_t bytes, Memory memory) {
  if (memory != Memory::kDevice) {
    throw Error(fmt::format("out of {} host memory: {} asked for",
                            memory == Memory::kPinned ? "pinned" : "managed", Gibibytes(bytes)),
                CallOf(memory), "lower the context or the batch, or free host memory");
  }
  size_t free_bytes = 0, total_bytes = 0;
  Check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  throw Error(fmt::format("out of device memory: {} asked for, {} of {} free", Gibibytes(bytes),
                          Gibibytes(free_bytes), Gibibytes(total_bytes)),
              "cudaMalloc", "lower the context, the batch or the budget");
}

// Moved to the host as a whole, which makes the GPU's pages of it large.
void KeepOnHost(void* data, size_t bytes) {
  int device = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  const cudaMemLocation host{cudaMemLocationTypeHost, 0}, gpu{cudaMemLocationTypeDevice, device};
  Check(cudaMemAdvise(data, bytes, cudaMemAdviseSetPreferredLocation, host), "cudaMemAdvise");
  Check(cudaMemAdvise(data, bytes, cudaMemAdviseSetAccessedBy, gpu), "cudaMemAdvise");
  Check(cudaMemPrefetchAsync(data, bytes, host, 0, nullptr), "cudaMemPrefetchAsync");
  Check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

cudaError_t Take(void** data, size_t bytes, Memory memory) {
  switch (memory) {
    case Memory::kDevice:
      return cudaMalloc(data, bytes);
    case Memory::kPinned:
      return cudaHostAlloc(data, bytes, 0);
    case Memory::kManaged:
      return cudaMallocManaged(data, bytes);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

void* Allocate(int64_t bytes, Memory memory) {
  if (bytes < 0) {
    throw Error(fmt::format("{} bytes asked for", bytes), "device buffer",
                "check the sizes that the caller multiplies");
  }
  if (bytes == 0) return nullptr;
  // Moving to the host more than it has would end the process, not fail.
  if (memory == Memory::kManaged && bytes > FreeHostBytes()) ThrowOutOfMemory(bytes, memory);
  void* data = nullptr;
  const cudaError_t status = Take(&data, static_cast<size_t>(bytes), memory);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    ThrowOutOfMemory(bytes, memory);
  }
  Check(status, CallOf(memory));
  if (memory != Memory::kManaged) return data;
  try {
    KeepOnHost(data, static_cast<size_t>(bytes));
  } catch (...) {
    Free(data, memory);
    throw;
  }
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
