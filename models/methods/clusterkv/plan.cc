#include "models/methods/clusterkv/plan.h"

#include <algorithm>
#include <cmath>

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::LaneId;
using plan::OpId;
using plan::Role;

// Clustering has a stream of its own beside the prefill. Every query head has a cache of its own.
class ClusterKvPlan : public PlanWriter {
 public:
  ClusterKvPlan(DecoderPlan& plan, const ClusterKvParams& params)
      : plan_(plan),
        builder_(plan.builder),
        model_(plan.input.model),
        params_(params),
        index_(builder_.AddStream("index", plan.host)),
        offload_(builder_.AddStream("offload", plan.host)) {}

  void BeginStep(int step) override {
    if (step == 0 || step % params_.update != 0) return;
    for (int layer = First(); layer < model_.layers; ++layer) {
      Cluster(plan_.compute, layer, params_.update, params_.UpdateClusters());
      Offload(layer, params_.update);
    }
  }

  void Attention(int step, int layer) override {
    const int64_t prompt = plan_.input.prompt_tokens;
    if (layer < First() || !params_.Selects(prompt, step)) {
      plan_.AttendAll(step, layer);
      return;
    }
    const auto access = plan_.Access(step, layer);
    // Rows of tokens: a cluster that is new brings its share of what is chosen.
    double missed = 0;
    for (int sequence = 0; sequence < plan_.input.batch; ++sequence) {
      for (int head = 0; head < plan_.log.heads(); ++head) {
        const auto cell = static_cast<size_t>(sequence * plan_.log.heads() + head);
        const auto chosen = plan_.log.Selected(step, layer, sequence, head).size();
        if (chosen == 0) continue;
        missed += static_cast<double>(access.cells[cell].recalled_now) /
                  static_cast<double>(chosen) * static_cast<double>(params_.capacity());
      }
    }
    const int64_t rows = int64_t{plan_.input.batch} * model_.query_heads;
    const int64_t clusters = params_.Clusters(prompt, step);
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.compute,
                 plan::Score{clusters, plan_.kv_rows(), model_.group(), /*vectors=*/1,
                             model_.head_dim, plan::Score::Pool::kNone});
    builder_.Run(plan_.compute, plan::SelectUnits{rows, 1, clusters, params_.capacity()});
    builder_.Run(plan_.compute, plan::AssignSlots{rows, params_.capacity(), params_.capacity()});
    if (const int64_t tokens = std::llround(missed); tokens > 0) {
      builder_.SetRole(Role::kRecall);
      builder_.Run(plan_.compute,
                   plan::ZeroCopyGather{.pieces = 2 * tokens,
                                        .piece_bytes = model_.KvRowBytes(),
                                        .blocks = static_cast<int32_t>(rows * params_.fetch_blocks),
                                        .lookup = plan::ZeroCopyGather::Lookup::kTokens});
    }
    const int64_t attended = params_.budget + params_.Local(step);
    builder_.SetRole(Role::kAttention);
    plan_.Attend(plan::DecodeAttention{rows * attended, attended, plan_.input.batch,
                                       model_.query_heads, 1, model_.head_dim});
  }

  void BeforePrefillAttention(int layer) override {
    const int64_t prompt = plan_.input.prompt_tokens;
    if (layer < First() || params_.Clustered(prompt) == 0) return;
    Cluster(index_, layer, params_.Clustered(prompt), params_.PromptClusters(prompt));
    Offload(layer, prompt);
  }

  void EndPrefill() override {
    builder_.SyncStream(plan_.host, index_);
    builder_.SyncStream(plan_.host, offload_);
  }

 private:
  int First() const { return static_cast<int>(params_.dense_layers); }

  void Cluster(LaneId lane, int layer, int64_t tokens, int64_t clusters) {
    builder_.At(layer, Role::kIndex);
    const plan::KMeans work{plan_.kv_rows(), tokens, clusters, model_.head_dim,
                            static_cast<int32_t>(params_.iterations)};
    builder_.Run(lane, work, {lane == plan_.compute ? OpId::kNone : builder_.Last(plan_.compute)});
  }

  void Offload(int layer, int64_t tokens) {
    const OpId ready = builder_.Last(plan_.compute);
    builder_.At(layer, Role::kOffload);
    builder_.Run(offload_,
                 Copy{Direction::kDeviceToHost, CopyPath::kPerPiece, 2,
                      plan_.kv_rows() * tokens * model_.KvRowBytes()},
                 {ready});
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  ClusterKvParams params_;
  LaneId index_, offload_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewClusterKvPlan(DecoderPlan& plan, const ClusterKvParams& params) {
  return std::make_unique<ClusterKvPlan>(plan, params);
}

}  // namespace stallcast::methods
