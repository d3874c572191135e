#include "models/methods/h2o/plan.h"

#include <algorithm>

namespace stallcast::methods {
namespace {

using plan::Role;

// Attention kernels keep no weights, so they are made a second time. The new token takes the place
// of the one dropped: RopeAppend writes it there.
class H2oPlan : public PlanWriter {
 public:
  H2oPlan(DecoderPlan& plan, const H2oParams& params)
      : plan_(plan), builder_(plan.builder), model_(plan.input.model), params_(params) {
    if (params.worth == H2oParams::Worth::kAccumulated) {
      plan.notes.emplace_back(
          "attention of a prompt is accumulated over those of its queries that the trace has");
    }
  }

  void Attention(int step, int layer) override {
    if (layer < params_.dense_layers) {
      plan_.AttendAll(step, layer);
      return;
    }
    const int64_t tokens = std::min(plan_.Context(step), params_.budget);
    plan_.Attend(layer, plan_.kv_rows() * tokens, tokens);
    Score(tokens, model_.queries);
    // Which token the next one replaces.
    if (plan_.Context(step) < params_.budget) return;
    builder_.Run(plan_.compute, plan::TopK{plan_.kv_rows(), tokens, 1});
  }

  void AfterPrefillAttention(int layer) override {
    const int64_t prompt = plan_.input.prompt_tokens;
    if (layer < params_.dense_layers) return;
    builder_.At(layer, Role::kSelection);
    // A query gives weights to those before it: half as many as all pairs, if all count.
    if (params_.worth == H2oParams::Worth::kLast) {
      Score(prompt, 1);
    } else {
      Score((prompt + 1) / 2, prompt);
    }
    if (prompt <= params_.budget) return;
    builder_.Run(plan_.compute, plan::TopK{plan_.kv_rows(), prompt - params_.recent,
                                           params_.budget - params_.recent});
    builder_.SetRole(Role::kLayout);
    builder_.Run(plan_.compute,
                 plan::Layout{2 * plan_.kv_rows() * params_.budget, model_.KvRowBytes()});
  }

 private:
  void Score(int64_t tokens, int64_t queries) {
    builder_.SetRole(Role::kSelection);
    builder_.Run(plan_.compute,
                 plan::ObservationScore{plan_.kv_rows(), model_.group(),
                                        static_cast<int32_t>(queries), model_.head_dim, tokens});
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  H2oParams params_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewH2oPlan(DecoderPlan& plan, const H2oParams& params) {
  return std::make_unique<H2oPlan>(plan, params);
}

}  // namespace stallcast::methods
