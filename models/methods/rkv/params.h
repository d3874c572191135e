// R-KV: at times the cache is cut to tokens that are attended and unlike the others.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stallcast::methods {

struct RkvParams {
  int64_t budget = 2048;     ///< tokens that a compression leaves
  int64_t buffer = 128;      ///< decoded tokens from one to the next
  int64_t window = 8;        ///< last tokens, kept; their queries observe
  int64_t kernel = 7;        ///< neighbours of which the largest weight counts
  double lambda = 0.07;      ///< share of attention in a token's worth; the rest is dissimilarity
  double threshold = 0.5;    ///< keys of more cosine are alike
  int64_t dense_layers = 0;  ///< first layers that keep everything

  /// Tokens of a sequence in the cache before `step`'s own, and before what it compresses.
  int64_t Before(int64_t prompt, int64_t step) const {
    if (prompt >= budget) return budget + (step == 0 ? 0 : (step - 1) % buffer + 1);
    const int64_t grown = prompt + step, full = budget + buffer;
    return grown <= full ? grown : budget + (grown - full - 1) % buffer + 1;
  }
  bool Compresses(int64_t prompt, int64_t step) const {
    return Before(prompt, step) == budget + buffer;
  }
  /// Tokens that `step` attends, its own included.
  int64_t Attended(int64_t prompt, int64_t step) const {
    return (Compresses(prompt, step) ? budget : Before(prompt, step)) + 1;
  }
};

}  // namespace stallcast::methods
