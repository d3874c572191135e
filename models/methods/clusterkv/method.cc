#include "models/methods/clusterkv/plan.h"
#include "models/methods/clusterkv/policy.h"
#include "models/methods/common/configured_method.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "clusterkv";

const ParamTable<ClusterKvParams>& Table() {
  using P = ClusterKvParams;
  constexpr Affects kSelection = Affects::kSelection;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("budget", &P::budget, "tokens", 1, 1 << 30, kSelection,
                   "tokens attended beside decoded ones that are not clustered yet, the sink "
                   "included",
                   "2,048 as the others; ClusterKV 5: 256 to 2,048")
          .Integer("sink", &P::sink, "tokens", 0, 1 << 20, kSelection, "first tokens kept",
                   "ClusterKV code: 16")
          .Integer("lists", &P::lists, "clusters", 1, 1 << 20, kSelection, "clusters of a prompt",
                   "ClusterKV benchmarks: 200; paper: a token in 80")
          .Integer("update", &P::update, "tokens", 1, 1 << 20, kSelection,
                   "decoded tokens that are clustered together", "ClusterKV code: 320")
          .Integer("update_lists", &P::update_lists, "clusters", 1, 1 << 20, kSelection,
                   "clusters of them", "ClusterKV code: 8")
          .Integer("iterations", &P::iterations, "assignments", 1, 1000, kSelection,
                   "assignments of k-means", "ClusterKV code: 20 at most")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, kSelection,
                   "first layers that attend everything", "ClusterKV code: 2")
          .Integer("fetch_blocks", &P::fetch_blocks, "blocks", 1, 64, Affects::kPlan,
                   "blocks that bring tokens of a sequence and query head", "ClusterKV code: 1");
  return table;
}

class ClusterKvMethod final : public DenseFirstMethod<ClusterKvParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<ClusterKvPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewClusterKvPlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const ClusterKvParams& p = params();
    const int64_t dense = std::min<int64_t>(p.dense_layers, model.layers);
    const int64_t sparse = model.layers - dense;
    const int64_t token = model.KvBytesPerTokenLayer();
    // Of each query head.
    const int64_t kept = std::min(context, p.budget + p.update) * model.group();
    // A prompt's, or of as many decoded tokens.
    const int64_t clusters =
        std::max(p.PromptClusters(context), context / p.update * p.UpdateClusters());
    return {.gpu_kv = batch * (dense * context + sparse * kept) * token,
            .gpu_index = batch * sparse *
                         (clusters * token / 2 +
                          model.kv_heads * (clusters + context) * int64_t{sizeof(int32_t)}),
            .host = batch * sparse * context * token};
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const ClusterKvParams params = Table().Parse(values);
  CheckBudget(kName, params.budget, params.sink + 1, "the sink and one token to choose");
  return std::make_unique<ClusterKvMethod>(Table(), params);
}

}  // namespace

MethodInfo ClusterKv() {
  return {.name = kName,
          .title = "ClusterKV",
          .summary = "clusters chosen by each query head, new tokens read from the host",
          .source = "ClusterKV, paper and public code",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
