#include <algorithm>
#include <string>

#include "kernels/cuda_error.h"
#include "kernels/decoder.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 128;

/// Four elements of each half of a head, which rotate-half turns together.
struct alignas(8) Bf16x4 {
  __nv_bfloat162 pairs[2];
};

__device__ Bf16x4& Four(__nv_bfloat16* at) { return *reinterpret_cast<Bf16x4*>(at); }

/// blockIdx.y is the token; a thread turns four pairs of one head.
__global__ void __launch_bounds__(kThreads)
    RopeAppendKernel(__nv_bfloat16* qkv, int32_t query_heads, PagedKv cache, const int32_t* slot_of,
                     const int32_t* place_of, const int32_t* position_of,
                     const float* inverse_frequencies, float attention_scaling) {
  const int64_t token = blockIdx.y;
  const int half = cache.head_dim / 2;
  const int threads_a_head = half / 4;
  const int index = blockIdx.x * kThreads + threadIdx.x;
  const int head = index / threads_a_head;
  const int first = 4 * (index - head * threads_a_head);
  const int heads = query_heads + 2 * cache.kv_heads;
  if (head >= heads) return;

  __nv_bfloat16* from = qkv + (token * heads + head) * cache.head_dim + first;
  __nv_bfloat16* to = from;
  const bool is_value = head >= query_heads + cache.kv_heads;
  if (head >= query_heads) {
    const int kv_head = head - query_heads - (is_value ? cache.kv_heads : 0);
    to = cache.data + slot_of[token] * cache.slot_stride + (is_value ? cache.kv_stride : 0) +
         place_of[token] * cache.token_stride + kv_head * cache.head_stride + first;
  }
  Bf16x4 low = Four(from), high = Four(from + half);
  if (!is_value) {
    const auto position = static_cast<float>(position_of[token]);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const float2 a = __bfloat1622float2(low.pairs[pair]);
      const float2 b = __bfloat1622float2(high.pairs[pair]);
      float2 sine, cosine;
      sincosf(position * inverse_frequencies[first + 2 * pair], &sine.x, &cosine.x);
      sincosf(position * inverse_frequencies[first + 2 * pair + 1], &sine.y, &cosine.y);
      low.pairs[pair] = __floats2bfloat162_rn(attention_scaling * (a.x * cosine.x - b.x * sine.x),
                                              attention_scaling * (a.y * cosine.y - b.y * sine.y));
      high.pairs[pair] = __floats2bfloat162_rn(attention_scaling * (b.x * cosine.x + a.x * sine.x),
                                               attention_scaling * (b.y * cosine.y + a.y * sine.y));
    }
  }
  Four(to) = low;
  Four(to + half) = high;
}

}  // namespace

void RopeAppend(__nv_bfloat16* qkv, int64_t tokens, int32_t query_heads, const PagedKv& cache,
                const int32_t* slot_of, const int32_t* place_of, const int32_t* position_of,
                const float* inverse_frequencies, float attention_scaling, cudaStream_t stream) {
  constexpr int64_t kTokensMax = 65535;
  if (cache.head_dim < 8 || cache.head_dim % 8 != 0 || query_heads < 0 || cache.kv_heads < 1 ||
      tokens < 0) {
    throw Error("heads of " + std::to_string(cache.head_dim), "RopeAppend",
                "use a head dimension that is a multiple of 8");
  }
  const int32_t heads = query_heads + 2 * cache.kv_heads;
  const auto blocks =
      static_cast<unsigned>((heads * (cache.head_dim / 8) + kThreads - 1) / kThreads);
  for (int64_t first = 0; first < tokens; first += kTokensMax) {
    const auto count = static_cast<unsigned>(std::min(tokens - first, kTokensMax));
    RopeAppendKernel<<<dim3(blocks, count), kThreads, 0, stream>>>(
        qkv + first * heads * cache.head_dim, query_heads, cache, slot_of + first, place_of + first,
        position_of + first, inverse_frequencies, attention_scaling);
    CheckLaunch("RopeAppend");
  }
}

}  // namespace stallcast::kernels
