// WG-KV's three stages: admission by the gate, selection as Quest's, eviction as SnapKV's.
#pragma once

#include "models/methods/method.h"
#include "models/methods/wgkv/params.h"

namespace stallcast::methods {

/// A KV head attends its last `window` tokens and, of those before, the ones that its gate
/// admitted: row i of the vertical-slash mask. A token is promoted to the head's global cache in
/// the step in which it leaves the window.
///
/// With Quest, a head attends as many of its global cache's pages as the budget leaves beside the
/// window: the last, partial one, and those of largest bound for any of its query heads. Logged ids
/// are pages of the global cache as it is in that step.
///
/// With eviction, a step that finds the heads of a layer to keep more than `capacity` tokens on
/// average first evicts, once: each head drops the share `evict_share` of what it keeps, least
/// important first, the window excepted. A cache far above its capacity, as a long prompt leaves
/// it, evicts in every step until it fits. (The paper's limit is over all layers; layers are
/// replayed one by one.) Scores come from the last queries before the step that the trace has.
class WgKvPolicy final : public Policy {
 public:
  explicit WgKvPolicy(const WgKvParams& params) : params_(params) {}
  Unit unit() const override {
    return params_.select == WgKvParams::Select::kQuest
               ? Unit{"page", static_cast<int32_t>(params_.page)}
               : Unit{"token", 1};
  }
  int64_t prompt_queries() const override {
    return params_.evict == WgKvParams::Evict::kSnapKv ? params_.observe : 1;
  }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  WgKvParams params_;
};

}  // namespace stallcast::methods
