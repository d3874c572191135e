#include "models/methods/common/configured_method.h"
#include "models/methods/offload/plan.h"

namespace stallcast::methods {
namespace {

const ParamTable<OffloadParams>& Table() {
  static const auto table =
      ParamTable<OffloadParams>("offload")
          .Integer("prefetch", &OffloadParams::prefetch, "layers", 0, 16, Affects::kPlan,
                   "layers copied ahead of the one that attends",
                   "LouisKV's OffloadCache baseline: 1")
          .Choice("write_back", &OffloadParams::write_back, {"all", "new"}, Affects::kPlan,
                  "as run: each layer's whole cache goes back in a step, or its new token; our own "
                  "program writes the new token",
                  "transformers 5.17: all, on the compute stream");
  return table;
}

class OffloadMethod final : public ConfiguredMethod<OffloadParams> {
 public:
  using ConfiguredMethod::ConfiguredMethod;

  std::unique_ptr<Policy> NewPolicy() const override { return nullptr; }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewOffloadPlan(plan, params());
  }
  std::string AsRun() const override {
    return "transformers 5.17, DynamicCache(offloading=True), PyTorch 2.11";
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const int64_t tokens = batch * context;
    return {.gpu_buffers = params().buffers(model.layers) * tokens * model.KvBytesPerTokenLayer(),
            .host = tokens * model.KvBytesPerToken()};
  }
};

}  // namespace

MethodInfo Offload() {
  return {.name = "offload",
          .title = "Full offload",
          .summary = "the whole cache on the host, each layer's copied to the GPU in every step",
          .source = "LouisKV, OffloadCache baseline",
          .params = Table().specs(),
          .presets = {},
          .make = [](const ParamValues& values) -> std::unique_ptr<Method> {
            return std::make_unique<OffloadMethod>(Table(), Table().Parse(values));
          }};
}

}  // namespace stallcast::methods
