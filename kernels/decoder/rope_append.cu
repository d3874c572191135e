#include <cstdint>
#include <string>

#include "kernels/decoder/decoder.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 128;

/// Four elements of each half of a head, which rotate-half turns together.
struct alignas(8) Bf16x4 {
  __nv_bfloat162 pairs[2];
};

__device__ Bf16x4& Four(__nv_bfloat16* at) { return *reinterpret_cast<Bf16x4*>(at); }

/// Widens bounds [low, high] of `stride` channels each by four channels of a key; the first key of
/// a page starts them.
__device__ void Widen(__nv_bfloat16* low, int stride, const Bf16x4& key, bool first) {
  Bf16x4& lower = Four(low);
  Bf16x4& upper = Four(low + stride);
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    lower.pairs[pair] = first ? key.pairs[pair] : __hmin2(lower.pairs[pair], key.pairs[pair]);
    upper.pairs[pair] = first ? key.pairs[pair] : __hmax2(upper.pairs[pair], key.pairs[pair]);
  }
}

/// blockIdx.x is the token; a thread turns four pairs of one head.
__global__ void __launch_bounds__(kThreads)
    RopeAppendKernel(const __nv_bfloat16* qkv, int32_t query_heads, PagedKv cache,
                     const int32_t* slot_of, const int32_t* place_of, const int32_t* position_of,
                     const float* inverse_frequencies, float attention_scaling,
                     __nv_bfloat16* query, PageBounds bounds) {
  const int64_t token = blockIdx.x;
  const int half = cache.head_dim / 2;
  const int threads_a_head = half / 4;
  const int index = blockIdx.y * kThreads + threadIdx.x;
  const int head = index / threads_a_head;
  const int first = 4 * (index - head * threads_a_head);
  const int heads = query_heads + 2 * cache.kv_heads;
  if (head >= heads) return;

  const __nv_bfloat16* from = qkv + (token * heads + head) * cache.head_dim + first;
  __nv_bfloat16* to = query + (token * query_heads + head) * cache.head_dim + first;
  const bool is_value = head >= query_heads + cache.kv_heads;
  if (head >= query_heads) {
    const int kv_head = head - query_heads - (is_value ? cache.kv_heads : 0);
    to = cache.data + slot_of[token] * cache.slot_stride + (is_value ? cache.kv_stride : 0) +
         place_of[token] * cache.token_stride + kv_head * cache.head_stride + first;
  }
  Bf16x4 low = *reinterpret_cast<const Bf16x4*>(from);
  Bf16x4 high = *reinterpret_cast<const Bf16x4*>(from + half);
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
  if (bounds.summaries != nullptr && head >= query_heads && !is_value) {
    const int64_t row = token * cache.kv_heads + head - query_heads;
    __nv_bfloat16* page =
        bounds.summaries +
        (row * bounds.summary_pages + bounds.page_of[token]) * 2 * cache.head_dim + first;
    const bool starts = place_of[token] == 0;
    Widen(page, cache.head_dim, low, starts);
    Widen(page + half, cache.head_dim, high, starts);
  }
}

}  // namespace

void RopeAppend(const __nv_bfloat16* qkv, int64_t tokens, int32_t query_heads, const PagedKv& cache,
                const int32_t* slot_of, const int32_t* place_of, const int32_t* position_of,
                const float* inverse_frequencies, float attention_scaling, __nv_bfloat16* query,
                const PageBounds& bounds, cudaStream_t stream) {
  if (cache.head_dim < 8 || cache.head_dim % 8 != 0 || query_heads < 0 || cache.kv_heads < 1 ||
      tokens < 0 || tokens > INT32_MAX) {
    throw Error("heads of " + std::to_string(cache.head_dim), "RopeAppend",
                "use a head dimension that is a multiple of 8");
  }
  const int32_t heads = query_heads + 2 * cache.kv_heads;
  const auto blocks =
      static_cast<unsigned>((heads * (cache.head_dim / 8) + kThreads - 1) / kThreads);
  if (tokens == 0) return;
  RopeAppendKernel<<<dim3(static_cast<unsigned>(tokens), blocks), kThreads, 0, stream>>>(
      qkv, query_heads, cache, slot_of, place_of, position_of, inverse_frequencies,
      attention_scaling, query, bounds);
  CheckLaunch("RopeAppend");
}

}  // namespace stallcast::kernels
