// SparQ: tokens by the largest channels of the query alone.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stallcast::methods {

struct SparQParams {
  int64_t budget = 2048;     ///< tokens attended, the window included
  int64_t channels = 32;     ///< of the query, those of largest size
  int64_t window = 128;      ///< last tokens, kept
  int64_t dense_layers = 0;  ///< first layers that attend everything
};

}  // namespace stallcast::methods
