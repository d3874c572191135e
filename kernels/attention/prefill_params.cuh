// What the kernels of prefill attention are given, and where keys lie.
#pragma once

#include <cstdint>

#include "kernels/attention/prefill_attention.h"
#include "kernels/device/divide.cuh"

namespace stallcast::kernels {

constexpr int64_t kNowhere = -1;

struct PrefillParams {
  PrefillAttentionArgs args;
  Divider by_page;
  float scale;  ///< with log2(e), for Exp2
  int heads;    ///< query heads of all sequences
  /// How many of them walk at a time, so that their keys and values stay in L2.
  int heads_at_once;

  /// Elements from the first token of slot 0 to this token; kNowhere from `end` on.
  __device__ int64_t KeyOffset(int sequence, int token, int end) const {
    if (token >= end) return kNowhere;
    const auto page = static_cast<int>(by_page.Quotient(token));
    const int64_t entry = int64_t{sequence} * args.max_pages + page;
    return (args.slots != nullptr ? args.slots[entry] : entry) * args.cache.slot_stride +
           (token - page * args.cache.page_tokens) * args.cache.token_stride;
  }
};

/// What a block of the grid works on.
struct PrefillBlock {
  int sequence, first, end;  ///< the first query, and the end of the keys that any attends
  const __nv_bfloat16* keys;
  int64_t query_at, query_stride;

  /// Of the heads at a time the blocks with the longest walks come first, so that short ones fill
  /// the end.
  __device__ PrefillBlock(const PrefillParams& p, int block_queries) {
    const PrefillAttentionArgs& a = p.args;
    const int query_heads = a.cache.kv_heads * a.group;
    const int blocks = (a.tokens + block_queries - 1) / block_queries;
    const int first_head =
        static_cast<int>(blockIdx.x) / (p.heads_at_once * blocks) * p.heads_at_once;
    const int at_once = min(p.heads_at_once, p.heads - first_head);
    const int number = static_cast<int>(blockIdx.x) - first_head * blocks;
    const int head = first_head + number % at_once;
    sequence = head / query_heads;
    first = (blocks - 1 - number / at_once) * block_queries;
    end = a.past + min(first + block_queries, a.tokens);
    keys = a.cache.data + int64_t{head % query_heads / a.group} * a.cache.head_stride;
    query_stride = int64_t{query_heads} * a.cache.head_dim;
    query_at = (int64_t{sequence} * a.tokens + first) * query_stride +
               head % query_heads * a.cache.head_dim;
  }
};

/// Blocks of the grid.
inline unsigned PrefillBlocks(const PrefillParams& p, int block_queries) {
  return static_cast<unsigned>((p.args.tokens + block_queries - 1) / block_queries * p.heads);
}

#ifdef STALLCAST_SM90A
/// For devices of compute capability 9.0.
void LaunchPrefillAttentionHopper(const PrefillParams& params, cudaStream_t stream);
#endif

}  // namespace stallcast::kernels
