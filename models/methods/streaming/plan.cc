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

 private:
  DecoderPlan& plan_;
  int64_t budget_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewStreamingPlan(DecoderPlan& plan, const StreamingParams& params) {
  return std::make_unique<StreamingPlan>(plan, params);
}

}  // namespace stallcast::methods
