// PRKV's selection: a static set of tokens that the last queries attend most, and pages of the rest
// by their bounding volumes (paper, 4.1 and appendix G).
#pragma once

#include "models/methods/method.h"
#include "models/methods/prkv/params.h"

namespace stallcast::methods {

/// Keys and values before the window are kept in an order of their own, cut into pages. At the end
/// of prefill, and then before the attention of every `update`-th step, a KV head's static set is
/// chosen anew by the queries of the window and moved to the front; all other tokens keep their
/// order. Static pages stay on the GPU until then. Of the others each step selects, by bounds in
/// bf16, as many as the budget has room for, and only the missing ones move (the paper leaves open
/// what stays on the GPU). A step that restructures has all pages at hand, so it recalls none.
///
/// As elsewhere the window ends with the partial page, so that the GPU never holds more than the
/// budget; the queries that observe are those of the tokens in it, as far as the trace has them. A
/// context that fits the budget is left as it is. Units are pages in the order of their time, the
/// static ones first; kTriggered marks steps that choose the static set.
class PrkvPolicy final : public Policy {
 public:
  explicit PrkvPolicy(const PrkvParams& params) : params_(params) {}
  Unit unit() const override { return {"page", static_cast<int32_t>(params_.page)}; }
  int64_t prompt_queries() const override { return params_.window; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  PrkvParams params_;
};

}  // namespace stallcast::methods
