// What a layer's attention does beyond softmax(scale q k) v over the token and all before it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/methods/layer_tensors.h"
#include "traces/format/schema.pb.h"

namespace stallcast::methods {

/// Of the queries of one KV head: the tokens that they see, a scale and a cap of logits, and sinks.
class AttentionRule {
 public:
  /// What the trace says of the layer that the head is of, which may be nothing.
  AttentionRule(const traces::proto::Model& model, const LayerTensors::Source& source);

  /// The first token that the query at `token` sees: 0, or where its window or chunk begins.
  int64_t FirstSeen(int64_t token) const;
  /// Caps `count` logits, given as dot products, in place. Returns the scale that is left to apply:
  /// the layer's, or `scale` where it has none of its own.
  float Cap(float scale, int64_t count, float* dots) const;
  /// The logit without a value that joins the softmax of the group's query head `member`; minus
  /// infinity: none. Groups larger than the trace's repeat its sinks, as they do its queries.
  double Sink(int member) const;

 private:
  int64_t window_ = 0, chunk_ = 0;  // 0: none
  float soft_cap_ = 0, scale_ = 0;  // 0: none
  std::vector<double> sinks_;       // by the trace's query heads of the group
};

/// MeasureAttention() under the rules that the trace's model has: the mass is of the tokens that
/// queries see, and sinks take their share of the outputs, not of the mass.
AttentionFidelity MeasureAttention(const LayerTensors& tensors, const traces::proto::Model& model,
                                   const AttendedRanges& attended);

}  // namespace stallcast::methods
