#include <xxhash.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "models/methods/common/configured_method.h"
#include "models/methods/common/footprint.h"
#include "models/methods/wgkv/plan.h"
#include "models/methods/wgkv/policy.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "wgkv";
constexpr char kGateFile[] = "gate_file";

const ParamTable<WgKvParams>& Table() {
  using P = WgKvParams;
  constexpr Affects kSelection = Affects::kSelection, kPlan = Affects::kPlan;
  static const auto table =
      ParamTable<P>(kName)
          .Choice("gate", &P::gate, {"random", "oracle", "mlp"}, kSelection,
                  "what admits tokens: a random mask, the attention they will get, trained weights",
                  "paper I.3: random in its efficiency runs; 3.2: mlp")
          .Real("sparsity", &P::sparsity, 0, 1, kSelection,
                "share of tokens not admitted; with gate=mlp only what memory is reckoned with",
                "paper 5.3: 0.75")
          .Integer("seed", &P::seed, "", 0, 1 << 30, kSelection, "of the random mask", "any")
          .Real("threshold", &P::threshold, 0, 1, kSelection, "least score that gate=mlp admits",
                "paper 5.2: 0.1, at least; code: more than")
          .Text(kGateFile, &P::gate_file, kSelection,
                "safetensors file with the weights of gate=mlp", "public code's checkpoints")
          .Integer("expand", &P::expand, "head_dims", 1, 64, kSelection,
                   "hidden width of the gate's MLP", "code: 4")
          .Integer("window", &P::window, "tokens", 1, 1 << 20, kSelection,
                   "last tokens, all attended", "paper E: 256")
          .Integer("page", &P::page, "tokens", 1, 4096, kSelection, "page size, of one head",
                   "paper 4.1: 16")
          .Choice("select", &P::select, {"none", "quest"}, kSelection,
                  "which pages of the global cache are attended", "paper 5.4")
          .Integer("budget", &P::budget, "tokens", 1, 1 << 30, kSelection,
                   "tokens attended with select=quest, window included",
                   "code: includes the window")
          .Choice("evict", &P::evict, {"none", "snapkv"}, kSelection,
                  "what happens to a cache that outgrows its capacity", "paper 5.4, K.1")
          .Integer("capacity", &P::capacity, "tokens", 1, 1 << 30, kSelection,
                   "with evict=snapkv: mean a head over a layer's heads, window included, beyond "
                   "which a step first evicts, once",
                   "paper K.1: 4,096, over all layers")
          .Real("evict_share", &P::evict_share, 0, 1, kSelection,
                "of what a head keeps, dropped by an eviction, least important first",
                "paper K.1: 0.1")
          .Integer("observe", &P::observe, "queries", 1, 1 << 20, kSelection,
                   "last queries that score tokens for eviction, no more than the window has",
                   "paper K.1: 256")
          .Integer("smooth", &P::smooth, "tokens", 1, 1 << 10, kSelection,
                   "neighbours over which those scores are max-pooled", "paper K.1: 5")
          .Choice("prefill", &P::prefill, {"vertical-slash", "dense"}, kPlan,
                  "whether prefill skips what the gate masks", "paper 4.2; dense is its ablation")
          .Choice("host", &P::host, {"apart", "as-coded"}, kPlan,
                  "whether the host waits for the sizes of masks",
                  "code: 3 waits a step, one a head and layer in prefill");
  return table;
}

