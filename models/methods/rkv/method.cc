#include "models/methods/common/configured_method.h"
#include "models/methods/rkv/plan.h"
#include "models/methods/rkv/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "rkv";

const ParamTable<RkvParams>& Table() {
  using P = RkvParams;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("budget", &P::budget, "tokens", 2, 1 << 30, Affects::kSelection,
                   "tokens that a compression leaves, the window included",
                   "2,048 as the others; R-KV 4: 128 to 3,072")
          .Integer("buffer", &P::buffer, "tokens", 1, 1 << 20, Affects::kSelection,
                   "decoded tokens from one compression to the next", "R-KV code: 128")
          .Integer("window", &P::window, "tokens", 1, 1 << 20, Affects::kSelection,
                   "last tokens, kept; their queries observe", "R-KV code: 8")
          .Integer("kernel", &P::kernel, "tokens", 1, 1001, Affects::kSelection,
                   "neighbours of which the largest weight counts, an odd number", "R-KV code: 7")
          .Real("lambda", &P::lambda, 0, 1, Affects::kSelection,
                "share of attention in a token's worth; the rest is dissimilarity",
                "R-KV code: 0.07; paper: 0.1")
          .Real("threshold", &P::threshold, -1, 1, Affects::kSelection,
                "keys of more cosine are similar", "R-KV code: 0.5")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, Affects::kSelection,
                   "first layers that keep everything", "R-KV code: 0");
  return table;
}

class RkvMethod final : public DenseFirstMethod<RkvParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<RkvPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewRkvPlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const RkvParams& p = params();
    const int64_t dense = std::min<int64_t>(p.dense_layers, model.layers);
    const int64_t kept = std::min(context, p.budget + p.buffer);
    const int64_t queries = p.window * model.query_heads * model.head_dim * llm::kActivationBytes;
    // Cosines of all pairs of keys of one layer: of a prompt, at worst. More than 64 bits count is
    // more than any GPU has.
    constexpr double kMost = 4e18;
    const double tokens = static_cast<double>(context);
    const double cosines = static_cast<double>(batch) * model.kv_heads * tokens * tokens *
                           static_cast<double>(llm::kActivationBytes);
    return {.gpu_kv = batch * (dense * context + (model.layers - dense) * kept) *
                      model.KvBytesPerTokenLayer(),
            .gpu_buffers = batch * (model.layers - dense) * queries +
                           static_cast<int64_t>(std::min(cosines, kMost))};
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const RkvParams params = Table().Parse(values);
  CheckBudget(kName, params.budget, params.window + 1, "the window and one token to choose");
  if (params.kernel % 2 == 0) {
    throw UsageError(fmt::format("a kernel of {} has no middle", params.kernel), kName,
                     fmt::format("give {}", params.kernel + 1));
  }
  return std::make_unique<RkvMethod>(Table(), params);
}

}  // namespace

MethodInfo Rkv() {
  return {.name = kName,
          .title = "R-KV",
          .summary = "every 128 tokens the cache is cut to attended tokens unlike the others",
          .source = "R-KV, public code 31cf555",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
