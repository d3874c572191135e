// What the queries of an observation window think of the tokens before it (PRKV 4.1, appendix G).
#pragma once

#include <cstdint>
#include <vector>

#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

/// Weights of tokens [0, tokens) for the group of a KV head: softmax over these tokens for each
/// query head and query of [first, end), then the mean over heads and queries.
std::vector<float> ObservationScores(const LayerTensors& tensors, int kv_head, int64_t tokens,
                                     int64_t first, int64_t end);

/// How many of the `count` tokens of most weight among [0, tokens) two queries of a head share.
int64_t CommonBest(const LayerTensors& tensors, int query_head, int64_t tokens, int64_t count,
                   int64_t query_a, int64_t query_b);

}  // namespace stallcast::methods
