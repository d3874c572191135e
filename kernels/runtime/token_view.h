// Single tokens' keys and values in a flat buffer, on the device or in pinned host memory.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace stallcast::kernels {

/// Row r's token t: its key at data + r * row_stride + t * token_stride, its value value_offset
/// further; head_dim elements each, contiguous and 16-byte aligned. Strides count elements.
struct TokenView {
  __nv_bfloat16* data = nullptr;
  int64_t row_stride = 0, token_stride = 0, value_offset = 0;
};

}  // namespace stallcast::kernels
