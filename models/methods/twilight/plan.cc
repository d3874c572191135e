#include "models/methods/twilight/plan.h"

#include <algorithm>

namespace stallcast::methods {
namespace {

using plan::Purpose;
using plan::Role;

class TwilightPlan : public PlanWriter {
 public:
  TwilightPlan(DecoderPlan& plan, const TwilightParams& params)
      : plan_(plan), builder_(plan.builder), model_(plan.input.model), params_(params) {}

  void Attention(int step, int layer) override {
    if (layer < params_.dense_layers) {
      plan_.AttendAll(step, layer);
      return;
    }
    const auto access = plan_.Access(step, layer);
    const int64_t context = plan_.Context(step);
    const int64_t pages = (context + params_.page - 1) / params_.page;
    const int64_t offered = std::min(context, params_.base);
    const int64_t rows = int64_t{plan_.input.batch} * model_.query_heads;
    builder_.At(layer, Role::kSelection);
    if (context > params_.base) {
      builder_.For(Purpose::kChooseUnits)
          .Run(plan_.compute, plan::Score{pages, plan_.kv_rows(), model_.group(), /*vectors=*/2,
                                          model_.head_dim, plan::Score::Pool::kNone});
      builder_.For(Purpose::kChooseUnits)
          .Run(plan_.compute, plan::TopK{rows, pages, params_.pages()});
    }
    // Keys of few bits with a scale and an offset: as many bytes as keys of fewer channels.
    const auto channels = static_cast<int32_t>(model_.head_dim * params_.bits / 16 + 2);
    builder_.For(Purpose::kListAttended)
        .Run(plan_.compute,
             plan::Score{offered, rows, 1, /*vectors=*/1, channels, plan::Score::Pool::kNone});
    builder_.For(Purpose::kListAttended)
        .Run(plan_.compute, plan::TopK{rows, offered, access.attended_tokens / rows});
    builder_.SetRole(Role::kAttention);
    plan_.Attend(plan::DecodeAttention{.kv_tokens = access.attended_tokens,
                                       .kv_tokens_max = access.attended_tokens_max,
                                       .sequences = plan_.input.batch,
                                       .kv_heads = model_.query_heads,
                                       .group = 1,
                                       .head_dim = model_.head_dim,
                                       .cache_tokens = context});
  }

  bool KeepsBounds(int layer) const override { return layer >= params_.dense_layers; }

  void BeforePrefillAttention(int layer) override {
    if (layer < params_.dense_layers) return;
    const int64_t tokens = plan_.input.prompt_tokens;
    builder_.At(layer, Role::kIndex);
    builder_.Run(
        plan_.compute,
        plan::Summarize{plan_.kv_rows() * ((tokens + params_.page - 1) / params_.page),
                        static_cast<int32_t>(params_.page), /*vectors=*/2, model_.head_dim});
    // Keys of few bits.
    builder_.Run(plan_.compute, plan::Layout{plan_.kv_rows() * tokens, model_.KvRowBytes()});
  }

 private:
  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  TwilightParams params_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewTwilightPlan(DecoderPlan& plan, const TwilightParams& params) {
  return std::make_unique<TwilightPlan>(plan, params);
}

}  // namespace stallcast::methods
