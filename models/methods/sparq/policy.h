// SparQ's policy: estimated weights from a few channels.
#pragma once

#include "models/methods/method.h"
#include "models/methods/sparq/params.h"

namespace stallcast::methods {

/// As the paper, with groups: the channels of a KV head are those in which the absolute values of
/// its group's queries sum to most; a query's products over them, scaled by the share of its size
/// that they hold, give softmax weights, the mean over the group; the best tokens before the window
/// are attended. What the mean value adds for the rest is in no mass and no error.
class SparQPolicy final : public Policy {
 public:
  explicit SparQPolicy(const SparQParams& params) : params_(params) {}
  Unit unit() const override { return {"token", 1}; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  SparQParams params_;
};

}  // namespace stallcast::methods
