#include "models/methods/common/configured_method.h"
#include "models/methods/sparq/plan.h"
#include "models/methods/sparq/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "sparq";

const ParamTable<SparQParams>& Table() {
  using P = SparQParams;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("budget", &P::budget, "tokens", 1, 1 << 30, Affects::kSelection,
                   "tokens attended, the window included", "2,048 as the others; SparQ 4: 128")
          .Integer("channels", &P::channels, "channels", 1, 1024, Affects::kSelection,
                   "channels of the query by which tokens are chosen", "SparQ 4: 32 of 128")
          .Integer("window", &P::window, "tokens", 1, 1 << 20, Affects::kSelection,
                   "last tokens kept", "SparQ 4: a quarter of its budget of 128; assumed: 128")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, Affects::kSelection,
                   "first layers that attend everything", "SparQ: 0");
  return table;
}

class SparQMethod final : public DenseFirstMethod<SparQParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<SparQPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewSparQPlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const int64_t sparse = std::max<int64_t>(model.layers - params().dense_layers, 0);
    return {.gpu_kv = batch * context * model.KvBytesPerToken(),
            .gpu_index = batch * sparse * context * model.KvBytesPerTokenLayer() / 2};
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const SparQParams params = Table().Parse(values);
  CheckBudget(kName, params.budget, params.window + 1, "the window and one token to choose");
  return std::make_unique<SparQMethod>(Table(), params);
}

}  // namespace

MethodInfo SparQ() {
  return {.name = kName,
          .title = "SparQ",
          .summary = "all KV on the GPU, tokens chosen by the query's largest channels",
          .source = "SparQ Attention, paper",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
