#include "models/methods/common/configured_method.h"
#include "models/methods/common/footprint.h"
#include "models/methods/freekv/plan.h"
#include "models/methods/freekv/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "freekv";

const ParamTable<FreeKvParams>& Table() {
  using P = FreeKvParams;
  constexpr Affects kSelection = Affects::kSelection, kPlan = Affects::kPlan;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("budget", &P::budget, "tokens", 1, 1 << 30, kSelection,
                   "tokens on the GPU and attended, sink and window included", "paper 5.1: 2,048")
          .Integer("page", &P::page, "tokens", 1, 4096, kSelection, "page size", "paper 5.1: 32")
          .Integer("sink", &P::sink, "tokens", 0, 1 << 20, kSelection, "first tokens kept",
                   "paper 5.2: 512, long inputs 128")
          .Integer("window", &P::window, "tokens", 1, 1 << 20, kSelection,
                   "last tokens kept, the partial page included", "paper 5.2: 512, long inputs 128")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, kSelection,
                   "first layers that attend everything",
                   "paper 5.1 and accuracy code: 1; speed engine: 0")
          .Real("tau", &P::tau, 0, 1, kSelection,
                "a head whose adjacent queries' mean cosine is lower is corrected",
                "paper 5.3: 0.9 long generation, 0.8 long input")
          .Choice("summary", &P::summary, {"min-max", "cuboid-mean"}, kSelection,
                  "what stands for a page's keys", "paper 3.2: min-max; speed engine: cuboid-mean")
          .Choice("pooling", &P::pooling, {"softmax-mean", "softmax-mean-unscaled", "raw-mean"},
                  kSelection, "how a group's query heads agree on a page's score",
                  "paper 3.2: softmax-mean; accuracy code: unscaled; speed engine: raw-mean")
          .Flag("speculation", &P::speculation, kSelection,
                "attend the pages of the step before and recall for the next one",
                "paper 3.2; off: every step recalls before attention")
          .Flag("correction", &P::correction, kSelection,
                "recall before attention where the query has drifted", "paper 3.3")
          .Choice("layout", &P::layout, {"hybrid", "nhd"}, kPlan,
                  "host layout: a head's page in one piece, or in one piece a token",
                  "paper 4.2; nhd is its ablation")
          .Flag("double_buffer", &P::double_buffer, kPlan,
                "convert one buffer's layout while the other fills", "paper 4.2")
          .Choice("recall", &P::recall, {"per-page", "batched", "staged", "zero-copy"}, kPlan,
                  "how missed pages cross the link", "code: per-page; the others are what-ifs")
          .Integer("zero_copy_blocks", &P::zero_copy_blocks, "blocks", 1, 1024, kPlan,
                   "thread blocks that read host memory in recall=zero-copy",
                   "what-if: enough to fill the link; more hold up what starts beside them")
          .Choice("overwrite", &P::overwrite, {"safe", "as-coded"}, kPlan,
                  "whether a recall ahead waits for the attention that reads the pages it replaces",
                  "the code has no such wait")
          .Integer("workers", &P::workers, "threads", 1, 256, kPlan,
                   "host threads that issue recalls ahead or gather pages", "code: 2");
  return table;
}

class FreeKvMethod final : public DenseFirstMethod<FreeKvParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<FreeKvPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewFreeKvPlan(plan, params());
  }
  std::string AsRun() const override { return "FreeKV's engine, code 2c8a7d2"; }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const FreeKvParams& p = params();
    Footprint bytes =
        PagedFootprint(model, context, batch, p.dense_layers, p.page, p.budget, model.kv_heads);
    const int64_t buffers = p.double_buffer ? 2 : 1;
    switch (p.recall) {
      case FreeKvParams::Recall::kPerPage:
      case FreeKvParams::Recall::kBatched:
        // Shared by all layers; each holds all pages of one sequence and KV head.
        bytes.gpu_buffers = buffers * HeadBufferBytes(model, p.budget);
        break;
      case FreeKvParams::Recall::kStaged: {
        // A layer's misses at worst, in pinned memory and where they land.
        const int64_t layer = batch * p.slots() * p.page * model.KvBytesPerTokenLayer();
        bytes.gpu_buffers = buffers * layer;
        bytes.host += buffers * layer;
        break;
      }
      case FreeKvParams::Recall::kZeroCopy:
        break;
    }
    if (p.checks()) {
      const int64_t sparse = std::max<int64_t>(model.layers - p.dense_layers, 0);
      bytes.gpu_buffers +=
          batch * sparse * model.query_heads * model.head_dim * llm::kActivationBytes;
    }
    return bytes;
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const FreeKvParams params = Table().Parse(values);
  CheckWholePages(kName, "budget", params.budget, params.page);
  CheckWholePages(kName, "sink", params.sink, params.page);
  CheckWholePages(kName, "window", params.window, params.page);
  CheckBudget(kName, params.budget, params.sink + params.window + params.page,
              "sink, window and one page to choose");
  return std::make_unique<FreeKvMethod>(Table(), params);
}

}  // namespace

MethodInfo FreeKv() {
  return {.name = kName,
          .title = "FreeKV",
          .summary = "pages recalled a step ahead, corrected where the query has drifted",
          .source = "FreeKV paper; public code 2c8a7d2",
          .params = Table().specs(),
          .presets = {},
          .make = Make,
          .by_kind = {{"tau", "0.8", "0.9"}}};
}

}  // namespace stallcast::methods
