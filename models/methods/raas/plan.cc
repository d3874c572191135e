#include "models/methods/raas/plan.h"

#include <algorithm>

namespace stallcast::methods {
namespace {

using plan::Role;

class RaasPlan : public PlanWriter {
 public:
  RaasPlan(DecoderPlan& plan, const RaasParams& params)
      : plan_(plan), builder_(plan.builder), model_(plan.input.model), params_(params) {}

  void Attention(int step, int layer) override {
    if (layer < params_.dense_layers) {
      plan_.AttendAll(step, layer);
      return;
    }
    const int64_t context = plan_.Context(step), prompt = plan_.input.prompt_tokens;
    const int64_t pages = params_.Kept(prompt, context);
    builder_.At(layer, Role::kSelection);
    if (pages > 1) {
      builder_.Run(plan_.compute,
                   plan::Score{pages - 1, plan_.kv_rows(), model_.group(),
                               /*vectors=*/2, model_.head_dim, plan::Score::Pool::kSoftmax});
    }
    // A page begins: the one of the oldest time gives it its place.
    const bool begins = (context - 1) % params_.page == 0;
    if (begins && pages == params_.Kept(prompt, context - 1)) {
      builder_.Run(plan_.compute, plan::TopK{plan_.kv_rows(), pages, 1});
    }
    const int64_t tokens = (pages - 1) * params_.page + (context - 1) % params_.page + 1;
    plan_.Attend(layer, plan_.kv_rows() * tokens, tokens);
  }

  bool KeepsBounds(int layer) const override { return layer >= params_.dense_layers; }

  void BeforePrefillAttention(int layer) override {
    if (layer < params_.dense_layers) return;
    builder_.At(layer, Role::kIndex);
    builder_.Run(plan_.compute, plan::Summarize{plan_.kv_rows() * PromptPages(),
                                                static_cast<int32_t>(params_.page),
                                                /*vectors=*/2, model_.head_dim});
  }

  void AfterPrefillAttention(int layer) override {
    const int64_t kept = params_.Kept(plan_.input.prompt_tokens, plan_.input.prompt_tokens);
    if (layer < params_.dense_layers || kept == PromptPages()) return;
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.compute,
                 plan::Score{PromptPages(), plan_.kv_rows(), model_.group(), /*vectors=*/2,
                             model_.head_dim, plan::Score::Pool::kSoftmax});
    builder_.Run(plan_.compute, plan::TopK{plan_.kv_rows(), PromptPages(), kept});
    builder_.SetRole(Role::kLayout);
    builder_.Run(plan_.compute,
                 plan::Layout{plan_.kv_rows() * kept, params_.page * 2 * model_.KvRowBytes()});
  }

 private:
  int64_t PromptPages() const {
    return (plan_.input.prompt_tokens + params_.page - 1) / params_.page;
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  RaasParams params_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewRaasPlan(DecoderPlan& plan, const RaasParams& params) {
  return std::make_unique<RaasPlan>(plan, params);
}

}  // namespace stallcast::methods
