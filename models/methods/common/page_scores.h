// What page-wise methods keep of a page's keys, and how queries score it.
#pragma once

#include <cstdint>
#include <vector>

#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

/// Two vectors a page and KV head, an upper and a lower bound for each channel: the maximum and
/// minimum of its keys (Quest), or centre +- radius, where the centre is that of the maximum and
/// minimum and the radius is the keys' mean distance from it (ArkVale's code, "cuboid-mean"), kept
/// in the cache's type: rounded to bf16.
enum class PageSummary : uint8_t { kMinMax, kCuboidMean };

/// Writes the summary of the `tokens` keys at `keys`, [token][dim]: `upper`, `lower`, dim values
/// each.
void SummarizePage(PageSummary kind, const float* keys, int64_t tokens, int64_t dim, float* upper,
                   float* lower);

/// Scores sum_i max(q_i * upper_i, q_i * lower_i) of every page that is full when the trace ends,
/// for all query heads of a layer. A page's summary never changes once it is full, so all are
/// made at once; a caller reads only those pages that exist at the step it replays.
class PageScores {
 public:
  PageScores(const LayerTensors& tensors, int64_t page_tokens, PageSummary summary);

  /// Scores the queries of `token` and some that follow, over all cores. Returns the first token
  /// after them.
  int64_t Load(int64_t token);
  /// Scores of a query head at a loaded token, by page; readable for kPanel values past the last
  /// page.
  const float* Of(int query_head, int64_t token) const;

 private:
  const LayerTensors& tensors_;
  int64_t pages_, stride_;
  std::vector<float> panels_;  // by KV head: packed columns of [upper, lower]
  std::vector<float> scores_;  // [query head][token of the block][page]
  int64_t block_begin_ = 0;
};

}  // namespace stallcast::methods
