// PQCache's policy: tokens by estimated attention, and a cache of the blocks used most.
#pragma once

#include "models/methods/method.h"
#include "models/methods/pqcache/params.h"

namespace stallcast::methods {

/// As the public code: each KV head clusters its prompt's keys in each subspace; a token's score is
/// the sum of its centroids' products with the query, softmax for each query head, summed over the
/// group; a number of tokens that the prompt fixes is attended. Later keys get the prompt's nearest
/// centroids. A layer's heads share a cache of blocks: of those in it and of those that the step
/// used most, as many as it holds, the ones used most so far stay.
///
/// Clusters are those of k-means in 8-bit whole numbers (common/key_clusters.h), with as many
/// assignments whatever the prompt.
class PqCachePolicy final : public Policy {
 public:
  explicit PqCachePolicy(const PqCacheParams& params) : params_(params) {}
  Unit unit() const override { return {"token", 1}; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  PqCacheParams params_;
};

}  // namespace stallcast::methods
