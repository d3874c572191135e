#include "models/methods/common/configured_method.h"
#include "models/methods/streaming/plan.h"
#include "models/methods/streaming/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "streaming";

const ParamTable<StreamingParams>& Table() {
  using P = StreamingParams;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("budget", &P::budget, "tokens", 1, 1 << 30, Affects::kSelection,
                   "tokens kept, sink included; the window is the rest", "2,048 as the others")
          .Integer("sink", &P::sink, "tokens", 0, 1 << 20, Affects::kSelection, "first tokens kept",
                   "StreamingLLM: 4");
  return table;
}

class StreamingMethod final : public ConfiguredMethod<StreamingParams> {
 public:
  using ConfiguredMethod::ConfiguredMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<StreamingPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewStreamingPlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    return {.gpu_kv = batch * std::min(context, params().budget) * model.KvBytesPerToken()};
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const StreamingParams params = Table().Parse(values);
  CheckBudget(kName, params.budget, params.sink + 1, "the sink and one token");
  return std::make_unique<StreamingMethod>(Table(), params);
}

}  // namespace

MethodInfo Streaming() {
  return {.name = kName,
          .title = "StreamingLLM",
          .summary = "first and last tokens on the GPU, the rest dropped",
          .source = "StreamingLLM",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
