// StreamingLLM: the first tokens and the last ones; the rest is dropped.
#pragma once

#include <cstdint>

namespace stallcast::methods {

struct StreamingParams {
  int64_t sink = 4;       ///< tokens
  int64_t budget = 2048;  ///< tokens, sink included; the window is the rest

  int64_t window() const { return budget - sink; }
};

}  // namespace stallcast::methods
