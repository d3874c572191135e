// ParisKV's selection: collisions choose candidates, estimates from 4-bit codes the tokens.
#pragma once

#include "models/methods/method.h"
#include "models/methods/pariskv/params.h"

namespace stallcast::methods {

/// In every step a selection head attends sink, local window, update buffer and the `topk` tokens
/// between sink and window whose products with its query are estimated largest; all of them come
/// from the host, nothing of the step before is kept. Contexts under first_sparse() attend
/// everything.
class ParisKvPolicy final : public Policy {
 public:
  explicit ParisKvPolicy(const ParisKvParams& params) : params_(params) {}
  Unit unit() const override { return {"token", 1}; }
  traces::SetsOf sets_of() const override {
    return params_.query == ParisKvParams::Query::kQueryHead ? traces::SetsOf::kQueryHead
                                                             : traces::SetsOf::kKvHead;
  }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  ParisKvParams params_;
};

}  // namespace stallcast::methods
