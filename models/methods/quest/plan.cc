#include "models/methods/quest/plan.h"

namespace stallcast::methods {
namespace {

using plan::Role;

// Bounds are kept up to date by the append kernel; a sparse layer adds scores and top-k.
class QuestPlan : public PlanWriter {
 public:
  QuestPlan(DecoderPlan& plan, const QuestParams& params) : plan_(plan), params_(params) {}

  void Attention(int step, int layer) override {
    if (layer < params_.dense_layers) {
      plan_.AttendAll(step, layer);
      return;
    }
    const llm::Model& m = plan_.input.model;
    const auto access = plan_.Access(step, layer);
    const int64_t pages = (plan_.Context(step) + params_.page - 1) / params_.page;
    const int heads = plan_.log.heads();
    plan_.builder.At(layer, Role::kSelection);
    plan_.builder.Run(plan_.compute,
                      plan::Score{pages, plan_.kv_rows(), m.group(), /*vectors=*/2, m.head_dim});
    plan_.builder.Run(plan_.compute, plan::TopK{int64_t{plan_.input.batch} * heads, pages,
                                                std::min(pages, params_.budget_pages())});
    plan_.builder.SetRole(Role::kAttention);
    plan_.builder.Run(
        plan_.compute,
        plan::DecodeAttention{access.attended_tokens, access.attended_tokens_max, plan_.input.batch,
                              heads, m.query_heads / heads, m.head_dim});
  }

  void BeforePrefillAttention(int layer) override {
    if (layer < params_.dense_layers) return;
    const int64_t pages = (plan_.input.prompt_tokens + params_.page - 1) / params_.page;
    plan_.builder.At(layer, Role::kIndex);
    plan_.builder.Run(plan_.compute,
                      plan::Summarize{plan_.kv_rows() * pages, static_cast<int32_t>(params_.page),
                                      /*vectors=*/2, plan_.input.model.head_dim});
  }

 private:
  DecoderPlan& plan_;
  QuestParams params_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewQuestPlan(DecoderPlan& plan, const QuestParams& params) {
  return std::make_unique<QuestPlan>(plan, params);
}

}  // namespace stallcast::methods
