#include "models/methods/shadowkv/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "traces/common/error.h"

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::LaneId;
using plan::OpId;
using plan::Purpose;
using plan::Role;

constexpr int64_t kBlockThreads = 1024;  // of a zero-copy gather

// What is chosen stays in its slot while it is chosen again; the public code moves it together
// instead.
class ShadowKvPlan : public PlanWriter {
 public:
  ShadowKvPlan(DecoderPlan& plan, const ShadowKvParams& params)
      : plan_(plan),
        builder_(plan.builder),
        model_(plan.input.model),
        params_(params),
        recall_(builder_.AddStream("recall", plan.host)),
        offload_(builder_.AddStream("offload", plan.host)) {
    const int64_t steps = plan.input.steps;
    if (params.update == 0 && steps > params.reserve && Sparse(0)) {
      throw UsageError(fmt::format("{} decoded tokens, but there is room for {} on the GPU", steps,
                                   params.reserve),
                       "shadowkv", "raise reserve, or give an update interval");
    }
  }

  void BeginStep(int step) override {
    if (params_.update == 0 || step == 0 || step % params_.update != 0 || !Sparse(step)) return;
    const int64_t before = Sparse(step - 1) ? params_.RegionChunks(Indexed(step - 1)) : 0;
    for (int layer = First(); layer < model_.layers; ++layer) {
      Index(layer, Indexed(step));
      Offload(layer, params_.RegionChunks(Indexed(step)) - before, builder_.Last(plan_.compute));
      KeepWhole(layer, Indexed(step));
    }
    builder_.At(-1, Role::kSync);
    builder_.SyncStream(plan_.host, offload_);
  }

  void Attention(int step, int layer) override {
    if (layer < First() || !Sparse(step)) {
      plan_.AttendAll(step, layer);
      return;
    }
    const auto access = plan_.Access(step, layer);
    const int64_t candidates = params_.Candidates(Indexed(step));
    const int64_t chosen = std::min(params_.chosen(), candidates);
    int64_t missed = 0, most = 0;
    for (const AccessCell& cell : access.cells) {
      missed += cell.recalled_now;
      most = std::max<int64_t>(most, cell.recalled_now);
    }
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.compute, plan::Score{candidates, Rows(), model_.group(), /*vectors=*/1,
                                            model_.head_dim, plan::Score::Pool::kSoftmax});
    builder_.For(Purpose::kChooseUnits).Run(plan_.compute, plan::TopK{Rows(), candidates, chosen});
    const OpId assigned = builder_.Run(plan_.compute, plan::AssignSlots{Rows(), chosen, chosen});
    OpId fetched = OpId::kNone;
    if (missed > 0) {
      builder_.SetRole(Role::kRecall);
      const Bytes piece = params_.chunk * RowBytes();
      fetched = builder_.Run(recall_,
                             plan_.Scattered({.pieces = missed,
                                              .piece_bytes = piece,
                                              .blocks = Blocks(),
                                              .lookup = plan::ZeroCopyGather::Lookup::kAhead},
                                             Rows() * PoolTokens(step) * RowBytes(), step, layer),
                             {assigned});
      builder_.SetRole(Role::kLayout);
      builder_.Run(plan_.compute, plan::RebuildKeys{Rows(), missed * params_.chunk, Rank(),
                                                    model_.head_dim, most * params_.chunk});
    }
    plan_.Attend(layer, access.attended_tokens, access.attended_tokens_max, {fetched});
  }

  void BeforePrefillAttention(int layer) override {
    if (layer < First() || !Sparse(0)) return;
    const OpId appended = builder_.Last(plan_.compute);
    Index(layer, Indexed(0));
    Offload(layer, params_.RegionChunks(Indexed(0)), appended);
  }

  void AfterPrefillAttention(int layer) override {
    if (layer >= First() && Sparse(0)) KeepWhole(layer, Indexed(0));
  }

  void EndPrefill() override {
    if (Sparse(0)) builder_.SyncStream(plan_.host, offload_);
  }

 private:
  int First() const { return static_cast<int>(params_.dense_layers); }
  int64_t Rows() const { return plan_.kv_rows(); }
  int64_t Indexed(int step) const { return params_.Indexed(plan_.input.prompt_tokens, step); }
  bool Sparse(int step) const { return params_.Sparse(Indexed(step)); }
  int32_t Rank() const { return static_cast<int32_t>(params_.rank); }
  Bytes RowBytes() const { return model_.KvRowBytes(); }
  int64_t PoolTokens(int step) const { return params_.RegionChunks(Indexed(step)) * params_.chunk; }
  int32_t Blocks() const {
    const int64_t threads = Rows() * params_.fetch_threads;
    return static_cast<int32_t>((threads + kBlockThreads - 1) / kBlockThreads);
  }

  // Factors of all keys, for which the host waits as in the public code; landmarks; outliers.
  void Index(int layer, int64_t tokens) {
    const int64_t chunks = params_.RegionChunks(tokens);
    builder_.At(layer, Role::kIndex);
    builder_.Run(plan_.compute, plan::FactorizeKeys{plan_.input.batch, tokens, model_.kv_heads,
                                                    model_.head_dim, Rank()});
    builder_.SetRole(Role::kSync);
    builder_.SyncStream(plan_.host, plan_.compute);
    builder_.SetRole(Role::kIndex);
    builder_.Run(plan_.compute,
                 plan::Summarize{Rows() * chunks, static_cast<int32_t>(params_.chunk),
                                 /*vectors=*/1, model_.head_dim});
    if (params_.outliers > 0) {
      builder_.For(Purpose::kChooseOutliers)
          .Run(plan_.compute, plan::TopK{Rows(), chunks, params_.outliers});
    }
    builder_.For(Purpose::kKeepLandmarks)
        .Run(plan_.compute, plan::Layout{Rows() * params_.Candidates(tokens), RowBytes()});
  }

  // Values alone.
  void Offload(int layer, int64_t chunks, OpId ready) {
    builder_.At(layer, Role::kOffload);
    builder_.Run(offload_,
                 Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                      Rows() * chunks * params_.chunk * RowBytes()},
                 {ready});
  }

  // Outliers, and local chunks with what is left of one, to their places.
  void KeepWhole(int layer, int64_t tokens) {
    const int64_t region = params_.RegionChunks(tokens) * params_.chunk;
    const int64_t kept = params_.outliers * params_.chunk + tokens - region;
    builder_.At(layer, Role::kLayout);
    builder_.For(Purpose::kKeepPrompt)
        .Run(plan_.compute, plan::Layout{2 * Rows() * kept, RowBytes()});
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  ShadowKvParams params_;
  LaneId recall_, offload_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewShadowKvPlan(DecoderPlan& plan, const ShadowKvParams& params) {
  return std::make_unique<ShadowKvPlan>(plan, params);
}

}  // namespace stallcast::methods
