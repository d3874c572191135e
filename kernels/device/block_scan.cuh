// Sums over the threads before, in a block of whole warps.
#pragma once

#include <cstdint>

namespace stallcast::kernels {

__device__ inline uint32_t WarpInclusiveSum(uint32_t value) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const uint32_t before = __shfl_up_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 >= offset) value += before;
  }
  return value;
}

/// The sum of `value` over the threads before this one; `total` is that over all. All threads call
/// it. Contains one barrier; another must lie between two calls with the same scratch.
__device__ inline uint32_t BlockExclusiveSum(uint32_t value, uint32_t (&scratch)[32],
                                             uint32_t& total) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t in_warp = WarpInclusiveSum(value);
  if (lane == 31) scratch[warp] = in_warp;
  __syncthreads();
  const uint32_t warps = WarpInclusiveSum(lane < blockDim.x / 32 ? scratch[lane] : 0);
  total = __shfl_sync(0xffffffffu, warps, 31);
  const uint32_t before = __shfl_sync(0xffffffffu, warps, (warp + 31) % 32);
  return in_warp - value + (warp == 0 ? 0 : before);
}

}  // namespace stallcast::kernels
