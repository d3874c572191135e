#include "kernels/device/vector.cuh"
#include "kernels/methods/key_factors.h"
#include "kernels/runtime/cuda_error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;           // rows and columns that a block turns in shared memory
constexpr int kPieces = kTile / 8;  // of 16 bytes of bf16 in a row
constexpr int kPadded = kTile + 1;  // so that a column's elements lie in different banks

// blockIdx.x is a tile of tokens, blockIdx.y one of channels, which are of one head.
__global__ void __launch_bounds__(kThreads)
    WidenKernel(const TokenView keys, int64_t tokens, int head_dim, int64_t token_stride,
                int64_t channel_stride, bool by_channel, float* __restrict__ matrix) {
  __shared__ float tile[kTile][kPadded];  // [token][channel]
  const int64_t first = int64_t{blockIdx.x} * kTile;
  const int channel = static_cast<int>(blockIdx.y) * kTile;
  const int count = static_cast<int>(tokens - first < kTile ? tokens - first : kTile);
  const __nv_bfloat16* from = keys.data + channel / head_dim * keys.row_stride +
                              first * keys.token_stride + channel % head_dim;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kPieces; i += kThreads) {
    const int token = i / kPieces, at = i % kPieces * 8;
    if (token >= count) break;
    float values[8];
    ToFloat(Load8(from + token * keys.token_stride + at), values);
#pragma unroll
    for (int j = 0; j < 8; ++j) tile[token][at + j] = values[j];
  }
  __syncthreads();
  matrix += first * token_stride + channel * channel_stride;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
    const int token = by_channel ? i % kTile : i / kTile;
    const int at = by_channel ? i / kTile : i % kTile;
    if (token < count) matrix[token * token_stride + at * channel_stride] = tile[token][at];
  }
}

// blockIdx.x is a tile of a vector's elements, blockIdx.y one of vectors.
__global__ void __launch_bounds__(kThreads)
    RoundKernel(const float* __restrict__ vectors, int64_t size, int have,
                const float* __restrict__ values, bool scaled, int rank,
                __nv_bfloat16* __restrict__ factor) {
  __shared__ float tile[kTile][kPadded];  // [vector][element]
  const int64_t first = int64_t{blockIdx.x} * kTile;
  const int vector = static_cast<int>(blockIdx.y) * kTile;
  const int count = static_cast<int>(size - first < kTile ? size - first : kTile);
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
    const int r = vector + i / kTile, at = i % kTile;
    float x = 0;
    if (r < have && at < count) {
      const float value = values[r];
      if (value > 0) x = vectors[r * size + first + at] * (scaled ? value : 1.0f);
    }
    tile[i / kTile][at] = x;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kPieces; i += kThreads) {
    const int at = i / kPieces, r = i % kPieces * 8;
    if (at >= count || vector + r >= rank) continue;
    float x[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = tile[r + j][at];
    Store8(factor + (first + at) * rank + vector + r, ToBf16(x));
  }
}

unsigned Tiles(int64_t size) { return static_cast<unsigned>((size + kTile - 1) / kTile); }

}  // namespace

void WidenKeys(const TokenView& keys, int64_t tokens, int32_t kv_heads, int32_t head_dim,
               bool by_channel, float* matrix, cudaStream_t stream) {
  const int64_t width = int64_t{kv_heads} * head_dim;
  WidenKernel<<<dim3(Tiles(tokens), Tiles(width)), kThreads, 0, stream>>>(
      keys, tokens, head_dim, by_channel ? 1 : width, by_channel ? tokens : 1, by_channel, matrix);
  CheckLaunch("WidenKeys");
}

void RoundFactor(const float* vectors, int64_t size, int32_t count, const float* values,
                 bool scaled, int32_t rank, __nv_bfloat16* factor, cudaStream_t stream) {
  RoundKernel<<<dim3(Tiles(size), Tiles(rank)), kThreads, 0, stream>>>(vectors, size, count, values,
                                                                       scaled, rank, factor);
  CheckLaunch("RoundFactor");
}

}  // namespace stallcast::kernels
