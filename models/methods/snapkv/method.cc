#include "models/methods/common/configured_method.h"
#include "models/methods/snapkv/plan.h"
#include "models/methods/snapkv/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "snapkv";

const ParamTable<SnapKvParams>& Table() {
  using P = SnapKvParams;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("budget", &P::budget, "tokens", 2, 1 << 30, Affects::kSelection,
                   "tokens kept of the prompt, the window included",
                   "SnapKV README: 2,048; its class: 320")
          .Integer("window", &P::window, "tokens", 1, 1 << 20, Affects::kSelection,
                   "last tokens of the prompt, whose queries observe",
                   "SnapKV README: 32; its class: 64")
          .Integer("kernel", &P::kernel, "tokens", 1, 1001, Affects::kSelection,
                   "neighbours over which weights are averaged, an odd number", "SnapKV code: 5")
          .Choice("group", &P::group, {"mean", "query-head"}, Affects::kSelection,
                  "who chooses: a KV head by its group's mean, or each query head, with a cache of "
                  "its own",
                  "SnapKV code: query-head, on repeated keys; kvpress: mean")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, Affects::kSelection,
                   "first layers that keep everything", "SnapKV code: 0")
          .Integer("reserve", &P::reserve, "tokens", 1, 1 << 30, Affects::kPlan,
                   "decoded tokens that memory is held for; none of them is dropped", "assumed");
  return table;
}

class SnapKvMethod final : public DenseFirstMethod<SnapKvParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<SnapKvPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewSnapKvPlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const SnapKvParams& p = params();
    const int64_t dense = std::min<int64_t>(p.dense_layers, model.layers);
    const int64_t copies = p.group == SnapKvParams::Group::kQueryHead ? model.group() : 1;
    const int64_t kept = std::min(context, p.budget + p.reserve) * copies;
    return {.gpu_kv = batch * (dense * context + (model.layers - dense) * kept) *
                      model.KvBytesPerTokenLayer()};
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const SnapKvParams params = Table().Parse(values);
  CheckBudget(kName, params.budget, params.window + 1, "the window and one token to choose");
  if (params.kernel % 2 == 0) {
    throw UsageError(fmt::format("a kernel of {} has no middle", params.kernel), kName,
                     fmt::format("give {}", params.kernel + 1));
  }
  return std::make_unique<SnapKvMethod>(Table(), params);
}

}  // namespace

MethodInfo SnapKv() {
  return {.name = kName,
          .title = "SnapKV",
          .summary = "the prompt cut to what its last queries attend; what is decoded stays",
          .source = "SnapKV, public code",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
