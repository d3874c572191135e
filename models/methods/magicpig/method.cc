#include "models/methods/common/configured_method.h"
#include "models/methods/magicpig/plan.h"
#include "models/methods/magicpig/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "magicpig";

const ParamTable<MagicPigParams>& Table() {
  using P = MagicPigParams;
  constexpr Affects kSelection = Affects::kSelection, kPlan = Affects::kPlan;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("bits", &P::bits, "bits", 1, 16, kSelection, "bits of a hash",
                   "MagicPIG code, K: 10")
          .Integer("tables", &P::tables, "tables", 1, 4096, kSelection, "hashes of a key",
                   "MagicPIG code, L: 150; also 170")
          .Integer("collisions", &P::collisions, "tables", 1, 255, kSelection,
                   "tables in which a token must meet the query", "MagicPIG code: 2")
          .Integer("sink", &P::sink, "tokens", 0, 1 << 20, kSelection, "first tokens, on the GPU",
                   "MagicPIG code: 4")
          .Integer("window", &P::window, "tokens", 1, 1 << 20, kSelection,
                   "last tokens of the prompt, on the GPU as decoded ones are", "MagicPIG code: 64")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, kSelection,
                   "first layers that attend everything", "MagicPIG code: layers 0 and 16")
          .Integer("reserve", &P::reserve, "tokens", 1, 1 << 30, kPlan,
                   "decoded tokens that memory is held for; none of them is hashed",
                   "MagicPIG code: 256")
          .Integer("threads", &P::threads, "threads", 1, 1024, kPlan,
                   "host threads that probe tables and attend", "MagicPIG code: 64");
  return table;
}

class MagicPigMethod final : public DenseFirstMethod<MagicPigParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<MagicPigPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewMagicPigPlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const MagicPigParams& p = params();
    const int64_t dense = std::min<int64_t>(p.dense_layers, model.layers);
    const int64_t sparse = model.layers - dense;
    const int64_t hashes = p.bits * p.tables;
    const int64_t token = model.KvBytesPerTokenLayer();
    const int64_t near = std::min(context, p.sink + p.window + p.reserve);
    // A token's id in each table and its key's length; where buckets begin; counts of a query head.
    const int64_t tables = model.kv_heads * (p.tables * (context + p.buckets() + 1) + context) *
                           int64_t{sizeof(int32_t)};
    return {.gpu_kv = batch * (dense * context + sparse * near) * token,
            .gpu_index = hashes * model.head_dim * llm::kActivationBytes,
            .gpu_buffers = batch * model.query_heads * hashes * llm::kActivationBytes,
            .host = batch * (sparse * (context * token + tables) + model.query_heads * context)};
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const MagicPigParams params = Table().Parse(values);
  if (params.collisions > params.tables) {
    throw UsageError(fmt::format("no token can meet a query in {} of {} tables", params.collisions,
                                 params.tables),
                     kName, "lower collisions or raise tables");
  }
  return std::make_unique<MagicPigMethod>(Table(), params);
}

}  // namespace

MethodInfo MagicPig() {
  return {.name = kName,
          .title = "MagicPIG",
          .summary = "tokens sampled by hash tables on the host and attended there",
          .source = "MagicPIG, public code ac9aa36",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
