#include "models/methods/common/configured_method.h"
#include "models/methods/h2o/plan.h"
#include "models/methods/h2o/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "h2o";

const ParamTable<H2oParams>& Table() {
  using P = H2oParams;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("budget", &P::budget, "tokens", 1, 1 << 30, Affects::kSelection,
                   "tokens on the GPU and attended", "2,048 as the others; H2O 5: a fifth of all")
          .Integer("recent", &P::recent, "tokens", 0, 1 << 30, Affects::kSelection,
                   "last ones of them, which are never dropped", "H2O 5: half of the budget")
          .Choice("worth", &P::worth, {"accumulated", "last"}, Affects::kSelection,
                  "what a token is worth: all attention that it has had, or the last query's",
                  "H2O 4: accumulated; TOVA: last, with recent 0")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, Affects::kSelection,
                   "first layers that keep everything", "H2O code: 0");
  return table;
}

class H2oMethod final : public DenseFirstMethod<H2oParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<H2oPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewH2oPlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const int64_t dense = std::min<int64_t>(params().dense_layers, model.layers);
    const int64_t sparse = model.layers - dense;
    const int64_t kept = std::min(context, params().budget);
    return {
        .gpu_kv = batch * (dense * context + sparse * kept) * model.KvBytesPerTokenLayer(),
        // What each token is worth, and a prompt's while it is chosen from.
        .gpu_index = batch * model.kv_heads * (sparse * kept + context) * int64_t{sizeof(float)}};
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const H2oParams params = Table().Parse(values);
  CheckBudget(kName, params.budget, params.recent + 1, "the recent tokens and one to choose");
  return std::make_unique<H2oMethod>(Table(), params);
}

}  // namespace

MethodInfo H2o() {
  return {.name = kName,
          .title = "H2O",
          .summary = "the tokens with most attention so far and the last ones, the rest dropped",
          .source = "H2O, paper and public code; TOVA for worth=last",
          .params = Table().specs(),
          .presets = {{"tova", {{"worth", "last"}, {"recent", "0"}}}},
          .make = Make};
}

}  // namespace stallcast::methods
