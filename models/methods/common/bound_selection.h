// Pages by the upper bound of their keys' products with the query, chosen anew in every step
// (Quest).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "models/methods/common/ranking.h"
#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

struct BoundSelection {
  int64_t page_tokens = 16;  ///< 1: scores are the products themselves
  int heads = 1;             ///< that choose: KV heads or query heads
  Pooling pooling = Pooling::kMax;
  int64_t pages = 0;  ///< chosen, beside the newest page, which may be partial
};

/// Calls `visit` step by step, head by head, with the pages chosen, ascending: all but the newest
/// if there are no more.
void ForEachSelection(
    const LayerTensors& tensors, const BoundSelection& selection,
    const std::function<void(int step, int head, std::span<const uint32_t> pages)>& visit);

}  // namespace stallcast::methods
