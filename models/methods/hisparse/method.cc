#include "models/methods/common/configured_method.h"
#include "models/methods/common/footprint.h"
#include "models/methods/hisparse/plan.h"
#include "models/methods/hisparse/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "hisparse";

const ParamTable<HiSparseParams>& Table() {
  using P = HiSparseParams;
  static const auto table =
      ParamTable<P>(kName)
          .Integer("budget", &P::budget, "tokens", 1, 1 << 30, Affects::kSelection,
                   "tokens attended, the newest page included", "DSA: 2,048")
          .Integer("page", &P::page, "tokens", 1, 4096, Affects::kSelection,
                   "tokens chosen and fetched together; 1: each by its own key",
                   "Quest code: 16; DSA: 1")
          .Integer("buffer", &P::buffer, "tokens", 1, 1 << 30, Affects::kSelection,
                   "tokens that a KV head has on the GPU, beside the newest page",
                   "SGLang, device_buffer_size: 4,096")
          .Choice("eviction", &P::eviction, {"lru", "fifo", "random", "belady"},
                  Affects::kSelection,
                  "who leaves a full buffer: least recently used, first in, any, or the one used "
                  "last again (a bound, it knows the future)",
                  "SGLang: lru")
          .Choice("group", &P::group, {"max", "mean"}, Affects::kSelection,
                  "how a group's query heads agree on what their KV head attends",
                  "FreeKV and LouisKV ran Quest with max")
          .Integer("dense_layers", &P::dense_layers, "layers", 0, 1024, Affects::kSelection,
                   "first layers that attend everything", "Quest code: 2; DSA: 0")
          .Integer("blocks", &P::blocks, "blocks", 1, 64, Affects::kPlan,
                   "blocks of 1,024 threads that fetch for a sequence and KV head",
                   "SGLang: one a request and layer");
  return table;
}

class HiSparseMethod final : public DenseFirstMethod<HiSparseParams, kName> {
 public:
  using DenseFirstMethod::DenseFirstMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<HiSparsePolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewHiSparsePlan(plan, params());
  }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const HiSparseParams& p = params();
    const int64_t dense = std::min<int64_t>(p.dense_layers, model.layers);
    const int64_t sparse = model.layers - dense;
    const int64_t units = Pages(context, p.page), slots = std::min(units, p.slots() + 1);
    const int64_t token = model.KvBytesPerTokenLayer(), page = p.page * token;
    // Two bounds of a page, or the keys again; the slot of each unit and the unit of each slot.
    const int64_t index = units * (p.page > 1 ? token : token / 2);
    const int64_t maps = model.kv_heads * (units + slots) * int64_t{sizeof(int32_t)};
    return {.gpu_kv = batch * (dense * context * token + sparse * slots * page),
            .gpu_index = batch * sparse * (index + maps),
            .gpu_buffers = batch * sparse * page,
            .host = batch * sparse * units * page};
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const HiSparseParams params = Table().Parse(values);
  CheckWholePages(kName, "budget", params.budget, params.page);
  CheckWholePages(kName, "buffer", params.buffer, params.page);
  CheckBudget(kName, params.budget, 2 * params.page, "the newest page and one to choose");
  if (params.buffer < params.budget) {
    throw UsageError(fmt::format("a buffer of {} tokens cannot hold the {} that a step attends",
                                 params.buffer, params.budget),
                     kName, "raise buffer or lower budget");
  }
  return std::make_unique<HiSparseMethod>(Table(), params);
}

}  // namespace

MethodInfo HiSparse() {
  return {.name = kName,
          .title = "HiSparse",
          .summary = "Quest's pages from a GPU buffer with replacement, misses read from the host",
          .source = "SGLang, pull request 20343; vLLM, pull request 53781: for DSA's tokens",
          .params = Table().specs(),
          .presets = {},
          .make = Make};
}

}  // namespace stallcast::methods
