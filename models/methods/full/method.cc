#include "models/methods/common/configured_method.h"
#include "models/methods/full/plan.h"

namespace stallcast::methods {
namespace {

const ParamTable<FullParams>& Table() {
  static const ParamTable<FullParams> table("full");
  return table;
}

class FullMethod final : public ConfiguredMethod<FullParams> {
 public:
  using ConfiguredMethod::ConfiguredMethod;

  std::unique_ptr<Policy> NewPolicy() const override { return nullptr; }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewFullPlan(plan, params());
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
