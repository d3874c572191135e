#include "models/methods/magicpig/plan.h"

#include <algorithm>

#include "models/methods/common/host_attention.h"

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::Role;

constexpr Bytes kCodeBytes = 2;   // of a hash of 16 bits at most
constexpr Bytes kTokenBytes = 4;  // of a token's id in a bucket
// Keys are hashed, and go to the host, so many at a time.
constexpr int64_t kChunk = 8192;

class MagicPigPlan : public PlanWriter {
 public:
  MagicPigPlan(DecoderPlan& plan, const MagicPigParams& params)
      : plan_(plan), builder_(plan.builder), model_(plan.input.model), params_(params) {
    plan.notes.emplace_back(
        "MagicPIG's mass is of the tokens sampled; its weights correct for those that are not");
    plan.notes.emplace_back("buckets of MagicPIG's tables are reckoned as all of one size");
  }

  void Attention(int step, int layer) override {
    const int64_t hashed = params_.Hashed(plan_.input.prompt_tokens);
    if (layer < params_.dense_layers || hashed == 0) {
      plan_.AttendAll(step, layer);
      return;
    }
    const auto access = plan_.Access(step, layer);
    const int64_t near = plan_.Context(step) - hashed;
    const int64_t rows = int64_t{plan_.input.batch} * model_.query_heads;
    const int64_t sampled =
        std::max<int64_t>(0, access.attended_tokens - std::ssize(access.cells) * near);
    const int64_t hashes = params_.bits * params_.tables;
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.compute, plan::Gemm{rows, hashes, model_.head_dim});
    builder_.Run(plan_.compute, plan::Layout{rows, params_.tables * kCodeBytes});
    builder_.SetRole(Role::kSync);
    builder_.Run(plan_.compute, Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                                     rows * params_.tables * int64_t{sizeof(int32_t)}});
    builder_.SyncStream(plan_.host, plan_.compute);
    AttendOnHost(plan_, layer,
                 {.kv_tokens = sampled,
                  .group = 1,
                  .threads = static_cast<int32_t>(params_.threads),
                  .search = [&] { Probe(layer, rows, hashed); }},
                 [&] { plan_.Attend(layer, plan_.kv_rows() * near, near); });
    MergeWithHost(plan_, layer);
  }

  void BeforePrefillAttention(int layer) override {
    const int64_t hashed = params_.Hashed(plan_.input.prompt_tokens);
    if (layer < params_.dense_layers || hashed == 0) return;
    const int64_t rows = plan_.kv_rows();
    for (int64_t at = 0; at < hashed; at += kChunk) {
      const int64_t tokens = rows * std::min(kChunk, hashed - at);
      builder_.At(layer, Role::kIndex);
      builder_.Run(plan_.compute,
                   plan::Gemm{tokens, params_.bits * params_.tables, model_.head_dim});
      builder_.Run(plan_.compute, plan::Layout{tokens, params_.tables * kCodeBytes});
    }
    // Keys, values and lengths, for which the host waits.
    for (const Bytes row : {model_.KvRowBytes(), model_.KvRowBytes(), Bytes{sizeof(float)}}) {
      builder_.At(layer, Role::kOffload);
      builder_.Run(plan_.compute,
                   Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1, rows * hashed * row});
      builder_.SetRole(Role::kSync);
      builder_.SyncStream(plan_.host, plan_.compute);
    }
    // The GPU sorts by bucket; the host takes the sorted tokens and their buckets' bounds.
    builder_.SetRole(Role::kIndex);
    builder_.Run(plan_.compute, plan::Sort{rows * params_.tables, hashed});
    builder_.SetRole(Role::kOffload);
    builder_.Run(plan_.compute, Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                                     rows * params_.tables * hashed * (kCodeBytes + kTokenBytes)});
    builder_.SetRole(Role::kSync);
    builder_.SyncStream(plan_.host, plan_.compute);
  }

  // The host fills its tables while the GPU attends the prompt.
  void AfterPrefillAttention(int layer) override {
    const int64_t hashed = params_.Hashed(plan_.input.prompt_tokens);
    if (layer < params_.dense_layers || hashed == 0) return;
    builder_.At(layer, Role::kHost);
    const int64_t tables = plan_.kv_rows() * params_.tables;
    builder_.Run(plan_.host, plan::HostLookup{tables * params_.buckets(),
                                              2 * tables * hashed * (kCodeBytes + kTokenBytes),
                                              static_cast<int32_t>(params_.threads)});
    builder_.At(layer, Role::kLayout);
    builder_.Run(plan_.compute, plan::Layout{2 * plan_.kv_rows() * (params_.sink + params_.window),
                                             model_.KvRowBytes()});
  }

 private:
  // Of each query head: a count a token is cleared, counted up for what each table's bucket holds,
  // and read.
  void Probe(int layer, int64_t rows, int64_t hashed) {
    const int64_t met = params_.tables * hashed / params_.buckets();
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.host, plan::HostLookup{rows * params_.tables,
                                              rows * (2 * hashed + met * (kTokenBytes + 1)),
                                              static_cast<int32_t>(params_.threads)});
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  MagicPigParams params_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewMagicPigPlan(DecoderPlan& plan, const MagicPigParams& params) {
  return std::make_unique<MagicPigPlan>(plan, params);
}

}  // namespace stallcast::methods
