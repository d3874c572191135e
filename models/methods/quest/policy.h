// Quest's selection: pages by the upper bound of their keys' products with the query.
#pragma once

#include "models/methods/method.h"
#include "models/methods/quest/params.h"

namespace stallcast::methods {

/// As the published kernel: min-max summaries, raw scores, the last page always kept and the rest
/// of the budget chosen anew in every step. No sink rule. Nothing is recalled: all KV is on the
/// GPU.
class QuestPolicy final : public Policy {
 public:
  explicit QuestPolicy(const QuestParams& params) : params_(params) {}
  Unit unit() const override { return {"page", static_cast<int32_t>(params_.page)}; }
  traces::SetsOf sets_of() const override {
    return params_.group == QuestParams::Group::kQueryHead ? traces::SetsOf::kQueryHead
                                                           : traces::SetsOf::kKvHead;
  }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  QuestParams params_;
};

}  // namespace stallcast::methods
