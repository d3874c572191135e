#include "models/methods/common/configured_method.h"
#include "models/methods/common/footprint.h"
#include "models/methods/quest/plan.h"
#include "models/methods/quest/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "quest";

const ParamTable<QuestParams>& Table() {
  using P = QuestParams;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("budget", &P::budget, "tokens", 1, 1 << 30, Affects::kSelection,
                   "tokens attended, the last page included", "FreeKV 5.1: 2,048")
          .Integer("page", &P::page, "tokens", 1, 4096, Affects::kSelection, "page size",
                   "Quest code: 16; FreeKV ran 32")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, Affects::kSelection,
                   "first layers that attend everything", "Quest code: 2; FreeKV ran 1")
          .Choice("group", &P::group, {"query-head", "max", "mean"}, Affects::kSelection,
                  "who chooses: each query head, or a KV head by its group's max or mean",
                  "Quest kernel: query-head; FreeKV and LouisKV ran max");
  return table;
}

class QuestMethod final : public DenseFirstMethod<QuestParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<QuestPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewQuestPlan(plan, params());
  }
  std::string AsRun() const override { return "Quest's code ade6f7c"; }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const int64_t pages = batch * Pages(context, params().page);
    const int64_t sparse = std::max<int64_t>(model.layers - params().dense_layers, 0);
    // A maximum and a minimum key a page are as large as one token's key and value.
    return {.gpu_kv = pages * params().page * model.KvBytesPerToken(),
            .gpu_index = sparse * pages * model.KvBytesPerTokenLayer()};
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const QuestParams params = Table().Parse(values);
  CheckWholePages(kName, "budget", params.budget, params.page);
  CheckBudget(kName, params.budget, 2 * params.page, "the last page and one to choose");
  return std::make_unique<QuestMethod>(Table(), params);
}

}  // namespace

MethodInfo Quest() {
  return {.name = kName,
          .title = "Quest",
          .summary = "all KV on the GPU, pages chosen by min-max bounds in every step",
          .source = "Quest, public code 01c1623",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
