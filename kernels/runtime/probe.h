// Kernels that measurements need beside those of a decoder.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/runtime/buffer.h"

namespace stallcast::kernels {

/// What HoldUntil() leaves in its flag when it gives up.
constexpr int kHeldTooLong = -1;
/// Occupies the stream until *flag (pinned memory) is not zero, some two seconds at most.
void HoldUntil(int* flag, cudaStream_t stream);
/// One block that does nothing.
void Nothing(cudaStream_t stream);
/// Reads `bytes` (a multiple of 16) of device memory once, by all multiprocessors.
void ReadOnce(const void* data, int64_t bytes, int* sink, cudaStream_t stream);

/// Leaves the caches as a decoder layer leaves them to the next kernel. Its data is not in the L2
/// cache, no cache line is waiting for write-back, and its instructions are not in the
/// multiprocessors. Pending write-backs slow some kernels by a tenth. Loading instructions takes
/// some GEMMs of cuBLASLt 5 us.
class CacheFlush {
 public:
  CacheFlush();
  void Run(cudaStream_t stream) const;

 private:
  Buffer<std::byte> memory_;
  Buffer<int> sink_;
};

/// Writes the device's clock (ns) to at[0], runs on for `nanoseconds`, writes it to at[1].
void Stamp(uint64_t* at, int64_t nanoseconds, cudaStream_t stream);
/// `blocks` blocks, at most four a multiprocessor, read over `bytes` (a multiple of 16, at least 16
/// MiB) of device memory again and again for `nanoseconds`; adds the bytes read to *read. Small
/// kernels find room beside them.
void ReadFor(const void* data, int64_t bytes, int32_t blocks, int64_t nanoseconds, uint64_t* read,
             int* sink, cudaStream_t stream);

}  // namespace stallcast::kernels
