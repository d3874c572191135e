#include "models/methods/snapkv/plan.h"

namespace stallcast::methods {
namespace {

using plan::Role;

class SnapKvPlan : public PlanWriter {
 public:
  SnapKvPlan(DecoderPlan& plan, const SnapKvParams& params)
      : plan_(plan), builder_(plan.builder), model_(plan.input.model), params_(params) {}

  void Attention(int step, int layer) override {
    const int64_t prompt = plan_.input.prompt_tokens;
    if (layer < params_.dense_layers || prompt <= params_.budget) {
      plan_.AttendAll(step, layer);
      return;
    }
    const int64_t tokens = params_.Kept(prompt) + step + 1;
    builder_.At(layer, Role::kAttention);
    plan_.Attend(plan::DecodeAttention{Rows() * tokens, tokens, plan_.input.batch, Heads(),
                                       model_.query_heads / Heads(), model_.head_dim});
  }

  // The public code scores after the prompt's attention, with products of its own.
  void AfterPrefillAttention(int layer) override {
    const int64_t prompt = plan_.input.prompt_tokens;
    if (layer < params_.dense_layers || prompt <= params_.budget) return;
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.compute, plan::WindowScore{Rows(), Rows() * prompt, params_.window,
                                                  model_.query_heads / Heads(), model_.head_dim});
    builder_.Run(plan_.compute,
                 plan::TopK{Rows(), prompt - params_.window, params_.budget - params_.window});
    builder_.SetRole(Role::kLayout);
    builder_.Run(plan_.compute, plan::Layout{2 * Rows() * params_.budget, model_.KvRowBytes()});
  }

 private:
  int32_t Heads() const {
    return params_.group == SnapKvParams::Group::kQueryHead ? model_.query_heads : model_.kv_heads;
  }
  int64_t Rows() const { return int64_t{plan_.input.batch} * Heads(); }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  SnapKvParams params_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewSnapKvPlan(DecoderPlan& plan, const SnapKvParams& params) {
  return std::make_unique<SnapKvPlan>(plan, params);
}

}  // namespace stallcast::methods
