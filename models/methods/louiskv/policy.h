// LouisKV's selection: units by their centroids, retrieved where the queries drift (paper, 4.1, 4.2
// and appendices B and C).
#pragma once

#include "models/methods/louiskv/params.h"
#include "models/methods/method.h"

namespace stallcast::methods {

/// Units are numbered clusters first (empty ones keep their number), then segments in the order in
/// which they leave the local buffer. A retrieval ranks them by the mean over the group of
/// softmax(q . centroid / sqrt(d)), centroids in bf16, and takes whole units in that order while
/// they fit the budget, then as much of the next as fits, its first tokens (the paper leaves open
/// how the budget ends); so it always brings as many tokens as there is room for. All are loaded
/// anew. A step first retrieves, from what the steps before offloaded, then takes its token into
/// the local buffer. A segment that leaves while there is room on the GPU stays.
///
/// All heads of a layer share its boundaries: the mean cosine over all query heads under tau. In
/// the log, kTriggered marks the steps that begin a segment by it (or by the stride), kSelectedNow
/// those that retrieve.
class LouisKvPolicy final : public Policy {
 public:
  explicit LouisKvPolicy(const LouisKvParams& params) : params_(params) {}
  /// Units differ in size.
  Unit unit() const override {
    return params_.units == LouisKvParams::Units::kPages ? Unit{"page", 0} : Unit{"cluster", 0};
  }
  traces::SetsOf sets_of() const override {
    return params_.group == LouisKvParams::Group::kQueryHead ? traces::SetsOf::kQueryHead
                                                             : traces::SetsOf::kKvHead;
  }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  LouisKvParams params_;
};

}  // namespace stallcast::methods
