#include "models/methods/full/plan.h"

#include "models/methods/transformers_decoder.h"

namespace stallcast::methods {
namespace {

class FullPlan : public PlanWriter {
 public:
  explicit FullPlan(DecoderPlan& plan) : plan_(plan) {}
  void Attention(int step, int layer) override { plan_.AttendAll(step, layer); }

 private:
  DecoderPlan& plan_;
};

// transformers with either of its caches.
class TransformersPlan : public PlanWriter {
 public:
  TransformersPlan(DecoderPlan& plan, const FullParams& params) : plan_(plan), params_(params) {
    if (Static() || plan.input.host != plan::Host::kGraph) return;
    throw UsageError("a cache that grows by concatenation has another address each step", "--host",
                     "no CUDA graph can hold it: use -p cache=static");
  }
  Decoder decoder() const override { return Decoder::kTransformers; }

  // The mask of a StaticCache is made anew: four ranges of positions, two of them moved, and their
  // comparison; before that any() and sum() tell how many tokens there are.
  void BeginStep(int /*step*/) override {
    if (!Static()) return;
    constexpr int kMaskOperators = 9;
    const Bytes mask = int64_t{plan_.input.batch} * Tokens();
    for (int i = 0; i < kMaskOperators; ++i) {
      plan_.builder.Run(plan_.compute, plan::Eager{.read = mask, .written = mask, .slices = 2});
    }
  }

  void Attention(int step, int layer) override {
    plan_.builder.At(layer, plan::Role::kLayout);
    if (!Static()) {
      ConcatenateCache(plan_, int64_t{plan_.input.batch} * plan_.Context(step));
      AttendBySdpa(plan_, step, layer);
      return;
    }
    // The new keys and values go to their places.
    const Bytes token = plan_.input.batch * plan_.input.model.KvBytesPerTokenLayer() / 2;
    for (int of = 0; of < 2; ++of) {
      plan_.builder.Run(
          plan_.compute,
          plan::Eager{.op = plan::Operator::kLaunch, .read = token, .written = token});
    }
    AttendExpanded(plan_, layer, Tokens());
  }

 private:
  bool Static() const { return params_.cache == FullParams::Cache::kStatic; }
  int64_t Tokens() const { return plan_.input.prompt_tokens + plan_.input.steps; }

  DecoderPlan& plan_;
  FullParams params_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewFullPlan(DecoderPlan& plan, const FullParams& params) {
  if (plan.input.as_run) return std::make_unique<TransformersPlan>(plan, params);
  return std::make_unique<FullPlan>(plan);
}

}  // namespace stallcast::methods
