// What any method is measured against: choices made with the true attention weights.
#pragma once

#include <cstdint>

#include "models/methods/method.h"

namespace stallcast::methods {

/// Chooses `budget` tokens a KV head by their true attention weight, the mean over the group's
/// query heads. No choice of as many tokens covers more attention mass.
class TokenReference final : public Policy {
 public:
  enum class Choice : uint8_t {
    kOracle,  ///< of the step's own query
    /// Of the query before, and the newest token: what reuse without any index could reach. A trace
    /// without that query starts from its own.
    kReuse,
  };

  TokenReference(int64_t budget, Choice choice) : budget_(budget), choice_(choice) {}
  Unit unit() const override { return {"token", 1}; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  int64_t budget_;
  Choice choice_;
};

}  // namespace stallcast::methods
