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

/// The MLPs of a layer's gates, bf16 values: w1 [head][hidden][2 dim], b1 and w2 [head][hidden], b2
/// [head], and the weights of the norms, [dim].
struct GateWeights {
  std::vector<float> w1, b1, w2, b2, pre_norm, post_norm;
};
/// Of a layer of the trace from params.gate_file, for `heads` KV heads of `dim`. Errors: see
/// Admit().
GateWeights ReadGate(const WgKvParams& params, int layer, int64_t heads, int64_t dim);

}  // namespace stallcast::methods
