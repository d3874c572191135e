// ClusterKV's policy: clusters by their centroids, best first, until the budget is full.
#pragma once

#include "models/methods/clusterkv/params.h"
#include "models/methods/method.h"

namespace stallcast::methods {

/// As the public code: each query head takes clusters of its KV head in order of its query's
/// product with their centroids, and of the last as much as fits. What it has chosen stays on the
/// GPU, so the next step fetches only what is new. Decoded tokens are attended until `update` of
/// them are clustered.
///
/// Clusters are those of k-means in 8-bit whole numbers (common/key_clusters.h), not by cosine.
class ClusterKvPolicy final : public Policy {
 public:
  explicit ClusterKvPolicy(const ClusterKvParams& params) : params_(params) {}
  Unit unit() const override { return {"cluster", 0}; }
  traces::SetsOf sets_of() const override { return traces::SetsOf::kQueryHead; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  ClusterKvParams params_;
};

}  // namespace stallcast::methods
