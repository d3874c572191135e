#include <algorithm>
#include <string>

#include "kernels/decoder/decoder.h"
#include "kernels/device/vector.cuh"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    SwiGluKernel(const __nv_bfloat16* gate_up, int32_t width, __nv_bfloat16* output) {
  const int column = (blockIdx.x * kThreads + threadIdx.x) * 8;
  if (column >= width) return;
  const int64_t row = blockIdx.y;
  float gate[8], up[8];
  ToFloat(Load8(gate_up + row * 2 * width + column), gate);
  ToFloat(Load8(gate_up + row * 2 * width + width + column), up);
#pragma unroll
  for (int i = 0; i < 8; ++i) up[i] *= gate[i] / (1 + __expf(-gate[i]));
  Store8(output + row * width + column, ToBf16(up));
}

}  // namespace

void SwiGlu(const __nv_bfloat16* gate_up, int64_t rows, int32_t width, __nv_bfloat16* output,
            cudaStream_t stream) {
  constexpr int64_t kRowsMax = 65535;
  if (width < 8 || width % 8 != 0 || rows < 0) {
    throw Error(std::to_string(rows) + " rows of width " + std::to_string(width), "SwiGlu",
                "use a width that is a multiple of 8");
  }
  const auto blocks = static_cast<unsigned>((width / 8 + kThreads - 1) / kThreads);
  for (int64_t first = 0; first < rows; first += kRowsMax) {
    const auto count = static_cast<unsigned>(std::min(rows - first, kRowsMax));
    SwiGluKernel<<<dim3(blocks, count), kThreads, 0, stream>>>(gate_up + first * 2 * width, width,
                                                               output + first * width);
    CheckLaunch("SwiGlu");
  }
}

}  // namespace stallcast::kernels
