#include <string>

#include "kernels/decoder/decoder.h"
#include "kernels/device/vector.cuh"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kWidthMax = 4 * 8 * kThreads;

__device__ float BlockSum(float value) {
  __shared__ float of_warp[kWarps];
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += of_warp[warp];
  return sum;
}

/// A block a row; each thread keeps kVectors x 8 elements in registers between the two passes.
template <int kVectors>
__global__ void __launch_bounds__(kThreads)
    AddRmsNormKernel(const __nv_bfloat16* input, __nv_bfloat16* residual,
                     const __nv_bfloat16* weight, float epsilon, int32_t width,
                     __nv_bfloat16* output) {
  const int64_t row = int64_t{blockIdx.x} * width;
  float values[kVectors][8];
  Bf16x8 scale[kVectors];
  float squares = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = (v * kThreads + threadIdx.x) * 8;
    if (column >= width) break;
    scale[v] = Load8(weight + column);
    Bf16x8 sum = Load8(residual + row + column);
    if (input != nullptr) {
      const Bf16x8 added = Load8(input + row + column);
      float addend[8];
      ToFloat(added, addend);
      ToFloat(sum, values[v]);
#pragma unroll
      for (int i = 0; i < 8; ++i) values[v][i] += addend[i];
      sum = ToBf16(values[v]);
      Store8(residual + row + column, sum);
    }
    // The norm is of the residual as stored, so that it does not depend on where the sum was made.
    ToFloat(sum, values[v]);
#pragma unroll
    for (int i = 0; i < 8; ++i) squares += values[v][i] * values[v][i];
  }
  const float inverse_rms = rsqrtf(BlockSum(squares) / static_cast<float>(width) + epsilon);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = (v * kThreads + threadIdx.x) * 8;
    if (column >= width) break;
    float factors[8];
    ToFloat(scale[v], factors);
#pragma unroll
    for (int i = 0; i < 8; ++i) values[v][i] *= inverse_rms * factors[i];
    Store8(output + row + column, ToBf16(values[v]));
  }
}

}  // namespace

void AddRmsNorm(const __nv_bfloat16* input, __nv_bfloat16* residual, const __nv_bfloat16* weight,
                float epsilon, int64_t rows, int32_t width, __nv_bfloat16* output,
                cudaStream_t stream) {
  if (width < 8 || width % 8 != 0 || width > kWidthMax || rows < 0 || rows > INT32_MAX) {
    throw Error(std::to_string(rows) + " rows of width " + std::to_string(width), "AddRmsNorm",
                "use a width that is a multiple of 8, at most " + std::to_string(kWidthMax));
  }
  if (rows == 0) return;
  const auto kernel = width <= kWidthMax / 4   ? AddRmsNormKernel<1>
                      : width <= kWidthMax / 2 ? AddRmsNormKernel<2>
                                               : AddRmsNormKernel<4>;
  kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(input, residual, weight, epsilon,
                                                               width, output);
  CheckLaunch("AddRmsNorm");
}

}  // namespace stallcast::kernels
