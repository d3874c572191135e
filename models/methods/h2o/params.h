// H2O: the tokens with most attention so far, and the last ones.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stallcast::methods {

struct H2oParams {
  /// What a token is worth: all attention that it has had, or the last query's (TOVA).
  enum class Worth : uint8_t { kAccumulated, kLast };

  int64_t budget = 2048;  ///< tokens on the GPU and attended, the step's own included
  int64_t recent = 1024;  ///< last ones of them, which are never dropped
  Worth worth = Worth::kAccumulated;
  int64_t dense_layers = 0;  ///< first layers that keep everything
};

}  // namespace stallcast::methods
