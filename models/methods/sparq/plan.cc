#include "models/methods/sparq/plan.h"

#include <algorithm>

namespace stallcast::methods {
namespace {

using plan::Role;

// Keys lie in memory twice: by token for attention, by channel for scores.
class SparQPlan : public PlanWriter {
 public:
  SparQPlan(DecoderPlan& plan, const SparQParams& params)
      : plan_(plan), builder_(plan.builder), model_(plan.input.model), params_(params) {
    plan.notes.emplace_back("what SparQ's mean value gives is in no mass and no error");
  }

  void Attention(int step, int layer) override {
    const int64_t context = plan_.Context(step);
    if (layer < params_.dense_layers || context <= params_.budget) {
      plan_.AttendAll(step, layer);
      return;
    }
    const int64_t rows = plan_.kv_rows();
    const auto channels =
        static_cast<int32_t>(std::min<int64_t>(params_.channels, model_.head_dim));
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.compute, plan::TopK{rows, model_.head_dim, channels});
    builder_.Run(plan_.compute, plan::Score{context, rows, model_.group(), /*vectors=*/1, channels,
                                            plan::Score::Pool::kSoftmax});
    builder_.Run(plan_.compute, plan::TopK{rows, context, params_.budget - params_.window});
    builder_.SetRole(Role::kAttention);
    plan_.Attend(plan::DecodeAttention{.kv_tokens = rows * params_.budget,
                                       .kv_tokens_max = params_.budget,
                                       .sequences = plan_.input.batch,
                                       .kv_heads = model_.kv_heads,
                                       .group = model_.group(),
                                       .head_dim = model_.head_dim,
                                       .cache_tokens = context});
    builder_.Run(plan_.compute, plan::MergeStates{rows * model_.group(), model_.head_dim});
  }

  void BeforePrefillAttention(int layer) override {
    if (layer < params_.dense_layers) return;
    builder_.At(layer, Role::kIndex);
    builder_.Run(plan_.compute,
                 plan::Layout{plan_.kv_rows() * plan_.input.prompt_tokens, model_.KvRowBytes()});
  }

 private:
  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  SparQParams params_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewSparQPlan(DecoderPlan& plan, const SparQParams& params) {
  return std::make_unique<SparQPlan>(plan, params);
}

}  // namespace stallcast::methods
