// What the queries of an observation window think of tokens (SnapKV; PRKV 4.1, appendix G).
#pragma once

#include <cstdint>
#include <vector>

#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

/// Which tokens a query's softmax is over: those observed, or all that it sees.
enum class Observed : uint8_t { kThese, kAllBefore };

/// Weights of tokens [0, tokens) for the query heads [first_head, end_head) of one KV head: softmax
/// for each head and query of [first, end), then the mean over heads and queries. A query gives
/// nothing to tokens after its own where its softmax is over all that it sees.
std::vector<float> ObservationScores(const LayerTensors& tensors, int first_head, int end_head,
                                     int64_t tokens, int64_t first, int64_t end,
                                     Observed observed = Observed::kThese);

/// How many of the `count` tokens of most weight among [0, tokens) two queries of a head share.
int64_t CommonBest(const LayerTensors& tensors, int query_head, int64_t tokens, int64_t count,
                   int64_t query_a, int64_t query_b);

}  // namespace stallcast::methods
