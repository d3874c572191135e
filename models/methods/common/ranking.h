// Ranking units by score. Higher is better; ties go to the smaller id, so results do not depend on
// the machine's threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stallcast::methods {

/// How the query heads that share a selection agree on a score.
enum class Pooling : uint8_t {
  kSoftmaxMean,          ///< mean of softmax(scale * score)
  kSoftmaxMeanUnscaled,  ///< mean of softmax(score)
  kMean,                 ///< mean of the scores
  kMax,                  ///< maximum of the scores
  kSoftmaxMax,           ///< maximum of softmax(scale * score)
};

/// Pools `count` scores of each row into `out`: an order-preserving function of the pooled score.
/// Rows must be readable for kPanel values past `count`.
void PoolScores(Pooling pooling, std::span<const float* const> rows, int64_t count, float scale,
                std::vector<float>& out);

/// The `count` best of the ascending `ids` (all if fewer), ascending; scores[id - first_id] is the
/// score of id.
std::vector<uint32_t> Best(std::span<const uint32_t> ids, std::span<const float> scores,
                           uint32_t first_id, int64_t count);
/// The same of the ids first_id, first_id + 1, ... that have a score.
std::vector<uint32_t> Best(std::span<const float> scores, uint32_t first_id, int64_t count);

/// A unit and how many of its tokens are taken.
struct Taken {
  uint32_t unit = 0;
  int64_t tokens = 0;
};
/// Units of offsets[u + 1] - offsets[u] > 0 tokens for u < scores.size(), best first: whole ones
/// while they fit into `capacity` tokens, then as much of the next one as does. Ascending by unit.
std::vector<Taken> BestWithin(std::span<const float> scores, std::span<const uint32_t> offsets,
                              int64_t capacity);

}  // namespace stallcast::methods
