#include "models/methods/common/configured_method.h"
#include "models/methods/full/plan.h"

namespace stallcast::methods {
namespace {

const ParamTable<FullParams>& Table() {
  static const auto table = ParamTable<FullParams>("full").Choice(
      "cache", &FullParams::cache, {"dynamic", "static"}, Affects::kPlan,
      "as run: a cache that grows by concatenation, or a padded one that is attended whole",
      "transformers 5.17: DynamicCache, StaticCache");
  return table;
}

class FullMethod final : public ConfiguredMethod<FullParams> {
 public:
  using ConfiguredMethod::ConfiguredMethod;

  std::unique_ptr<Policy> NewPolicy() const override { return nullptr; }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewFullPlan(plan, params());
  }
  std::string AsRun() const override {
    return params().cache == FullParams::Cache::kStatic
               ? "transformers 5.17, StaticCache, PyTorch 2.11"
               : "transformers 5.17, DynamicCache, PyTorch 2.11";
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    return {.gpu_kv = batch * context * model.KvBytesPerToken()};
  }
};

}  // namespace

MethodInfo Full() {
  return {.name = "full",
          .title = "Full cache",
          .summary = "the whole cache on the GPU, everything attended",
          .source = "",
          .params = Table().specs(),
          .presets = {},
          .make = [](const ParamValues& values) -> std::unique_ptr<Method> {
            return std::make_unique<FullMethod>(Table(), Table().Parse(values));
          }};
}

}  // namespace stallcast::methods
