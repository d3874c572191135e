#include <fmt/format.h>

#include "models/methods/common/configured_method.h"
#include "models/methods/common/footprint.h"
#include "models/methods/shadowkv/plan.h"
#include "models/methods/shadowkv/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "shadowkv";

const ParamTable<ShadowKvParams>& Table() {
  using P = ShadowKvParams;
  constexpr Affects kSelection = Affects::kSelection, kPlan = Affects::kPlan;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("budget", &P::budget, "tokens", 1, 1 << 30, kSelection,
                   "tokens retrieved by a KV head, outliers and local chunks apart",
                   "code, sparse_budget: 2,048")
          .Integer("chunk", &P::chunk, "tokens", 1, 4096, kSelection, "chunk size",
                   "code: 8; FreeKV ran 32")
          .Integer("outliers", &P::outliers, "chunks", 0, 1 << 20, kSelection,
                   "chunks kept whole whose keys are least like their mean",
                   "code: 24 for 1,024 tokens of budget")
          .Integer("local", &P::local, "chunks", 0, 1 << 20, kSelection,
                   "last chunks of the prompt kept whole", "code: 4; ParisKV ran 32 and 4")
          .Integer("rank", &P::rank, "", 1, 1024, kPlan, "rank of the keys' factors", "code: 160")
          .Integer("dense_until", &P::dense_until, "tokens", 0, 1 << 30, kSelection,
                   "prompts up to this length are attended whole", "code: 4K")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, kSelection,
                   "first layers that attend everything", "code: 0; FreeKV ran 1")
          .Integer("update", &P::update, "tokens", 0, 1 << 20, kSelection,
                   "tokens decoded between two factorizations; 0: the prompt's alone",
                   "code: 0; FreeKV ran every window")
          .Integer("reserve", &P::reserve, "tokens", 1, 1 << 20, kPlan,
                   "decoded tokens that the GPU has room for",
                   "code: 128 for throughput, 4,096 for accuracy")
          .Integer("fetch_threads", &P::fetch_threads, "threads", 1, 1024, kPlan,
                   "that read the host pool, for each sequence and KV head",
                   "code: a block of 128 threads");
  return table;
}

class ShadowKvMethod final : public DenseFirstMethod<ShadowKvParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<ShadowKvPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewShadowKvPlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const ShadowKvParams& p = params();
    const int64_t dense = std::min<int64_t>(p.dense_layers, model.layers);
    const int64_t sparse = model.layers - dense;
    const int64_t row = model.KvRowBytes();
    const int64_t token = model.KvBytesPerTokenLayer();
    if (context <= p.dense_until)
      return {.gpu_kv = int64_t{batch} * model.layers * context * token};
    const int64_t kept =
        (p.outliers + p.local + 1 + p.chosen()) * p.chunk + (p.update > 0 ? p.update : p.reserve);
    const int64_t factors =
        p.rank * llm::kActivationBytes * (context + int64_t{model.kv_heads} * model.head_dim);
    // A mean key and a number a chunk; scores and lists of chunks.
    const int64_t chunks = Pages(context, p.chunk) * model.kv_heads;
    const int64_t lists = model.kv_heads * p.chosen() * 4 * int64_t{sizeof(int32_t)};
    return {.gpu_kv = batch * (dense * context + sparse * std::min(context, kept)) * token,
            .gpu_index = batch * sparse * (factors + chunks * (row + int64_t{sizeof(int32_t)})),
            .gpu_buffers =
                batch * (sparse * lists + chunks * (1 + model.group()) * int64_t{sizeof(float)}),
            .host = batch * sparse * context * model.kv_heads * row};
  }
  int64_t DenseUntil() const override { return params().dense_until + 1; }
  void Check(const llm::Model& model, int64_t context) const override {
    const ShadowKvParams& p = params();
    DenseFirstMethod::Check(model, context);
    const int64_t channels = int64_t{model.kv_heads} * model.head_dim;
    if (p.rank > channels) {
      throw UsageError(fmt::format("a rank of {}, but the keys of {} have {} channels", p.rank,
                                   model.title, channels),
                       kName, fmt::format("give a rank of 1 to {}", channels));
    }
    if (context > p.dense_until && p.RegionChunks(context) <= p.outliers) {
      throw UsageError(
          fmt::format("{} outlier and {} local chunks leave none of {} tokens to choose from",
                      p.outliers, p.local, context),
          kName, "lower outliers or local, raise dense_until, or choose a longer context");
    }
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const ShadowKvParams params = Table().Parse(values);
  CheckWholePages(kName, "budget", params.budget, params.chunk);
  return std::make_unique<ShadowKvMethod>(Table(), params);
}

}  // namespace

MethodInfo ShadowKv() {
  return {.name = kName,
          .title = "ShadowKV",
          .summary = "values on the host, keys as low-rank factors, chunks by their mean keys",
          .source = "ShadowKV, public code a21f5a9; FreeKV 5.1 for update",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
