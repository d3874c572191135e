#include "models/methods/common/configured_method.h"
#include "models/methods/pariskv/codes.h"
#include "models/methods/pariskv/plan.h"
#include "models/methods/pariskv/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "pariskv";

const ParamTable<ParisKvParams>& Table() {
  using P = ParisKvParams;
  constexpr Affects kSelection = Affects::kSelection, kPlan = Affects::kPlan;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("topk", &P::topk, "tokens", 1, 1 << 20, kSelection,
                   "tokens retrieved by a selection head", "paper 5: 100")
          .Integer("sink", &P::sink, "tokens", 0, 1 << 20, kSelection, "first tokens on the GPU",
                   "paper D.1.2: 128")
          .Integer("local", &P::local, "tokens", 0, 1 << 20, kSelection,
                   "last tokens on the GPU, the update buffer apart",
                   "paper D.1.2: 512; table 1: 128 to 256")
          .Integer("update", &P::update, "tokens", 1, 1 << 20, kSelection,
                   "new tokens that are buffered until the window slides",
                   "paper table 1: 512, MATH500 256")
          .Integer("dense_until", &P::dense_until, "tokens", 0, 1 << 30, kSelection,
                   "shorter contexts attend everything; at least sink + local + 2 topk",
                   "paper table 1: 2K, MATH500 1K; code: the least")
          .Integer("subspaces", &P::subspaces, "subspaces", 1, 42, kSelection,
                   "parts of a key that vote, of 2 to 8 dimensions", "paper table 4: 16")
          .Choice("ratios", &P::ratios, {"table", "fixed"}, kSelection,
                  "rho and beta from the code's table by context, or as given",
                  "code: under 5K .5/.5, 10K .3/.25, 30K .25/.2, then .2/.1")
          .Real("rho", &P::rho, 0, 1, kSelection,
                "share of keys that collide in a subspace, with ratios=fixed",
                "code at 30K and more: 0.2; at least beta")
          .Real("beta", &P::beta, 0, 1, kSelection, "share of keys reranked, with ratios=fixed",
                "paper 4.2.2: 0.05 to 0.1")
          .Choice("query", &P::query, {"group-mean", "query-head"}, kSelection,
                  "who selects: a KV head by its group's mean query, or each query head",
                  "code: group-mean; paper: not said")
          .Flag("rotation", &P::rotation, kSelection, "rotate before coding (SRHT)",
                "paper 4.1.1; off is its ablation")
          .Integer("seed", &P::seed, "", 0, 1 << 30, kSelection, "of the rotation's random signs",
                   "any")
          .Choice("pool", &P::pool, {"split", "joined"}, kPlan,
                  "host pool: a token's key and value apart, or in one piece",
                  "code: split; joined is a what-if")
          .Integer("fetch_blocks", &P::fetch_blocks, "blocks", 1, 4096, kPlan,
                   "blocks of 256 threads that read the host pool", "code: 32 threads a token")
          .Choice("offload", &P::offload, {"async", "as-coded"}, kPlan,
                  "copies to the host run beside everything, or the host waits for them",
                  "paper 4.1: async; code: a wait a layer in prefill and one an update");
  return table;
}

class ParisKvMethod final : public ConfiguredMethod<ParisKvParams> {
 public:
  using ConfiguredMethod::ConfiguredMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<ParisKvPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewParisKvPlan(plan, params());
  }
  std::string AsRun() const override { return "ParisKV's code 14b488d"; }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const ParisKvParams& p = params();
    const int64_t heads =
        p.query == ParisKvParams::Query::kQueryHead ? model.query_heads : model.kv_heads;
    const int64_t rows = int64_t{batch} * model.layers * model.kv_heads;
    const int64_t token = 2 * model.KvRowBytes();
    const int64_t near = p.sink + p.local + p.update;  // at its longest
    // Each layer has room for what it retrieves and its candidates; scores are shared by all.
    const int64_t region = std::max<int64_t>(0, context - p.sink - p.local);
    const int64_t selecting = int64_t{batch} * heads;
    const int64_t candidates = Candidates(p, region) * int64_t{sizeof(int32_t)};
    const int64_t counts = (int64_t{1} << (model.head_dim / p.subspaces)) * p.subspaces * 4;
    const int64_t kept = context < p.first_sparse() ? context : near;
    return {.gpu_kv = rows * kept * token,
            .gpu_index = rows * (region * CodeBytes(model.head_dim, p.subspaces) + counts),
            .gpu_buffers =
                selecting * (model.layers * (p.topk * token + candidates) + region + candidates),
            .host = rows * region * token};
  }
  int64_t DenseUntil() const override { return params().first_sparse(); }
  void Check(const llm::Model& model, int64_t context) const override {
    const ParisKvParams& p = params();
    if (p.topk > context) {
      throw UsageError(
          fmt::format("topk of {} is more than the context of {} tokens", p.topk, context), kName,
          "lower topk or choose a longer context");
    }
    try {
      CodeBook(model.head_dim, static_cast<int>(p.subspaces), p.rotation,
               static_cast<uint64_t>(p.seed));
    } catch (const Error& error) {
      throw UsageError(error.problem(), error.where(), error.remedy());
    }
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const ParisKvParams params = Table().Parse(values);
  if (params.ratios == ParisKvParams::Ratios::kFixed && params.rho < params.beta) {
    throw UsageError(fmt::format("rho of {} is less than beta of {}", params.rho, params.beta),
                     kName, "give rho >= beta, or too few keys collide to fill the candidates");
  }
  return std::make_unique<ParisKvMethod>(Table(), params);
}

}  // namespace

MethodInfo ParisKv() {
  return {.name = kName,
          .title = "ParisKV",
          .summary =
              "single tokens chosen by sign-pattern collisions and 4-bit codes, fetched by "
              "zero-copy",
          .source = "ParisKV paper; public code db7ad7f",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
