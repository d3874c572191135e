// ArkVale's selection: cuboid-mean page scores, a GPU cache of pages, recall of missing top-k
// pages.
#pragma once

#include "models/methods/arkvale/params.h"
#include "models/methods/method.h"

namespace stallcast::methods {

/// As the public code. Every step ranks the pages outside sink and window by the mean of raw scores
/// (published: over all query heads of the layer; FreeKV's variant: over a KV head's group),
/// recalls the top-k that the GPU lacks in place of the lowest-scored cached pages, and attends all
/// cached pages. A page that leaves the window is dropped unless a slot is free.
class ArkValePolicy final : public Policy {
 public:
  explicit ArkValePolicy(const ArkValeParams& params) : params_(params) {}
  Unit unit() const override { return {"page", static_cast<int32_t>(params_.page)}; }
  traces::SetsOf sets_of() const override {
    return params_.variant == ArkValeParams::Variant::kPublished ? traces::SetsOf::kLayer
                                                                 : traces::SetsOf::kKvHead;
  }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  ArkValeParams params_;
};

}  // namespace stallcast::methods
