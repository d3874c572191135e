// How alike two queries are.
#pragma once

#include <cstdint>

#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

/// Mean over query heads [first, last) of the cosine between the queries of `token` and the token
/// before; NaN where the trace lacks one of them. A zero vector is like nothing: cosine 0.
float AdjacentSimilarity(const LayerTensors& tensors, int first, int last, int64_t token);

}  // namespace stallcast::methods
