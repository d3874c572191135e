#include "models/methods/common/configured_method.h"
#include "models/methods/cpu_attention/plan.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "cpu-attention";

const ParamTable<CpuAttentionParams>& Table() {
  using P = CpuAttentionParams;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("threads", &P::threads, "threads", 1, 1024, Affects::kPlan,
                   "host threads that attend", "the gathers of the profiles: timed up to 16")
          .Integer("gpu_tokens", &P::gpu_tokens, "tokens", 0, 1 << 30, Affects::kPlan,
                   "last tokens that the GPU keeps and attends meanwhile; 0: none",
                   "llama.cpp --no-kv-offload: 0; MagicPIG keeps a window");
  return table;
}

class CpuAttentionMethod final : public ConfiguredMethod<CpuAttentionParams> {
 public:
  using ConfiguredMethod::ConfiguredMethod;

  std::unique_ptr<Policy> NewPolicy() const override { return nullptr; }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewCpuAttentionPlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    // Outputs come back to a layer's buffer, with the sum of each softmax.
    const int64_t output = int64_t{model.query_heads} *
                           (model.head_dim * llm::kActivationBytes + int64_t{sizeof(float)});
    return {.gpu_kv = batch * std::min(context, params().gpu_tokens) * model.KvBytesPerToken(),
            .gpu_buffers = batch * output,
            .host = batch * (context * model.KvBytesPerToken() + output)};
  }
  void Check(const llm::Model& model, int64_t /*context*/) const override {
    if (!model.latent) return;
    throw UsageError(
        fmt::format("host threads attend keys of heads, and {} keeps latents", model.title), kName,
        "use --method full or offload");
  }
};

}  // namespace

MethodInfo CpuAttention() {
  return {.name = kName,
          .title = "CPU attention",
          .summary = "the whole cache on the host, attended there by its threads",
          .source = "llama.cpp --no-kv-offload; MagicPIG's division of work without its sampling",
          .params = Table().specs(),
          .presets = {},
          .make = [](const ParamValues& values) -> std::unique_ptr<Method> {
            return std::make_unique<CpuAttentionMethod>(Table(), Table().Parse(values));
          }};
}

}  // namespace stallcast::methods
