// Softmaxes that are put together from parts, in powers of two.
#pragma once

#include "kernels/device/tensor_core.cuh"

namespace stallcast::kernels {

/// Far below every exponent, far above where arithmetic on it could overflow: of no exponent at
/// all.
constexpr float kNever = -1e30f;

/// The largest exponent and the sum of 2^(exponent - max).
struct SoftmaxPart {
  float max = kNever, sum = 0;

  __device__ void Add(float a, float b) {
    const float most = fmaxf(max, fmaxf(a, b));
    sum = sum * Exp2(max - most) + Exp2(a - most) + Exp2(b - most);
    max = most;
  }
};

/// Together with those of the other three lanes that have the same row of a product.
inline __device__ SoftmaxPart SumOfRow(SoftmaxPart part) {
  float max = part.max;
#pragma unroll
  for (int o = 1; o < 4; o *= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, o));
  part.sum *= Exp2(part.max - max);
#pragma unroll
  for (int o = 1; o < 4; o *= 2) part.sum += __shfl_xor_sync(0xffffffffu, part.sum, o);
  return {max, part.sum};
}

}  // namespace stallcast::kernels
