// Causal attention of a prompt, or of a chunk of one, over keys and values at any strides.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/runtime/paged_kv.h"

namespace stallcast::kernels {

/// Token i of the `tokens` new ones of a sequence has position past + i and attends the sequence's
/// tokens 0 to past + i, whose keys and values (also those of the new tokens) are in `cache`.
struct PrefillAttentionArgs {
  const __nv_bfloat16* query = nullptr;  ///< [sequences][tokens][kv_heads * group][head_dim]
  /// Contiguous keys and values are pages as long as a sequence: with [sequence][token][heads][d]
  /// apart for each, kv_stride is from the one to the other.
  PagedKv cache;
  /// [sequences][max_pages], the slot of a sequence's page. Null: page i of sequence s lies in slot
  /// s * max_pages + i.
  const int32_t* slots = nullptr;
  int32_t max_pages = 0;            ///< enough for past + tokens
  __nv_bfloat16* output = nullptr;  ///< like query
  int32_t sequences = 0;
  int32_t tokens = 0, past = 0;
  int32_t group = 0;  ///< query heads a KV head
  float scale = 0;    ///< of query-key products, above 0: 1/sqrt(head_dim)
  /// Without Hopper's own instructions, which otherwise serve where they are compiled in (sm_90a).
  bool portable = false;
};

/// head_dim 64 or 128; past + tokens at most 2^22, the cache at most 64 GiB, which with `slots` is
/// not checked. Errors: unsupported shapes.
void PrefillAttention(const PrefillAttentionArgs& args, cudaStream_t stream);

}  // namespace stallcast::kernels
