// RetroInfer's policy: clusters by the attention that their centroids get.
#pragma once

#include "models/methods/method.h"
#include "models/methods/retroinfer/params.h"

namespace stallcast::methods {

/// As the public code: clusters by segment; softmax over centroids for each query head, summed over
/// the group; the best are attended exactly, from an LRU cache of clusters a KV head, which starts
/// empty. Every `update` decoded tokens those that have left the window become clusters. Mass and
/// error are of the tokens attended exactly: the estimation zone counts as nothing.
///
/// Clusters are those of k-means in 8-bit whole numbers (common/key_clusters.h), not on centred
/// keys of length 1; a key stays in its segment.
class RetroInferPolicy final : public Policy {
 public:
  explicit RetroInferPolicy(const RetroInferParams& params) : params_(params) {}
  Unit unit() const override { return {"cluster", 0}; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  RetroInferParams params_;
};

}  // namespace stallcast::methods
