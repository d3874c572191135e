// KV heads of two kinds: some keep everything, the others a sink and a window (DuoAttention,
// RazorAttention).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "models/methods/common/configured_method.h"
#include "models/methods/decoder_plan.h"
#include "models/methods/method.h"

namespace stallcast::methods {

struct HeadKinds {
  double share = 0.5;         ///< KV heads of a layer that keep everything
  int64_t sink = 0;           ///< first tokens that the others keep
  int64_t window = 0;         ///< last tokens that the others keep
  double window_share = 0;    ///< of the prompt, where that is more
  int64_t observe = 64;       ///< last prompt queries that tell which heads need everything
  bool compensation = false;  ///< the others have a token for what they dropped
  bool two_calls = false;     ///< an attention call a kind, and their outputs side by side

  /// Heads of `heads` that keep everything.
  int Whole(int heads) const { return static_cast<int>(std::ceil(share * heads - 1e-9)); }
  int64_t Window(int64_t prompt) const {
    return std::max(window, static_cast<int64_t>(window_share * static_cast<double>(prompt)));
  }
  /// Tokens that a head of the others keeps at a context.
  int64_t Kept(int64_t prompt, int64_t context) const {
    return std::min(context, sink + Window(prompt));
  }
};

/// The heads that keep everything, by KV head: the `Whole()` ones whose last prompt queries give
/// most weight to what sink and window leave out. The papers' patterns are of a model, trained
/// (DuoAttention) or found on repeated random tokens (RazorAttention), over all layers together.
std::vector<bool> WholeHeads(const LayerTensors& tensors, const HeadKinds& kinds);

/// Attends everything or sink and window, a head each. A compensation token counts as nothing: it
/// is no token's own attention.
class HeadKindsPolicy final : public Policy {
 public:
  explicit HeadKindsPolicy(const HeadKinds& kinds) : kinds_(kinds) {}
  Unit unit() const override { return {"token", 1}; }
  int64_t prompt_queries() const override { return kinds_.observe; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  HeadKinds kinds_;
};

std::unique_ptr<PlanWriter> NewHeadKindsPlan(DecoderPlan& plan, const HeadKinds& kinds);

Footprint HeadKindsFootprint(const HeadKinds& kinds, const llm::Model& model, int64_t context,
                             int32_t batch);

/// A method of which only the defaults and the parameters shown are its own; `P` is a HeadKinds.
template <class P>
class HeadKindsMethod final : public ConfiguredMethod<P> {
 public:
  using ConfiguredMethod<P>::ConfiguredMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<HeadKindsPolicy>(this->params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewHeadKindsPlan(plan, this->params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    return HeadKindsFootprint(this->params(), model, context, batch);
  }
};

}  // namespace stallcast::methods