std::string FileHash(const std::string& path) {
  if (std::error_code ignored; !std::filesystem::is_regular_file(path, ignored)) {
    throw UsageError(
        std::filesystem::exists(path, ignored) ? "this is no file" : "there is no such file", path,
        "give gate_file the weights of the gate, a .safetensors file");
  }
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

class WgKvMethod final : public ConfiguredMethod<WgKvParams> {
 public:
  using ConfiguredMethod::ConfiguredMethod;

  std::unique_ptr<Policy> NewPolicy() const override {
    return std::make_unique<WgKvPolicy>(params());
  }
  std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const override {
    return NewWgKvPlan(plan, params());
  }
  /// A log is as good as the weights' content, wherever they lie.
  std::map<std::string, std::string> Params(bool only_selection) const override {
    auto values = ConfiguredMethod::Params(only_selection);
    if (only_selection && params().gate == WgKvParams::Gate::kMlp) {
      values[kGateFile] = FileHash(params().gate_file);
    }
    return values;
  }
  bool OwnHeadsOnly() const override { return params().gate == WgKvParams::Gate::kMlp; }
  Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const override {
    const WgKvParams& p = params();
    const int64_t rows = int64_t{batch} * model.layers * model.kv_heads;
    const int64_t window = std::min(p.window, context);
    // Eviction only begins once the whole prompt has been admitted.
    const double admitted = (1 - p.sparsity) * static_cast<double>(context - window);
    const int64_t pages =
        Pages(static_cast<int64_t>(std::ceil(admitted)), p.page) + Pages(window, p.page);
    const int64_t token = 2 * model.KvRowBytes();
    const int64_t hidden = p.expand * model.head_dim;
    const int64_t weights = (2 * model.head_dim + 2) * hidden + 1;
    const int64_t queries = p.evict == WgKvParams::Evict::kSnapKv
                                ? int64_t{batch} * model.layers * p.observe * model.query_heads *
                                      model.head_dim * llm::kActivationBytes
                                : 0;
    const int64_t summaries = p.select == WgKvParams::Select::kQuest ? rows * pages * token : 0;
    return {
        .gpu_kv = rows * pages * p.page * token,
        .gpu_index = rows * (pages * int64_t{sizeof(int32_t)} + window * int64_t{sizeof(float)}) +
                     summaries +
                     int64_t{model.layers} * model.kv_heads * weights * llm::kActivationBytes,
        .gpu_buffers = queries};
  }
};

std::unique_ptr<Method> Make(const ParamValues& values) {
  const WgKvParams params = Table().Parse(values);
  const bool mlp = params.gate == WgKvParams::Gate::kMlp;
  const bool file = params.gate_file != WgKvParams::kNoFile;
  if (mlp != file) {
    throw UsageError(
        mlp ? "gate is mlp, but gate_file is not given" : "gate_file is given, but gate is not mlp",
        kName, "give gate=mlp and gate_file=WEIGHTS.safetensors together");
  }
  if (mlp && (params.threshold <= 0 || params.threshold >= 1)) {
    throw UsageError(fmt::format("a threshold of {} admits all or nothing", params.threshold),
                     kName, "give one between 0 and 1");
  }
  if (params.select == WgKvParams::Select::kQuest) {
    CheckBudget(kName, params.budget, params.window + 2 * params.page,
                "the local window, the last page and one to choose");
  }
  if (params.evict == WgKvParams::Evict::kSnapKv) {
    if (params.capacity < params.window + params.page) {
      throw UsageError(fmt::format("a capacity of {} tokens is less than the local window and a "
                                   "page ({} tokens)",
                                   params.capacity, params.window + params.page),
                       kName, "raise capacity or lower window");
    }
    if (params.observe > params.window) {
      throw UsageError(fmt::format("observe of {} queries is more than the local window of {} "
                                   "tokens: older ones do not see all that is kept",
                                   params.observe, params.window),
                       kName, "lower observe or raise window");
    }
    if (params.smooth % 2 == 0) {
      throw UsageError(fmt::format("smooth of {} tokens has no middle one", params.smooth), kName,
                       "give an odd number");
    }
    if (params.evict_share <= 0 || params.evict_share >= 1) {
      throw UsageError(fmt::format("evict_share of {}", params.evict_share), kName,
                       "give one between 0 and 1");
    }
  }
  return std::make_unique<WgKvMethod>(Table(), params);
}

}  // namespace

MethodInfo WgKv() {
  return {
      .name = kName,
      .title = "WG-KV",
      .summary = "a gate admits tokens, a head each, before they are cached; sparse prefill",
      .source = "WG-KV paper; public code a694389",
      .params = Table().specs(),
      .presets = {{"wgkv-quest", {{"select", "quest"}}}, {"wgkv-snapkv", {{"evict", "snapkv"}}}},
      .make = Make};
}

}  // namespace stallcast::methods
