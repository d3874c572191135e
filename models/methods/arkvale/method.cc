#include "models/methods/arkvale/plan.h"
#include "models/methods/arkvale/policy.h"
#include "models/methods/common/configured_method.h"
#include "models/methods/common/footprint.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "arkvale";

const ParamTable<ArkValeParams>& Table() {
  using P = ArkValeParams;
  static const auto table =
      ParamTable<P>(kName)
          .Choice("variant", &P::variant, {"published", "freekv"}, Affects::kSelection,
                  "one page set a layer and 128 KiB copies, or a set a KV head and 16 KiB copies",
                  "ArkVale code 0c3b45e; FreeKV code, recall_impl arkvale")
          .Integer("budget", &P::budget, "tokens", 1, 1 << 30, Affects::kSelection,
                   "tokens on the GPU and attended, sink and window included",
                   "FreeKV 5.1: 2,048; ArkVale code: 4,096")
          .Integer("page", &P::page, "tokens", 1, 4096, Affects::kSelection, "page size",
                   "ArkVale code: 32")
          .Integer("topk", &P::topk, "pages", 0, 1 << 20, Affects::kSelection,
                   "pages selected a step, sink and full window pages included; 0: the paper's "
                   "min(1280, budget/2)/page (published variant only)",
                   "ArkVale paper: min(40*32, c/2)/p; code: 32")
          .Integer("sink", &P::sink, "tokens", 0, 1 << 20, Affects::kSelection, "first tokens kept",
                   "ArkVale code: 2 pages; FreeKV ran 512")
          .Integer("window", &P::window, "tokens", 1, 1 << 20, Affects::kSelection,
                   "last tokens kept, the partial page included",
                   "ArkVale code: 2 pages; FreeKV ran 512")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, Affects::kSelection,
                   "first layers that attend everything", "ArkVale benchmarks: 2; FreeKV ran 1");
  return table;
}

class ArkValeMethod final : public DenseFirstMethod<ArkValeParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<ArkValePolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewArkValePlan(plan, params());
  }
  std::string AsRun() const override {
    return params().variant == ArkValeParams::Variant::kPublished
               ? "ArkVale's code 0c3b45e"
               : "FreeKV's code 2c8a7d2 with RECALL_IMPL=naive";
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const bool per_head = params().variant == ArkValeParams::Variant::kFreeKv;
    Footprint bytes = PagedFootprint(model, context, batch, params().dense_layers, params().page,
                                     params().budget, per_head ? model.kv_heads : 1);
    // FreeKV's recall lands in a buffer of one head's pages before it is scattered.
    if (per_head) bytes.gpu_buffers = HeadBufferBytes(model, params().budget);
    return bytes;
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const ArkValeParams params = Table().Parse(values);
  CheckWholePages(kName, "budget", params.budget, params.page);
  CheckWholePages(kName, "sink", params.sink, params.page);
  CheckWholePages(kName, "window", params.window, params.page);
  CheckBudget(kName, params.budget, params.sink + params.window + params.page,
              "sink, window and one page to choose");
  CheckBudget(kName, params.budget, params.topk * params.page, "the top-k pages");
  if (params.topk > 0 && params.ranked() < 1) {
    throw UsageError(fmt::format("topk of {} leaves no page beside sink and window", params.topk),
                     kName,
                     fmt::format("give more than {}, or 0 for the paper's rule",
                                 params.sink_pages() + params.window_pages() - 1));
  }
  return std::make_unique<ArkValeMethod>(Table(), params);
}

}  // namespace

MethodInfo ArkVale() {
  return {
      .name = kName,
      .title = "ArkVale",
      .summary = "cache on the host, missing top-k pages recalled before attention",
      .source = "ArkVale, public code 0c3b45e; FreeKV 5.1 and code 2c8a7d2 for the variant",
      .params = Table().specs(),
      .presets =
          {{"arkvale-freekv",
            {{"variant", "freekv"}, {"sink", "512"}, {"window", "512"}, {"dense_layers", "1"}}}},
      .make = Make};
}

}  // namespace stallcast::methods
