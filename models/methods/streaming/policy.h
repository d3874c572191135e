// StreamingLLM's selection: none. Sink and window are attended, the rest is dropped.
#pragma once

#include "models/methods/method.h"
#include "models/methods/streaming/params.h"

namespace stallcast::methods {

class StreamingPolicy final : public Policy {
 public:
  explicit StreamingPolicy(const StreamingParams& params) : params_(params) {}
  Unit unit() const override { return {"token", 1}; }
  traces::SetsOf sets_of() const override { return traces::SetsOf::kLayer; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  StreamingParams params_;
};

}  // namespace stallcast::methods
