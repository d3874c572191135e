// H2O's policy: one token is dropped for each that comes.
#pragma once

#include "models/methods/h2o/params.h"
#include "models/methods/method.h"

namespace stallcast::methods {

/// Each KV head keeps what its group's queries have attended most (mean over the group, summed over
/// queries) and its last tokens. Attention of a prompt is that of the queries that the trace has of
/// it; without any, of the first decoded one.
class H2oPolicy final : public Policy {
 public:
  explicit H2oPolicy(const H2oParams& params) : params_(params) {}
  Unit unit() const override { return {"token", 1}; }
  int64_t prompt_queries() const override;
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  H2oParams params_;
};

}  // namespace stallcast::methods
