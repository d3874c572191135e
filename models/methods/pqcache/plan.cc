#include "models/methods/pqcache/plan.h"

#include <algorithm>
#include <vector>

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::LaneId;
using plan::OpId;
using plan::Role;

// Numbers that the public code reads from the GPU in a layer, one wait each, before its missing
// tokens' ids.
constexpr int kReads = 4;

// The order of the public code, whose passes are a framework's operators.
class PqCachePlan : public PlanWriter {
 public:
  PqCachePlan(DecoderPlan& plan, const PqCacheParams& params)
      : plan_(plan),
        builder_(plan.builder),
        model_(plan.input.model),
        params_(params),
        workers_(builder_.AddHost("clustering")),
        index_(builder_.AddStream("codes", plan.host)),
        cache_(builder_.AddStream("cache", plan.host)),
        offload_(builder_.AddStream("offload", plan.host)),
        fetched_(static_cast<size_t>(model_.layers), OpId::kNone),
        scored_(fetched_) {}

  void BeginStep(int /*step*/) override {
    if (Sparse()) FetchCodes(First(), OpId::kNone);
  }

  void Attention(int step, int layer) override {
    if (layer < First() || !Sparse()) {
      plan_.AttendAll(step, layer);
      return;
    }
    const int64_t prompt = plan_.input.prompt_tokens;
    const int64_t candidates = params_.Candidates(prompt, plan_.Context(step));
    const int64_t chosen = std::min(params_.Chosen(prompt), candidates);
    const auto access = plan_.Access(step, layer);
    int64_t missed = 0, blocks = 0;
    for (const AccessCell& cell : access.cells) missed += cell.recalled_now;
    for (int sequence = 0; sequence < plan_.input.batch; ++sequence) {
      blocks +=
          access.cells[static_cast<size_t>(sequence * plan_.log.heads())].evicted / params_.block;
    }
    WriteBack(layer);
    // Two layers' codes have room at a time.
    if (layer + 1 < model_.layers) {
      FetchCodes(layer + 1,
                 layer > First() ? scored_[static_cast<size_t>(layer - 1)] : OpId::kNone);
    }
    Choose(layer, candidates, chosen);
    Recall(layer, missed);
    builder_.At(layer, Role::kLayout);
    // Keys and values of each query head, side by side.
    const int64_t tokens = params_.sink + params_.Recent(prompt) + chosen;
    const int64_t query_rows = Rows() * model_.group();
    builder_.Run(plan_.compute, plan::Layout{2 * query_rows * tokens, RowBytes()});
    builder_.SetRole(Role::kAttention);
    plan_.Attend(plan::DecodeAttention{query_rows * tokens, tokens, plan_.input.batch,
                                       model_.query_heads, 1, model_.head_dim});
    if (blocks == 0) return;
    builder_.SetRole(Role::kRecall);
    builder_.Run(cache_,
                 Copy{Direction::kHostToDevice, CopyPath::kPerPiece, 2 * blocks,
                      params_.block * model_.kv_heads * RowBytes()},
                 {builder_.Last(plan_.compute)});
  }

  void BeforePrefillAttention(int layer) override {
    if (layer < First() || !Sparse()) return;
    const OpId ready = builder_.Last(plan_.compute);
    builder_.At(layer, Role::kOffload);
    const int64_t prompt = plan_.input.prompt_tokens;
    const OpId sent = builder_.Run(
        offload_,
        Copy{Direction::kDeviceToHost, CopyPath::kPerPiece, 2, Rows() * prompt * RowBytes()},
        {ready});
    builder_.SetRole(Role::kIndex);
    clustered_ = builder_.Run(
        workers_,
        plan::HostKMeans{Rows() * params_.subspaces, params_.Clustered(prompt), params_.centroids(),
                         static_cast<int32_t>(model_.head_dim / params_.subspaces),
                         static_cast<int32_t>(params_.iterations), Threads()},
        {sent});
  }

  void AfterPrefillAttention(int layer) override {
    if (layer < First() || !Sparse()) return;
    builder_.At(layer, Role::kLayout);
    builder_.Run(
        plan_.compute,
        plan::Layout{2 * Rows() * (params_.sink + params_.Recent(plan_.input.prompt_tokens)),
                     RowBytes()});
  }

