// FreeKV's selection: speculative retrieval with the previous step's pages, corrected by query
// similarity (paper, sections 3.2 and 3.3).
#pragma once

#include "models/methods/freekv/params.h"
#include "models/methods/method.h"

namespace stallcast::methods {

/// In step i a KV head attends the pages recalled with q_{i-1}, while the pages that q_i selects
/// are recalled for step i+1. A head whose mean cosine between q_i and q_{i-1} over its group is
/// under tau recalls before attention instead. The selection fills the whole selectable region, so
/// only misses move. Queries of adjacent steps are compared whether or not the last one was
/// corrected. The first step attends what the last prompt query selected.
class FreeKvPolicy final : public Policy {
 public:
  explicit FreeKvPolicy(const FreeKvParams& params) : params_(params) {}
  Unit unit() const override { return {"page", static_cast<int32_t>(params_.page)}; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  FreeKvParams params_;
};

}  // namespace stallcast::methods
