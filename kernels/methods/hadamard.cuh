// ParisKV's rotation of one vector by a warp, in the order in which methods::CodeBook::Rotate adds.
#pragma once

#include <cstdint>

#include "kernels/methods/pariskv.h"

namespace stallcast::kernels {

/// Lane l holds elements l * kEach to l * kEach + kEach - 1, kEach = head_dim / 32.
template <int kEach>
__device__ inline void RotateInWarp(const CodeTables& tables, float (&x)[kEach]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (!tables.rotation) return;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = lane * kEach + i;
    if ((tables.negative[at / 32] >> (at % 32) & 1) != 0) x[i] = -x[i];
  }
#pragma unroll
  for (int stride = 1; stride < kEach; stride *= 2) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if ((i & stride) != 0) continue;
      const float a = x[i], b = x[i + stride];
      x[i] = a + b;
      x[i + stride] = a - b;
    }
  }
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float other = __shfl_xor_sync(0xffffffffu, x[i], lanes);
      x[i] = (lane & lanes) != 0 ? other - x[i] : x[i] + other;
    }
  }
}

}  // namespace stallcast::kernels
