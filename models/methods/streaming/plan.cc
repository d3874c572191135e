#include "models/methods/streaming/plan.h"

#include <algorithm>

namespace stallcast::methods {
namespace {

class StreamingPlan : public PlanWriter {
 public:
  StreamingPlan(DecoderPlan& plan, const StreamingParams& params)
      : plan_(plan), budget_(params.budget) {}

  void Attention(int step, int layer) override {
    const int64_t tokens = std::min(plan_.Context(step), budget_);
    plan_.Attend(layer, plan_.kv_rows() * tokens, tokens);
  }

  void AfterPrefillAttention(int layer) override {
    // Sink and window go to their places.
    const llm::Model& m = plan_.input.model;
    const int64_t tokens = std::min(plan_.input.prompt_tokens, budget_);
    plan_.builder.At(layer, plan::Role::kLayout);
    plan_.builder.Run(plan_.compute, plan::Layout{plan_.kv_rows(),
                                                  tokens * m.KvBytesPerTokenLayer() / m.kv_heads});
  }

 private:
  DecoderPlan& plan_;
  int64_t budget_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewStreamingPlan(DecoderPlan& plan, const StreamingParams& params) {
  return std::make_unique<StreamingPlan>(plan, params);
}

}  // namespace stallcast::methods
