// Scores of all queries of a layer against vectors that stand for units of keys.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

class UnitScores {
 public:
  /// What stands for a unit: one vector c, scored q . c, or an upper and a lower bound for each
  /// channel, scored sum_i max(q_i upper_i, q_i lower_i).
  enum class Kind : uint8_t { kVector, kBounds };
  /// Writes units [first, first + count) of a KV head to `columns`: dim values a unit, or 2 dim
  /// (upper, lower). Called from several threads.
  using Fill = std::function<void(int kv_head, int64_t first, int64_t count, float* columns)>;

  /// `units`: of each KV head. Queries may be loaded for tokens under `end_token`.
  UnitScores(const LayerTensors& tensors, Kind kind, std::vector<int64_t> units, int64_t end_token,
             const Fill& fill);

  /// Scores the queries of `token` and some that follow, over all cores. Returns the first token
  /// after them.
  int64_t Load(int64_t token);
  /// Scores of a query head at a loaded token, by unit; readable for kPanel values past the last
  /// unit.
  const float* Of(int query_head, int64_t token) const;

 private:
  const LayerTensors& tensors_;
  Kind kind_;
  std::vector<int64_t> units_;
  int64_t end_token_;
  int64_t column_ = 0, panels_a_head_ = 0;
  std::vector<float> panels_;  // by KV head: packed columns
  std::vector<float> scores_;  // [query head][token of the block][unit]
  int64_t block_begin_ = 0;
};

}  // namespace stallcast::methods
