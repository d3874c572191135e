#include "models/methods/common/configured_method.h"
#include "models/methods/common/footprint.h"
#include "models/methods/twilight/plan.h"
#include "models/methods/twilight/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "twilight";

const ParamTable<TwilightParams>& Table() {
  using P = TwilightParams;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("base", &P::base, "tokens", 1, 1 << 30, Affects::kSelection,
                   "tokens that Quest's bounds offer, the newest page included",
                   "Twilight 5: 8,192")
          .Integer("page", &P::page, "tokens", 1, 4096, Affects::kSelection, "page size",
                   "Quest code: 16")
          .Real("top_p", &P::top_p, 0, 1, Affects::kSelection,
                "share of the estimated attention that is attended", "Twilight 5: 0.85")
          .Integer("bits", &P::bits, "bits", 1, 8, Affects::kSelection,
                   "bits of a key's channel in the estimate", "Twilight 4: 4")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, Affects::kSelection,
                   "first layers that attend everything", "Twilight code: 2");
  return table;
}

class TwilightMethod final : public DenseFirstMethod<TwilightParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<TwilightPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewTwilightPlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const int64_t sparse = std::max<int64_t>(model.layers - params().dense_layers, 0);
    const int64_t token = model.KvBytesPerTokenLayer();
    // Two bounds a page, and of each key its bits, a scale and an offset.
    const int64_t bits = model.kv_heads * (model.head_dim * params().bits / 8 + 4);
    return {.gpu_kv = batch * context * model.KvBytesPerToken(),
            .gpu_index = batch * sparse * (Pages(context, params().page) * token + context * bits)};
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const TwilightParams params = Table().Parse(values);
  CheckWholePages(kName, "base", params.base, params.page);
  CheckBudget(kName, params.base, 2 * params.page, "the newest page and one to choose");
  return std::make_unique<TwilightMethod>(Table(), params);
}

}  // namespace

MethodInfo Twilight() {
  return {.name = kName,
          .title = "Twilight",
          .summary = "all KV on the GPU, of Quest's pages the tokens that hold most attention",
          .source = "Twilight, paper and public code",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
