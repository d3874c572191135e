#include "models/methods/common/configured_method.h"
#include "models/methods/common/footprint.h"
#include "models/methods/prkv/plan.h"
#include "models/methods/prkv/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "prkv";

const ParamTable<PrkvParams>& Table() {
  using P = PrkvParams;
  constexpr Affects kSelection = Affects::kSelection, kPlan = Affects::kPlan;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("budget", &P::budget, "tokens", 1, 1 << 30, kSelection,
                   "tokens on the GPU and attended, window included",
                   "paper 5.2: 1,024 beside the window; FreeKV 5.1: 2,048")
          .Integer("page", &P::page, "tokens", 1, 4096, kSelection, "page size", "paper 5.1: 32")
          .Integer("window", &P::window, "tokens", 1, 1 << 20, kSelection,
                   "last tokens kept, the partial page included; their queries observe",
                   "paper 5.1: 64")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, kSelection,
                   "first layers that attend everything", "the paper names none")
          .Choice("static_rule", &P::static_rule, {"fixed", "overlap"}, kSelection,
                  "how large the static set is: static_ratio, or what the window's first and last "
                  "query have in common",
                  "paper 5.1: fixed; appendix G: overlap")
          .Real("static_ratio", &P::static_ratio, 0, 1, kSelection,
                "static share of the budget beside the window, in whole pages",
                "paper 5.1: 0.25; 0: page selection alone; 1: SnapKV with updates")
          .Integer("update", &P::update, "steps", 1, 1 << 30, kSelection,
                   "steps between choices of the static set", "paper 5.1: 128")
          .Choice("summary", &P::summary, {"min-max", "cuboid-mean"}, kSelection,
                  "what bounds a page's keys",
                  "paper 4.1: bounding volumes as in ArkVale, whose code has cuboid-mean")
          .Choice("pooling", &P::pooling, {"softmax-mean", "softmax-mean-unscaled", "raw-mean"},
                  kSelection, "how a group's query heads agree on a page's score",
                  "assumed: raw-mean, as in ArkVale's code")
          .Choice("layout", &P::layout, {"hnd", "nhd"}, kPlan,
                  "pages: a head's tokens in one piece, or its rows to be collected",
                  "paper 4.2; nhd is its ablation (5.3)")
          .Choice("transfer", &P::transfer, {"batched", "per-page"}, kPlan,
                  "missed pages gathered in a pinned buffer and copied at once, or a copy each",
                  "paper 4.2; per-page is its ablation (5.3)")
          .Flag("async_write_back", &P::async_write_back, kPlan,
                "attention does not wait for restructured pages to reach the host",
                "paper appendix H")
          .Integer("workers", &P::workers, "threads", 1, 256, kPlan, "host threads that gather",
                   "assumed");
  return table;
}

class PrkvMethod final : public DenseFirstMethod<PrkvParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<PrkvPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewPrkvPlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const PrkvParams& p = params();
    Footprint bytes =
        PagedFootprint(model, context, batch, p.dense_layers, p.page, p.budget, model.kv_heads);
    const int64_t sparse = std::max<int64_t>(model.layers - p.dense_layers, 0);
    if (p.has_static_set()) {
      // A layer's cache as it was and as it becomes, and the queries of the window.
      bytes.gpu_buffers +=
          int64_t{2} * batch * Pages(context, p.page) * p.page * model.KvBytesPerTokenLayer();
      bytes.gpu_buffers += batch * sparse * std::min(context, p.window) * model.query_heads *
                           model.head_dim * llm::kActivationBytes;
    }
    // A layer's misses at worst, in pinned memory and where they land.
    const int64_t missed = batch * p.budget_pages() * p.page * model.KvBytesPerTokenLayer();
    const bool batched = p.transfer == PrkvParams::Transfer::kBatched;
    const bool hnd = p.layout == PrkvParams::Layout::kHnd;
    if (batched || !hnd) {
      bytes.gpu_buffers += missed;
      bytes.host += missed;
    }
    return bytes;
  }
  void Check(const llm::Model& model, int64_t context) const override {
    DenseFirstMethod::Check(model, context);
    if (context < params().window) {
      throw UsageError(fmt::format("a prompt of {} tokens is shorter than the observation window "
                                   "of {}",
                                   context, params().window),
                       kName, "give a longer context or a smaller window");
    }
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const PrkvParams params = Table().Parse(values);
  CheckWholePages(kName, "budget", params.budget, params.page);
  CheckWholePages(kName, "window", params.window, params.page);
  CheckBudget(kName, params.budget, params.window + params.page, "window and one page to choose");
  return std::make_unique<PrkvMethod>(Table(), params);
}

}  // namespace

MethodInfo Prkv() {
  return {.name = kName,
          .title = "PRKV",
          .summary = "a static set of tokens at the front, other pages gathered and copied at once",
          .source = "PRKV paper",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
