#include "models/methods/common/configured_method.h"
#include "models/methods/pqcache/plan.h"
#include "models/methods/pqcache/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "pqcache";

const ParamTable<PqCacheParams>& Table() {
  using P = PqCacheParams;
  constexpr Affects kSelection = Affects::kSelection, kPlan = Affects::kPlan;
  static const auto table =
      ParamTable<P>(kName)
          .Real("ratio", &P::ratio, 0, 1, kSelection,
                "tokens attended beside the sink, as a share of the prompt",
                "PQCache 5: 0.2 and 0.1; ParisKV ran 0.2")
          .Real("recent_share", &P::recent_share, 0, 1, kSelection,
                "of them, the share of last tokens; the rest is chosen", "PQCache code: 0.5")
          .Integer("sink", &P::sink, "tokens", 0, 1 << 20, kSelection, "first tokens kept",
                   "PQCache code: 32")
          .Integer("subspaces", &P::subspaces, "parts", 1, 64, kSelection,
                   "parts of a key that are coded apart", "PQCache code: 2")
          .Integer("bits", &P::bits, "bits", 1, 8, kSelection, "bits of a part's code",
                   "PQCache code: 6")
          .Integer("iterations", &P::iterations, "assignments", 1, 1000, kSelection,
                   "assignments of k-means", "PQCache code: 3 to 300, as many as the prefill hides")
          .Integer("block", &P::block, "tokens", 1, 1 << 20, kSelection,
                   "tokens of all heads that the GPU's cache takes together", "PQCache code: 128")
          .Integer("cache", &P::cache, "tokens", 1, 1 << 30, kSelection, "tokens of that cache",
                   "PQCache code: 4,096")
          .Choice("codes", &P::codes, {"int64", "compact"}, kPlan,
                  "codes on the host, which all come to the GPU in every step: 8 bytes each, or 1",
                  "PQCache code: int64")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, kSelection,
                   "first layers that attend everything", "PQCache code: 0")
          .Integer("threads", &P::threads, "threads", 1, 1024, kPlan,
                   "host threads that cluster and gather",
                   "the gathers of the profiles: timed up to 16; PQCache: 48 cores");
  return table;
}

class PqCacheMethod final : public DenseFirstMethod<PqCacheParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<PqCachePolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewPqCachePlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const PqCacheParams& p = params();
    const int64_t token = model.KvBytesPerTokenLayer();
    if (!p.Sparse(context)) return {.gpu_kv = batch * context * model.KvBytesPerToken()};
    const int64_t dense = std::min<int64_t>(p.dense_layers, model.layers);
    const int64_t sparse = model.layers - dense;
    const int64_t code = p.codes == PqCacheParams::Codes::kInt64 ? 8 : 1;
    const int64_t codes = model.kv_heads * (context * p.subspaces * code +
                                            p.centroids() * model.head_dim * llm::kActivationBytes);
    const int64_t kept = p.sink + p.Recent(context);
    const int64_t chosen = p.Chosen(context);
    return {.gpu_kv =
                batch *
                (dense * context + sparse * std::min(context, kept + std::min(p.cache, context))) *
                token,
            .gpu_index = batch * 2 * codes,
            // A layer's tokens for each query head.
            .gpu_buffers = batch * std::min(context, kept + chosen) * model.group() * token,
            .host = batch * (sparse * (context * token + codes) + chosen * token)};
  }
  void Check(const llm::Model& model, int64_t context) const override {
    DenseFirstMethod::Check(model, context);
    if (model.head_dim % params().subspaces == 0) return;
    throw UsageError(fmt::format("heads of {} channels cannot be cut into {} parts", model.head_dim,
                                 params().subspaces),
                     kName, "give subspaces that divide them");
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const PqCacheParams params = Table().Parse(values);
  CheckWholePages(kName, "cache", params.cache, params.block);
  return std::make_unique<PqCacheMethod>(Table(), params);
}

}  // namespace

MethodInfo PqCache() {
  return {.name = kName,
          .title = "PQCache",
          .summary = "tokens by product-quantised keys, gathered by the host",
          .source = "PQCache, public code 0b74e12",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
