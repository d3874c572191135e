#include "models/methods/rkv/plan.h"

namespace stallcast::methods {
namespace {

using plan::Purpose;
using plan::Role;

class RkvPlan : public PlanWriter {
 public:
  RkvPlan(DecoderPlan& plan, const RkvParams& params)
      : plan_(plan), builder_(plan.builder), model_(plan.input.model), params_(params) {}

  void Attention(int step, int layer) override {
    if (layer < params_.dense_layers) {
      plan_.AttendAll(step, layer);
      return;
    }
    const int64_t prompt = plan_.input.prompt_tokens;
    if (params_.Compresses(prompt, step)) Compress(layer, params_.Before(prompt, step));
    const int64_t tokens = params_.Attended(prompt, step);
    plan_.Attend(layer, plan_.kv_rows() * tokens, tokens);
  }

  void AfterPrefillAttention(int layer) override {
    if (layer < params_.dense_layers || plan_.input.prompt_tokens <= params_.budget) return;
    Compress(layer, plan_.input.prompt_tokens);
  }

 private:
  // Attention of the window; cosines of all pairs of keys, of which one pass finds the last similar
  // one of each row and another the means; the best, which move together.
  void Compress(int layer, int64_t tokens) {
    const int64_t rows = plan_.kv_rows();
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.compute, plan::WindowScore{rows, rows * tokens, params_.window,
                                                  model_.group(), model_.head_dim});
    builder_.Run(plan_.compute, plan::Gemm{rows * tokens, tokens, model_.head_dim});
    for (const Purpose pass : {Purpose::kPassList, Purpose::kPassMean}) {
      builder_.For(pass).Run(plan_.compute,
                             plan::Layout{rows * tokens, tokens * llm::kActivationBytes});
    }
    builder_.Run(plan_.compute,
                 plan::TopK{rows, tokens - params_.window, params_.budget - params_.window});
    builder_.SetRole(Role::kLayout);
    builder_.For(Purpose::kDropEvicted)
        .Run(plan_.compute, plan::Layout{2 * rows * params_.budget, model_.KvRowBytes()});
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  RkvParams params_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewRkvPlan(DecoderPlan& plan, const RkvParams& params) {
  return std::make_unique<RkvPlan>(plan, params);
}

}  // namespace stallcast::methods
