// Which tokens each KV head of a layer admits.
#pragma once

#include <cstdint>
#include <vector>

#include "models/methods/layer_tensors.h"
#include "models/methods/wgkv/params.h"

namespace stallcast::methods {

/// [KV head][token of prompt and steps]: 1 if it is admitted once it leaves the window.
using Admission = std::vector<std::vector<uint8_t>>;

/// kRandom: independently with probability 1 - sparsity, from the seed, layer, head and token.
///
/// kOracle: the share 1 - sparsity, over all heads of the layer, of most attention weight from
/// later queries that no longer have the token in their window: the mean over the trace's queries
/// and the group's heads. Equal weights go to the smaller head and token.
///
/// kMlp: score >= threshold with the trained weights (paper 3.2): of both the key before and after
/// RoPE, each divided by its root mean square, in bf16. Needs the trace's RoPE parameters. A
/// file without the layer's weights, or of another shape: usage Error.
Admission Admit(const LayerTensors& tensors, const WgKvParams& params);

}  // namespace stallcast::methods
