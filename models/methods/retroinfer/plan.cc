#include "models/methods/retroinfer/plan.h"

#include <algorithm>

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::LaneId;
using plan::OpId;
using plan::Role;

// A lookup reads a table and moves the cluster to the front of a list: its entry, its node and both
// neighbours.
constexpr int64_t kAccessesALookup = 4;

class RetroInferPlan : public PlanWriter {
 public:
  RetroInferPlan(DecoderPlan& plan, const RetroInferParams& params)
      : plan_(plan),
        builder_(plan.builder),
        model_(plan.input.model),
        params_(params),
        offload_(builder_.AddStream("offload", plan.host)) {
    plan.notes.emplace_back("what RetroInfer's estimation zone gives is in no mass and no error");
  }

  // All layers cluster the decoded tokens that have left the window at once, and wait for it.
  void BeginStep(int step) override {
    if (step == 0 || step % params_.update != 0 || !Sparse()) return;
    for (int layer = First(); layer < model_.layers; ++layer) {
      Cluster(layer, params_.update, params_.ClustersOf(params_.update));
      Send(layer, params_.update);
      builder_.At(layer, Role::kHost);
      Scatter(params_.update);
    }
  }

  void Attention(int step, int layer) override {
    if (layer < First() || !Sparse()) {
      plan_.AttendAll(step, layer);
      return;
    }
    const auto access = plan_.Access(step, layer);
    int64_t missed = 0;
    for (const AccessCell& cell : access.cells) missed += cell.recalled_now;
    const int64_t clusters = params_.Clusters(plan_.input.prompt_tokens, step);
    const int64_t retrieved = params_.Retrieved(clusters), estimated = params_.Estimated(clusters);
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.compute, plan::Score{clusters, Rows(), model_.group(), /*vectors=*/1,
                                            model_.head_dim, plan::Score::Pool::kSoftmax});
    builder_.Run(plan_.compute, plan::TopK{Rows(), clusters, retrieved + estimated});
    builder_.SetRole(Role::kSync);
    const OpId ids =
        builder_.Run(plan_.compute, Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                                         Rows() * retrieved * int64_t{sizeof(int64_t)}});
    builder_.SetRole(Role::kAttention);
    if (estimated > 0) {
      builder_.Run(plan_.compute,
                   plan::WeightedAttention{estimated, Rows(), model_.group(), model_.head_dim});
    }
    builder_.SetRole(Role::kSync);
    builder_.Run(plan_.host, plan::HostSync{}, {ids});
    builder_.SetRole(Role::kHost);
    const OpId found = builder_.Run(
        plan_.host, plan::HostLookup{Rows() * retrieved * kAccessesALookup, 0, Threads()});
    Bring(step, layer, retrieved, missed, found);
    plan_.Attend(layer, access.attended_tokens, access.attended_tokens_max);
    if (estimated > 0) {
      builder_.Run(plan_.compute, plan::MergeStates{Rows() * model_.group(), model_.head_dim});
    }
    // Misses move from where they were attended into the cache.
    if (missed == 0) return;
    builder_.SetRole(Role::kLayout);
    builder_.Run(plan_.compute, plan::Layout{2 * missed, PieceBytes()});
  }

  void BeforePrefillAttention(int layer) override {
    if (layer < First() || !Sparse()) return;
    const int64_t tokens = params_.Clustered(plan_.input.prompt_tokens);
    for (int64_t at = 0; at < tokens; at += params_.segment) {
      const int64_t count = std::min(params_.segment, tokens - at);
      Cluster(layer, count, params_.ClustersOf(count));
    }
    Send(layer, tokens);
  }

  // The host puts keys and values in the order of their clusters while the next layer runs.
  void AfterPrefillAttention(int layer) override {
    if (layer < First() || !Sparse()) return;
    builder_.At(layer, Role::kLayout);
    builder_.Run(plan_.compute,
                 plan::Layout{2 * Rows() * (params_.sink + params_.window), model_.KvRowBytes()});
    builder_.SetRole(Role::kHost);
    Scatter(params_.Clustered(plan_.input.prompt_tokens));
  }

 private:
  int First() const { return static_cast<int>(params_.dense_layers); }
  bool Sparse() const { return params_.Clustered(plan_.input.prompt_tokens) > 0; }
  int64_t Rows() const { return plan_.kv_rows(); }
  int32_t Threads() const { return static_cast<int32_t>(params_.threads); }
  // A cluster's keys, or values, lie in one piece.
  Bytes PieceBytes() const { return params_.cluster * model_.KvRowBytes(); }

  void Cluster(int layer, int64_t tokens, int64_t clusters) {
    builder_.At(layer, Role::kIndex);
    builder_.Run(plan_.compute, plan::KMeans{Rows(), tokens, clusters, model_.head_dim,
                                             static_cast<int32_t>(params_.iterations)});
    // Sums of values.
    builder_.Run(plan_.compute,
                 plan::Summarize{Rows() * clusters, static_cast<int32_t>(params_.cluster), 1,
                                 model_.head_dim});
  }

  // Keys and values by a stream of their own, and labels, for which the host waits.
  void Send(int layer, int64_t tokens) {
    const OpId ready = builder_.Last(plan_.compute);
    builder_.At(layer, Role::kOffload);
    sent_ = builder_.Run(offload_,
                         Copy{Direction::kDeviceToHost, CopyPath::kPerPiece, 2,
                              Rows() * tokens * model_.KvRowBytes()},
                         {ready});
    builder_.SetRole(Role::kSync);
    builder_.Run(plan_.compute, Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                                     Rows() * tokens * int64_t{sizeof(int32_t)}});
    builder_.SyncStream(plan_.host, plan_.compute);
  }

  void Scatter(int64_t tokens) {
    builder_.Run(plan_.host, plan::HostGather{2 * Rows() * tokens, model_.KvRowBytes(), Threads()},
                 {sent_});
  }

  // Steady zone and hits from device memory, misses from the host, into one buffer.
  void Bring(int step, int layer, int64_t retrieved, int64_t missed, OpId found) {
    builder_.At(layer, Role::kLayout);
    const int64_t steady = params_.Steady(plan_.input.prompt_tokens, step);
    const int64_t moved =
        Rows() * steady + std::max<int64_t>(0, Rows() * retrieved - missed) * params_.cluster;
    const OpId hits =
        builder_.Run(plan_.compute, plan::Layout{2 * moved, model_.KvRowBytes()}, {found});
    if (missed == 0) return;
    builder_.SetRole(Role::kRecall);
    builder_.Run(
        plan_.compute,
        plan_.Scattered({.pieces = 2 * missed,
                         .piece_bytes = PieceBytes(),
                         .blocks = static_cast<int32_t>(Rows() * params_.fetch_blocks)},
                        plan_.input.batch * plan_.Context(step) * model_.KvBytesPerTokenLayer(),
                        step, layer, /*parts=*/2),
        {hits});
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  RetroInferParams params_;
  LaneId offload_;
  OpId sent_ = OpId::kNone;
};

}  // namespace

std::unique_ptr<PlanWriter> NewRetroInferPlan(DecoderPlan& plan, const RetroInferParams& params) {
  return std::make_unique<RetroInferPlan>(plan, params);
}

}  // namespace stallcast::methods
