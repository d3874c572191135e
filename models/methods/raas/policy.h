// RaaS's policy: milestones stay while they are attended.
#pragma once

#include "models/methods/method.h"
#include "models/methods/raas/params.h"

namespace stallcast::methods {

/// In every step the pages of a KV head that are full get the step as their time if the group's
/// mean softmax over their min-max scores is above alpha. When a page too many has come, the one of
/// the oldest time goes, of two as old the one of lower score in that step. A prompt that is not
/// pinned is cut to the pages that its last query scores highest.
class RaasPolicy final : public Policy {
 public:
  explicit RaasPolicy(const RaasParams& params) : params_(params) {}
  Unit unit() const override { return {"page", static_cast<int32_t>(params_.page)}; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  RaasParams params_;
};

}  // namespace stallcast::methods
