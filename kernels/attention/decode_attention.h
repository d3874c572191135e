// Attention of one new token a sequence over paged keys and values: split KV, grouped queries.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/runtime/paged_kv.h"

namespace stallcast::kernels {

struct DecodeAttentionArgs {
  const __nv_bfloat16* query = nullptr;  ///< [sequences][kv_heads * rows_a_head * group][head_dim]
  PagedKv cache;
  PageTable pages;
  __nv_bfloat16* output = nullptr;  ///< like query
  float* workspace = nullptr;       ///< DecodeAttentionWorkspace() floats, zero before first use
  int32_t sequences = 0;
  /// Rows of `pages` a KV head: 1, or as many as choose their pages apart (Quest's query heads).
  /// Row (sequence * kv_heads + kv_head) * rows_a_head + i serves the i-th of the head's
  /// selections.
  int32_t rows_a_head = 1;
  int32_t group = 0;  ///< query heads a row, 1 to 16
  float scale = 0;    ///< of query-key products, 1/sqrt(head_dim)
};

/// Floats of workspace for partial results of splits, enough for any number of sequences and tokens
/// of this shape on this device. A launch leaves it ready for the next; launches that may overlap
/// need one each.
int64_t DecodeAttentionWorkspace(const DecodeAttentionArgs& args);
/// head_dim 64 or 128. Rows with no tokens give zeros. Errors: unsupported shapes.
void DecodeAttention(const DecodeAttentionArgs& args, cudaStream_t stream);

}  // namespace stallcast::kernels
