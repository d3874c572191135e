// Addresses of keys and values in sequences of consecutive pages.
#pragma once

#include <cstdint>

#include "kernels/device/divide.cuh"
#include "kernels/runtime/paged_kv.h"

namespace stallcast::kernels {

class RunAddress {
 public:
  explicit RunAddress(const PageRuns& runs)
      : cache_(runs.cache),
        sequence_stride_(runs.sequence_pages * runs.cache.slot_stride),
        by_page_(static_cast<uint32_t>(runs.cache.page_tokens)),
        by_head_(static_cast<uint32_t>(runs.cache.kv_heads)) {}

  __device__ __nv_bfloat16* Key(uint32_t row, uint32_t token) const {
    const uint32_t sequence = by_head_.Quotient(row), head = by_head_.Remainder(row, sequence);
    const uint32_t page = by_page_.Quotient(token), place = by_page_.Remainder(token, page);
    return cache_.data + sequence * sequence_stride_ + page * cache_.slot_stride +
           place * cache_.token_stride + head * cache_.head_stride;
  }
  __device__ __nv_bfloat16* Value(uint32_t row, uint32_t token) const {
    return Key(row, token) + cache_.kv_stride;
  }

 private:
  PagedKv cache_;
  int64_t sequence_stride_;
  Divider by_page_, by_head_;
};

}  // namespace stallcast::kernels
