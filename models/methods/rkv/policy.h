// R-KV's policy: worth = lambda x attention - (1 - lambda) x redundancy.
#pragma once

#include "models/methods/method.h"
#include "models/methods/rkv/params.h"

namespace stallcast::methods {

/// As the public code: a prompt of at least the budget is compressed, and the cache whenever it
/// holds budget + buffer tokens. Attention of a token before the window: softmax of the group's
/// largest logit, mean over the window's queries, the largest of `kernel` neighbours. Redundancy:
/// softmax of the mean cosine with all keys, of which each key's last similar one is left out.
class RkvPolicy final : public Policy {
 public:
  explicit RkvPolicy(const RkvParams& params) : params_(params) {}
  Unit unit() const override { return {"token", 1}; }
  int64_t prompt_queries() const override { return params_.window; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  RkvParams params_;
};

}  // namespace stallcast::methods
