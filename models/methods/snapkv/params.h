// SnapKV: of a prompt the tokens that its last queries attend most; what is decoded stays.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stallcast::methods {

struct SnapKvParams {
  /// Who chooses: a KV head by the mean of its group, or each query head for itself, which then has
  /// a cache of its own.
  enum class Group : uint8_t { kMean, kQueryHead };

  int64_t budget = 2048;  ///< tokens kept of the prompt, the window included
  int64_t window = 32;    ///< last tokens, whose queries observe
  int64_t kernel = 5;     ///< tokens over which weights are averaged
  Group group = Group::kMean;
  int64_t dense_layers = 0;  ///< first layers that keep everything
  int64_t reserve = 4096;    ///< decoded tokens that memory is held for

  int64_t Kept(int64_t prompt) const { return std::min(prompt, budget); }
};

}  // namespace stallcast::methods
