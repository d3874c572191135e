#include "models/methods/common/configured_method.h"
#include "models/methods/retroinfer/plan.h"
#include "models/methods/retroinfer/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "retroinfer";

const ParamTable<RetroInferParams>& Table() {
  using P = RetroInferParams;
  constexpr Affects kSelection = Affects::kSelection, kPlan = Affects::kPlan;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("cluster", &P::cluster, "tokens", 1, 4096, kSelection,
                   "tokens of a cluster, on average", "RetroInfer code: 16")
          .Integer("segment", &P::segment, "tokens", 16, 1 << 20, kSelection,
                   "tokens of the prompt that are clustered together", "RetroInfer code: 8,192")
          .Integer("iterations", &P::iterations, "assignments", 1, 1000, kSelection,
                   "assignments of k-means", "RetroInfer code: 10")
          .Real("retrieval", &P::retrieval, 0, 1, kSelection,
                "share of clusters that are attended exactly, one at least",
                "RetroInfer 5.1: 0.018")
          .Real("estimation", &P::estimation, 0, 1, kSelection,
                "share of clusters whose attention is estimated by their centroids",
                "RetroInfer 5.1: 0.232")
          .Integer("sink", &P::sink, "tokens", 0, 1 << 20, kSelection, "first tokens kept",
                   "RetroInfer code: 4")
          .Integer("window", &P::window, "tokens", 1, 1 << 20, kSelection, "last tokens kept",
                   "RetroInfer code: 64")
          .Integer("update", &P::update, "tokens", 1, 1 << 20, kSelection,
                   "decoded tokens that become clusters together", "RetroInfer code: 1,024")
          .Integer("cache", &P::cache, "times", 1, 1 << 10, kSelection,
                   "clusters on the GPU, in multiples of those that a step retrieves",
                   "RetroInfer code: 3")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, kSelection,
                   "first layers that attend everything", "RetroInfer code: 0")
          .Integer("threads", &P::threads, "threads", 1, 1024, kPlan,
                   "host threads that look clusters up and put keys in order",
                   "the gathers of the profiles: timed up to 16")
          .Integer("fetch_blocks", &P::fetch_blocks, "blocks", 1, 1024, kPlan,
                   "blocks that bring the clusters of a sequence and KV head",
                   "RetroInfer code: 16");
  return table;
}

class RetroInferMethod final : public DenseFirstMethod<RetroInferParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<RetroInferPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewRetroInferPlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const RetroInferParams& p = params();
    const int64_t dense = std::min<int64_t>(p.dense_layers, model.layers);
    const int64_t sparse = model.layers - dense, clusters = p.PromptClusters(context);
    const int64_t retrieved = p.Retrieved(clusters) * p.cluster;
    const int64_t steady = std::min(context, p.sink + p.window + p.update);
    const int64_t token = model.KvBytesPerTokenLayer();
    const int64_t kept = std::min(context, steady + p.Slots(clusters) * p.cluster);
    return {.gpu_kv = batch * (dense * context + sparse * kept) * token,
            // A mean key, a sum of values and a size.
            .gpu_index =
                batch * sparse * clusters * (token + model.kv_heads * int64_t{sizeof(int32_t)}),
            // What a step attends, side by side.
            .gpu_buffers = batch * std::min(context, steady + retrieved) * token,
            .host = batch * sparse * context * token};
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const RetroInferParams params = Table().Parse(values);
  if (params.retrieval + params.estimation > 1) {
    throw UsageError("retrieval and estimation are more than all clusters", kName,
                     "lower one of them");
  }
  return std::make_unique<RetroInferMethod>(Table(), params);
}

}  // namespace

MethodInfo RetroInfer() {
  return {.name = kName,
          .title = "RetroInfer",
          .summary = "clusters looked up on the host, few attended exactly, many by centroids",
          .source = "RetroInfer, public code 6b1228c",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
