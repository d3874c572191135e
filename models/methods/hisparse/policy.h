// HiSparse's policy: pages or tokens by Quest's bounds, fetched into a buffer of fixed size.
#pragma once

#include "models/methods/hisparse/params.h"
#include "models/methods/method.h"

namespace stallcast::methods {

/// Each KV head attends the pages that Quest's bounds choose and the newest page. Those that its
/// buffer lacks are fetched; by the rule of replacement others leave, never one that the step
/// attends. A page that is full is in the buffer and on the host. The prompt's pages have come into
/// the buffer one after the other.
class HiSparsePolicy final : public Policy {
 public:
  explicit HiSparsePolicy(const HiSparseParams& params) : params_(params) {}
  Unit unit() const override {
    return {params_.page == 1 ? "token" : "page", static_cast<int32_t>(params_.page)};
  }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  HiSparseParams params_;
};

}  // namespace stallcast::methods
