#include "models/methods/common/configured_method.h"
#include "models/methods/common/footprint.h"
#include "models/methods/louiskv/plan.h"
#include "models/methods/louiskv/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "louiskv";

const ParamTable<LouisKvParams>& Table() {
  using P = LouisKvParams;
  constexpr Affects kSelection = Affects::kSelection, kPlan = Affects::kPlan;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("budget", &P::budget, "tokens", 1, 1 << 30, kSelection,
                   "tokens on the GPU and attended, sink and local buffer included",
                   "paper D.2; 512 and 1,024 in its tables; FreeKV 5.1: 2,048")
          .Integer("sink", &P::sink, "tokens", 0, 1 << 20, kSelection, "first tokens kept",
                   "paper 5.2: 64 long input and output; 32 long input, 500 long output")
          .Integer("window", &P::window, "tokens", 1, 1 << 20, kSelection,
                   "newest tokens kept, in segments",
                   "paper 5.2: 256 long input and output; 512 long input, 128 long output")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, kSelection,
                   "first layers that attend everything", "paper 5.1: 2")
          .Real("tau", &P::tau, -1, 1, kSelection,
                "a segment begins where the mean cosine of adjacent queries is lower",
                "paper 5.2: 0.7 long output, 0.85 long input")
          .Choice("trigger", &P::trigger, {"boundary", "every-token", "stride"}, kSelection,
                  "when a layer retrieves", "paper 4.1; the others are its ablations (5.4)")
          .Integer("stride", &P::stride, "steps", 1, 1 << 20, kSelection,
                   "steps between retrievals of trigger=stride",
                   "paper D.3: 16 long output, 5 long input")
          .Choice("units", &P::units, {"clusters", "pages"}, kSelection,
                  "what is retrieved: clusters of the prompt and segments of the output, or pages",
                  "paper 4.2; pages are its ablation (D.3)")
          .Integer("cluster", &P::cluster, "tokens", 1, 4096, kSelection,
                   "mean size of a cluster; size of a page", "paper 5.1: 16")
          .Integer("iterations", &P::iterations, "passes", 1, 100, kSelection,
                   "assignments that k-means makes", "assumed: the paper does not say")
          .Flag("prompt_window", &P::prompt_window, kSelection,
                "the local buffer starts with the prompt's last tokens, which are not clustered",
                "paper 5.1; off: it starts empty, as in its algorithm 1")
          .Choice("group", &P::group, {"consistent", "query-head"}, kSelection,
                  "who chooses: a KV head by its group's mean, or each query head",
                  "paper appendix B; query-head is its ablation (5.4)")
          .Choice("kernel", &P::kernel, {"fused", "passes"}, kPlan,
                  "choose units in one kernel, or in a framework's passes over their scores",
                  "paper 4.3; passes are its ablation (5.4)")
          .Choice("recall", &P::recall, {"rows", "staged"}, kPlan,
                  "how tokens cross the link: read by a kernel, or gathered by the host and copied",
                  "paper 4.3: rows, by DGL")
          .Choice("pool", &P::pool, {"split", "paired"}, kPlan,
                  "host rows: a token's key and value apart, or side by side",
                  "split: as frameworks keep them; paired is a what-if")
          .Integer("zero_copy_blocks", &P::zero_copy_blocks, "blocks", 1, 1024, kPlan,
                   "thread blocks that read host memory in recall=rows",
                   "assumed: enough to fill the link")
          .Integer("workers", &P::workers, "threads", 1, 256, kPlan,
                   "host threads that gather in recall=staged", "what-if");
  return table;
}

class LouisKvMethod final : public DenseFirstMethod<LouisKvParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<LouisKvPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewLouisKvPlan(plan, params());
  }
  // Keys, values and centroids are those of the paper's table 3, with the segments of the output as
  // long as the clusters of the prompt. What the table leaves out: dense layers, and buffers.
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const LouisKvParams& p = params();
    const int64_t dense = std::min<int64_t>(p.dense_layers, model.layers);
    const int64_t sparse = model.layers - dense;
    const int64_t heads =
        p.group == LouisKvParams::Group::kConsistent ? model.kv_heads : model.query_heads;
    const int64_t token_head = model.KvBytesPerTokenLayer() / model.kv_heads;
    const int64_t kept = p.sink + p.window;
    Footprint bytes;
    // Each selection head holds its own choice of tokens; sink and local buffer are shared.
    const int64_t chosen = std::clamp<int64_t>(context - kept, 0, p.capacity());
    bytes.gpu_kv = batch * (dense * context + sparse * std::min(context, kept)) *
                       model.KvBytesPerTokenLayer() +
                   batch * sparse * heads * chosen * token_head;
    const int64_t units = Pages(context, p.cluster);
    bytes.gpu_index = batch * sparse * units * model.KvBytesPerTokenLayer() / 2;
    // The tokens of each unit and where the unit begins, 4 bytes each.
    bytes.gpu_buffers =
        batch * sparse * model.kv_heads * (context + units + 1) * int64_t{sizeof(int32_t)};
    if (p.compares()) {
      bytes.gpu_buffers +=
          batch * sparse * model.query_heads * model.head_dim * llm::kActivationBytes;
    }
    bytes.host =
        batch * sparse * std::max<int64_t>(context - kept, 0) * model.KvBytesPerTokenLayer();
    if (p.recall == LouisKvParams::Recall::kStaged) {
      const int64_t layer = batch * heads * p.capacity() * token_head;
      bytes.gpu_buffers += layer;
      bytes.host += layer;
    }
    return bytes;
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const LouisKvParams params = Table().Parse(values);
  CheckBudget(kName, params.budget, params.sink + params.window + params.cluster,
              "sink, window and one cluster");
  return std::make_unique<LouisKvMethod>(Table(), params);
}

}  // namespace

MethodInfo LouisKv() {
  return {.name = kName,
          .title = "LouisKV",
          .summary = "clusters and segments retrieved where the queries drift",
          .source = "LouisKV paper",
          .params = Table().specs(),
          .presets = {},
          .make = Make,
          .by_kind = {{"tau", "0.85", "0.7"}}};
}

}  // namespace stallcast::methods
