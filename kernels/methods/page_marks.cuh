// Page marks of rows that grow or shrink.
#pragma once

#include "kernels/methods/wgkv.h"

namespace stallcast::kernels {

/// Of a row that now holds `length` tokens.
inline __device__ void Mark(const PageMarks& marks, int row, int length, int page_tokens) {
  if (marks.begun == nullptr) return;
  const int tokens = length - marks.lead;
  marks.begun[row] = (tokens + page_tokens - 1) / page_tokens;
  marks.last_whole[row] = tokens / page_tokens - 1;
}

}  // namespace stallcast::kernels
