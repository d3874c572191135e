#include "models/methods/common/configured_method.h"
#include "models/methods/common/footprint.h"
#include "models/methods/raas/plan.h"
#include "models/methods/raas/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "raas";

const ParamTable<RaasParams>& Table() {
  using P = RaasParams;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("budget", &P::budget, "tokens", 1, 1 << 30, Affects::kSelection,
                   "tokens kept, the newest page included; a pinned prompt apart",
                   "FreeKV 5.1: 2,048; RaaS 4: 1,024")
          .Integer("page", &P::page, "tokens", 1, 4096, Affects::kSelection, "page size",
                   "RaaS 4: 16")
          .Real("alpha", &P::alpha, 0, 1, Affects::kSelection,
                "a page is attended where its weight is more", "RaaS 3: 1e-4")
          .Choice("prompt", &P::prompt, {"pinned", "evicted"}, Affects::kSelection,
                  "pages of the prompt stay for good, or are dropped as others",
                  "RaaS 3: pinned; FreeKV ran it with a prompt cut down")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, Affects::kSelection,
                   "first layers that keep everything", "as Quest, whose code it extends: 2");
  return table;
}

class RaasMethod final : public DenseFirstMethod<RaasParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<RaasPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewRaasPlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const RaasParams& p = params();
    const int64_t dense = std::min<int64_t>(p.dense_layers, model.layers);
    const int64_t sparse = model.layers - dense, pages = Pages(context, p.page);
    // All of a context may be prompt.
    const int64_t kept =
        p.prompt == RaasParams::Prompt::kPinned ? pages : std::min(pages, p.budget_pages());
    const int64_t token = model.KvBytesPerTokenLayer();
    return {
        .gpu_kv = batch * (dense * context + sparse * kept * p.page) * token,
        // Two bounds and a time a page.
        .gpu_index = batch * sparse * kept * (token + model.kv_heads * int64_t{sizeof(int32_t)})};
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const RaasParams params = Table().Parse(values);
  CheckWholePages(kName, "budget", params.budget, params.page);
  CheckBudget(kName, params.budget, 2 * params.page, "the newest page and one to keep");
  return std::make_unique<RaasMethod>(Table(), params);
}

}  // namespace

MethodInfo Raas() {
  return {.name = kName,
          .title = "RaaS",
          .summary = "pages not attended for longest are dropped",
          .source = "RaaS, paper; FreeKV's port of it for prompt=evicted",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
