// SnapKV's policy: one choice at the end of the prompt.
#pragma once

#include <cstdint>
#include <vector>

#include "models/methods/method.h"
#include "models/methods/snapkv/params.h"

namespace stallcast::methods {

/// Tokens of a prompt that query heads [first_head, end_head) keep together, ascending.
std::vector<uint32_t> KeptOfPrompt(const LayerTensors& tensors, const SnapKvParams& params,
                                   int first_head, int end_head);

/// As the public code: softmax of the window's queries over all tokens that they see, summed over
/// queries, averaged over `kernel` neighbours; the best beside the window stay. A trace without
/// prompt queries is observed by the first decoded one.
class SnapKvPolicy final : public Policy {
 public:
  explicit SnapKvPolicy(const SnapKvParams& params) : params_(params) {}
  Unit unit() const override { return {"token", 1}; }
  traces::SetsOf sets_of() const override {
    return params_.group == SnapKvParams::Group::kQueryHead ? traces::SetsOf::kQueryHead
                                                            : traces::SetsOf::kKvHead;
  }
  int64_t prompt_queries() const override { return params_.window; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  SnapKvParams params_;
};

}  // namespace stallcast::methods
