// Products of all queries of a layer with every key that they see.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

/// As UnitScores with a unit a token, but keys are widened anew for each block of queries, so that
/// a long trace needs little memory.
class TokenScores {
 public:
  /// Changes `count` keys, [token][dim], before they are multiplied. Called from several threads.
  using Transform = std::function<void(int64_t count, float* keys)>;

  explicit TokenScores(const LayerTensors& tensors, Transform transform = {});

  /// Scores the queries of `token` and some that follow, over all cores. Returns the first token
  /// after them.
  int64_t Load(int64_t token);
  /// q . k of a query head at a loaded token, by token; readable for kPanel values past the query's
  /// own.
  const float* Of(int query_head, int64_t token) const;

 private:
  const LayerTensors& tensors_;
  Transform transform_;
  int64_t stride_;
  std::vector<float> scores_;  // [query head][token of the block][token]
  int64_t block_begin_ = 0;
};

}  // namespace stallcast::methods
