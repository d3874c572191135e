// Keys and values in pages, addressed by strides so that one kernel serves every layout.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace stallcast::kernels {

/// Element (slot, k or v, token of the page, head, 0) is at
///   data + slot * slot_stride + kv * kv_stride + token * token_stride + head * head_stride;
/// head_dim elements are contiguous and 16-byte aligned. Strides count elements.
/// NHD pages [slot][2][p][H][d]; HND pages [slot][H][2][p][d].
struct PagedKv {
  __nv_bfloat16* data = nullptr;
  int64_t slot_stride = 0, kv_stride = 0, token_stride = 0, head_stride = 0;
  int32_t page_tokens = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
};

PagedKv NhdPages(__nv_bfloat16* data, int32_t page_tokens, int32_t kv_heads, int32_t head_dim);
PagedKv HndPages(__nv_bfloat16* data, int32_t page_tokens, int32_t kv_heads, int32_t head_dim);

/// Sequences whose pages follow one another: page i of sequence s is at slot s * sequence_pages +
/// i. A row is a (sequence, KV head): row = sequence * kv_heads + head.
struct PageRuns {
  PagedKv cache;
  int32_t sequence_pages = 0;
};

/// Which slots a row attends. A row is a (sequence, KV head): row = sequence * kv_heads + head.
/// table[row * max_pages + i] is the slot of the row's i-th page, tokens[row] how many tokens the
/// row attends: whole pages but for the last. A slot of any sequence may hold any page, unless
/// slots_a_sequence says that entries count from slot sequence * slots_a_sequence.
struct PageTable {
  const int32_t* table = nullptr;
  const int32_t* tokens = nullptr;
  int32_t max_pages = 0;
  int32_t max_tokens = 0;  ///< upper bound of tokens[], known to the host
  int32_t slots_a_sequence = 0;
};

}  // namespace stallcast::kernels