  // The first step needs all clusters.
  void EndPrefill() override {
    if (clustered_ == OpId::kNone) return;
    builder_.At(-1, Role::kSync);
    builder_.Run(plan_.host, plan::HostSync{}, {clustered_});
  }

 private:
  int First() const { return static_cast<int>(params_.dense_layers); }
  bool Sparse() const { return params_.Sparse(plan_.input.prompt_tokens); }
  int64_t Rows() const { return plan_.kv_rows(); }
  Bytes RowBytes() const { return model_.KvRowBytes(); }
  int32_t Threads() const { return static_cast<int32_t>(params_.threads); }
  Bytes CodeBytes() const { return params_.codes == PqCacheParams::Codes::kInt64 ? 8 : 1; }

  // The whole buffer of codes, as long as the run's longest context, and the code book.
  void FetchCodes(int layer, OpId room) {
    builder_.At(layer, Role::kIndex);
    const int64_t tokens = plan_.input.prompt_tokens + plan_.input.steps;
    const Bytes codes = Rows() * tokens * params_.subspaces * CodeBytes();
    const Bytes book = Rows() * params_.centroids() * model_.head_dim * llm::kActivationBytes;
    fetched_[static_cast<size_t>(layer)] = builder_.Run(
        index_, Copy{Direction::kHostToDevice, CopyPath::kBulk, 1, codes + book}, {room});
  }

  // The token that leaves the recent ones.
  void WriteBack(int layer) {
    const OpId ready = builder_.Last(plan_.compute);
    builder_.At(layer, Role::kOffload);
    builder_.Run(offload_,
                 Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                      int64_t{plan_.input.batch} * model_.KvBytesPerTokenLayer()},
                 {ready});
  }

  void Choose(int layer, int64_t candidates, int64_t chosen) {
    const int64_t query_rows = Rows() * model_.group();
    const auto part = model_.head_dim / static_cast<int32_t>(params_.subspaces);
    const Bytes line = candidates * int64_t{sizeof(float)};
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.compute,
                 plan::Gemm{query_rows * params_.subspaces, params_.centroids(), part},
                 {fetched_[static_cast<size_t>(layer)]});
    scored_[static_cast<size_t>(layer)] = builder_.Run(
        plan_.compute,
        plan::CodeScore{candidates, Rows(), model_.group(), static_cast<int32_t>(params_.subspaces),
                        static_cast<int32_t>(params_.centroids()), CodeBytes()});
    builder_.Run(plan_.compute, plan::Layout{query_rows, line});  // softmax
    builder_.Run(plan_.compute, plan::Layout{query_rows, line});  // sum over the group
    builder_.Run(plan_.compute, plan::TopK{Rows(), candidates, chosen});
    builder_.Run(plan_.compute, plan::AssignSlots{Rows(), chosen, params_.cache / params_.block});
    for (int read = 0; read < kReads; ++read) ReadBack(int64_t{sizeof(int64_t)});
    ReadBack(Rows() * chosen * int64_t{sizeof(int64_t)});
  }

  void ReadBack(Bytes bytes) {
    builder_.SetRole(Role::kSync);
    builder_.Run(plan_.compute, Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1, bytes});
    builder_.SyncStream(plan_.host, plan_.compute);
    builder_.SetRole(Role::kSelection);
  }

  // Keys, then values: gathered into a pinned buffer, copied, put in their places.
  void Recall(int layer, int64_t missed) {
    if (missed == 0) return;
    builder_.At(layer, Role::kRecall);
    builder_.Run(plan_.host, plan::HostGather{2 * missed, RowBytes(), Threads()});
    for (int tensor = 0; tensor < 2; ++tensor) {
      builder_.Run(plan_.compute,
                   Copy{Direction::kHostToDevice, CopyPath::kBulk, 1, missed * RowBytes()});
    }
    builder_.SetRole(Role::kLayout);
    builder_.Run(plan_.compute, plan::Layout{2 * missed, RowBytes()});
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  PqCacheParams params_;
  LaneId workers_, index_, cache_, offload_;
  OpId clustered_ = OpId::kNone;
  std::vector<OpId> fetched_, scored_;  // by layer: its codes have come, have been read
};

}  // namespace

std::unique_ptr<PlanWriter> NewPqCachePlan(DecoderPlan& plan, const PqCacheParams& params) {
  return std::make_unique<PqCachePlan>(plan, params);
}

}  // namespace stallcast::methods
