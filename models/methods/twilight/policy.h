// Twilight's policy: top-p over estimated weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/methods/method.h"
#include "models/methods/twilight/params.h"

namespace stallcast::methods {

/// Each query head takes Quest's pages, estimates its softmax over their tokens from keys of few
/// bits (between the least and largest channel of each key), and attends the tokens of most weight
/// until they hold `top_p` of it. Which tokens those are is not logged, only how many.
class TwilightPolicy final : public Policy {
 public:
  explicit TwilightPolicy(const TwilightParams& params) : params_(params) {}
  Unit unit() const override { return {"token", 1}; }
  traces::SetsOf sets_of() const override { return traces::SetsOf::kQueryHead; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  TwilightParams params_;
};

/// The fewest of the ascending `ids` whose weights, all of which sum to 1, sum to `share`: those of
/// most weight, of two alike the smaller id first. Ascending, at least one.
std::vector<uint32_t> TopP(std::span<const uint32_t> ids, std::span<const double> weights,
                           double share);

}  // namespace stallcast::methods
