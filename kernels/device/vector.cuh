// Eight bf16 elements as one 16-byte access.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace stallcast::kernels {

struct alignas(16) Bf16x8 {
  __nv_bfloat162 pairs[4];
};

inline __device__ Bf16x8 Load8(const __nv_bfloat16* from) {
  return *reinterpret_cast<const Bf16x8*>(from);
}

inline __device__ void Store8(__nv_bfloat16* to, const Bf16x8& values) {
  *reinterpret_cast<Bf16x8*>(to) = values;
}

inline __device__ void ToFloat(const Bf16x8& packed, float (&values)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(packed.pairs[i]);
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
}

inline __device__ Bf16x8 ToBf16(const float (&values)[8]) {
  Bf16x8 packed;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    packed.pairs[i] = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
  }
  return packed;
}

}  // namespace stallcast::kernels
