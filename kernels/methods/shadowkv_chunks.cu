// ShadowKV's chunks: what stands for each, and those that a selection ranks.
#include <string>

#include "kernels/device/ascending.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/methods/shadowkv.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kChannels = 8;  // of a lane: 16 bytes of bf16

template <int kDim>
constexpr int kLanes = kDim / kChannels;  // that share a key

__device__ void LoadKey(const __nv_bfloat16* from, float (&key)[kChannels]) {
  // As read-only: the second pass then finds the keys in L1.
  const uint4 raw = __ldg(reinterpret_cast<const uint4*>(from));
  ToFloat(reinterpret_cast<const Bf16x8&>(raw), key);
}

template <int kDim>
__device__ float SumOverLanes(float value) {
#pragma unroll
  for (int lanes = 1; lanes < kLanes<kDim>; lanes *= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, lanes);
  }
  return value;
}

// kLanes lanes take a chunk of a row. They add its keys in their order, so that the mean is the
// policy's to the last bit.
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    SummarizeChunksKernel(const TokenView keys, int64_t all, int chunks, int chunk,
                          __nv_bfloat16* __restrict__ landmarks, float* __restrict__ cohesion) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes<kDim>;
  const int64_t own = int64_t{blockIdx.x} * (kThreads / kLanes<kDim>)+threadIdx.x / kLanes<kDim>;
  const int64_t at = own < all ? own : all - 1;  // the others of the warp need these lanes
  const int64_t row = at / chunks;
  const __nv_bfloat16* from = keys.data + row * keys.row_stride +
                              (at - row * chunks) * chunk * keys.token_stride + lane * kChannels;
  float mean[kChannels] = {};
#pragma unroll 8
  for (int t = 0; t < chunk; ++t) {
    float key[kChannels];
    LoadKey(from + t * keys.token_stride, key);
#pragma unroll
    for (int i = 0; i < kChannels; ++i) mean[i] += key[i];
  }
  float of_mean = 0;
#pragma unroll
  for (float& x : mean) {
    x /= static_cast<float>(chunk);
    of_mean += x * x;
  }
  const float length = sqrtf(SumOverLanes<kDim>(of_mean));
  float least = 1;
#pragma unroll 8
  for (int t = 0; t < chunk; ++t) {
    float key[kChannels], product = 0, of_key = 0;
    LoadKey(from + t * keys.token_stride, key);
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      product += key[i] * mean[i];
      of_key += key[i] * key[i];
    }
    product = SumOverLanes<kDim>(product);
    const float lengths = sqrtf(SumOverLanes<kDim>(of_key)) * length;
    least = fminf(least, lengths > 0 ? product / lengths : 0);
  }
  if (own >= all) return;
  Store8(landmarks + own * kDim + lane * kChannels, ToBf16(mean));
  if (lane == 0) cohesion[own] = least;
}

// kLanes lanes copy a candidate's landmark.
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    KeepKernel(const __nv_bfloat16* __restrict__ landmarks, int chunks,
               const int32_t* __restrict__ outlier, int outliers, int64_t all, int candidates,
               int32_t* __restrict__ chunk_of, __nv_bfloat16* __restrict__ kept) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes<kDim>;
  const int64_t at = int64_t{blockIdx.x} * (kThreads / kLanes<kDim>)+threadIdx.x / kLanes<kDim>;
  if (at >= all) return;
  const int64_t row = at / candidates;
  const int chunk =
      NthLeftOut(outlier + row * outliers, outliers, static_cast<int>(at - row * candidates));
  if (lane == 0) chunk_of[at] = chunk;
  Store8(kept + at * kDim + lane * kChannels,
         Load8(landmarks + (row * chunks + chunk) * kDim + lane * kChannels));
}

void CheckDim(int32_t head_dim, const char* name) {
  if (head_dim != 64 && head_dim != 128) {
    throw Error("a head dimension of " + std::to_string(head_dim), name, "use 64 or 128");
  }
}

// Of kLanes lanes for each of `all`.
unsigned Blocks(int64_t all, int32_t head_dim) {
  const int64_t each = kThreads / (head_dim / kChannels);
  return static_cast<unsigned>((all + each - 1) / each);
}

}  // namespace

void SummarizeChunks(const TokenView& keys, int32_t rows, int32_t chunks, int32_t chunk,
                     int32_t head_dim, __nv_bfloat16* landmarks, float* cohesion,
                     cudaStream_t stream) {
  CheckDim(head_dim, "SummarizeChunks");
  if (chunk < 1) {
    throw Error("chunks of " + std::to_string(chunk) + " tokens", "SummarizeChunks",
                "use chunks of at least one");
  }
  if (rows <= 0 || chunks <= 0) return;
  const int64_t all = int64_t{rows} * chunks;
  const auto kernel = head_dim == 128 ? SummarizeChunksKernel<128> : SummarizeChunksKernel<64>;
  kernel<<<Blocks(all, head_dim), kThreads, 0, stream>>>(keys, all, chunks, chunk, landmarks,
                                                         cohesion);
  CheckLaunch("SummarizeChunks");
}

void KeepCandidates(const __nv_bfloat16* landmarks, int32_t chunks, const int32_t* outlier,
                    int32_t outliers, int32_t rows, int32_t candidates, int32_t head_dim,
                    int32_t* chunk_of, __nv_bfloat16* kept, cudaStream_t stream) {
  CheckDim(head_dim, "KeepCandidates");
  if (outliers < 0 || candidates > int64_t{chunks} - outliers) {
    throw Error(std::to_string(candidates) + " candidates and " + std::to_string(outliers) +
                    " outliers of " + std::to_string(chunks) + " chunks",
                "KeepCandidates", "keep at most those that are no outliers");
  }
  if (rows <= 0 || candidates <= 0) return;
  const int64_t all = int64_t{rows} * candidates;
  const auto kernel = head_dim == 128 ? KeepKernel<128> : KeepKernel<64>;
  kernel<<<Blocks(all, head_dim), kThreads, 0, stream>>>(landmarks, chunks, outlier, outliers, all,
                                                         candidates, chunk_of, kept);
  CheckLaunch("KeepCandidates");
}

}  // namespace stallcast::kernels
