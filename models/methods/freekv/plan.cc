#include "models/methods/freekv/plan.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "models/methods/common/page_offload.h"
#include "models/methods/transformers_decoder.h"

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::LaneId;
using plan::OpId;
using plan::Purpose;
using plan::Role;

// FreeKV 3.2, 3.3, 4.2. Of a layer's heads, those that correction flags are recalled before the
// attention of the step; the others meanwhile, for the next step, issued by a pool of host threads.
class FreeKvPlan : public PlanWriter {
 public:
  FreeKvPlan(DecoderPlan& plan, const FreeKvParams& params)
      : plan_(plan),
        builder_(plan.builder),
        model_(plan.input.model),
        params_(params),
        offload_(plan, params.page,
                 params.layout == FreeKvParams::Layout::kHybrid ? PageOffload::Pool::kHnd
                                                                : PageOffload::Pool::kNhd,
                 static_cast<int>(params.dense_layers)),
        ahead_(static_cast<size_t>(model_.layers), {OpId::kNone, OpId::kNone}) {
    for (size_t i = 0; i < recall_.size(); ++i) {
      recall_[i] = builder_.AddStream(i == 0 ? "recall 1" : "recall 2", plan.host);
    }
    if (NeedsMissList()) {
      for (int64_t i = 0; i < params.workers; ++i) {
        workers_.push_back(builder_.AddHost("recall worker " + std::to_string(i + 1)));
      }
    }
  }

  Decoder decoder() const override {
    return plan_.input.as_run ? Decoder::kTransformersStreams : Decoder::kOwn;
  }

  void BeginStep(int step) override {
    if (plan_.input.as_run) PrepareEngineStep(plan_);
    offload_.BeginStep(step);
  }

  void Attention(int step, int layer) override {
    if (layer < params_.dense_layers) {
      plan_.AttendAll(step, layer);
      return;
    }
    const auto access = plan_.Access(step, layer);
    const OpId query_ready = builder_.Last(plan_.compute);
    const bool now = access.flags & traces::kSelectedNow;
    // Heads that were not flagged recall ahead from the selection that a flagged one caused.
    const bool ahead = (access.flags & traces::kSelectedAhead) ||
                       std::any_of(access.cells.begin(), access.cells.end(),
                                   [](const AccessCell& cell) { return cell.recalled_ahead > 0; });
    if ((now || ahead) && params_.checks()) CheckSimilarity(layer);
    const OpId recalled = now ? RecallNow(step, layer) : OpId::kNone;
    const OpId attended = AttendRecalled(layer, access, recalled);
    if (ahead) RecallAhead(step, layer, /*select=*/!now, query_ready, attended);
  }

  void BeforePrefillAttention(int layer) override {
    offload_.Prefill(layer, /*sync_each_page=*/false);
  }

  void AfterPrefillAttention(int layer) override {
    // The cache is cut down to the budget by the last prompt token's scores.
    const int64_t pages = params_.regions().Selectable(plan_.input.prompt_tokens);
    if (layer < params_.dense_layers || pages == 0) return;
    builder_.At(layer, Role::kSelection);
    Rank(plan_.compute, plan_.host, pages, {});
    offload_.Keep(layer, params_.regions(), params_.slots());
  }

  void EndPrefill() override { offload_.EndPrefill(); }

 private:
  // A kernel that reads the host pool takes the miss list from device memory; copies need it on the
  // host.
  bool NeedsMissList() const { return params_.recall != FreeKvParams::Recall::kZeroCopy; }
  bool Hybrid() const { return params_.layout == FreeKvParams::Layout::kHybrid; }

  // A missed page is one piece in the hybrid layout and a piece a key and value row in NHD.
  Bytes PieceBytes() const {
    const Bytes row = model_.KvRowBytes();
    return Hybrid() ? 2 * params_.page * row : row;
  }
  int64_t Pieces(int64_t pages) const { return Hybrid() ? pages : 2 * params_.page * pages; }
  Bytes PageBytes() const { return 2 * params_.page * model_.KvRowBytes(); }

  // One flag for all comes back, so the host learns whether to correct.
  void CheckSimilarity(int layer) {
    builder_.At(layer, Role::kSelection);
    if (plan_.input.as_run) {
      // A compiled function, which is a CUDA graph: both queries are copied to where it has them.
      const Bytes query = int64_t{plan_.input.batch} * model_.query_heads * model_.head_dim * 2;
      for (int of = 0; of < 2; ++of) {
        builder_.Run(plan_.compute,
                     plan::Eager{.op = plan::Operator::kLaunch, .read = query, .written = query});
      }
    }
    builder_.Run(
        plan_.compute,
        plan::QuerySimilarity{int64_t{plan_.input.batch} * model_.query_heads, model_.head_dim});
    builder_.SetRole(Role::kSync);
    builder_.For(Purpose::kReadFlags)
        .Run(plan_.compute, Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1, 4});
    builder_.SyncStream(plan_.host, plan_.compute);
  }

  /// `ready`: what the scores wait for beside their lane.
  void Rank(LaneId stream, LaneId issuer, int64_t pages, std::span<const OpId> ready) {
    builder_.SetRole(Role::kSelection);
    const bool softmax = params_.pooling == Pooling::kSoftmaxMean ||
                         params_.pooling == Pooling::kSoftmaxMeanUnscaled;
    builder_.Run(stream,
                 plan::Score{pages, plan_.kv_rows(), model_.group(), 2, model_.head_dim,
                             softmax ? plan::Score::Pool::kSoftmax : plan::Score::Pool::kGroup},
                 ready, issuer);
    builder_.Run(stream,
                 plan::TopK{plan_.kv_rows(), pages, std::min<int64_t>(pages, params_.slots())}, {},
                 issuer);
  }
  void SelectForStep(int step, LaneId stream, LaneId issuer, std::span<const OpId> ready) {
    Rank(stream, issuer, params_.regions().Selectable(plan_.Context(step)), ready);
    selected_ = builder_.Run(
        stream, plan::AssignSlots{plan_.kv_rows(), params_.slots(), params_.slots()}, {}, issuer);
    if (!NeedsMissList()) return;
    builder_.SetRole(Role::kSync);
    builder_.For(Purpose::kReadMissed)
        .Run(stream,
             Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                  plan_.kv_rows() * (2 * params_.slots() + 1) * int64_t{sizeof(int32_t)}},
             {}, issuer);
    builder_.SyncStream(issuer, stream);
  }

  /// What the attention must wait for: nothing, where the host has or where nothing was missed.
  OpId RecallNow(int step, int layer) {
    builder_.At(layer, Role::kSelection);
    // Buffers of the selection are slices of the layers' own.
    plan_.Call(plan::Operator::kView, kSelectionViews);
    // What the layer recalled ahead must be in its slots before others are chosen for them.
    SelectForStep(step, plan_.compute, plan_.host, ahead_[static_cast<size_t>(layer)]);
    const auto missed = plan_.CopiesOfUnits(DecoderPlan::When::kNow, step, layer, PageBytes());
    builder_.InExtension(plan_.input.as_run);
    const bool moved = Recall(missed, plan_.host,
                              {builder_.Last(plan_.compute), offload_.Written(layer)}, OpId::kNone);
    builder_.InExtension(false);
    if (!NeedsMissList()) return moved ? builder_.Last(recall_[0]) : OpId::kNone;
    builder_.SetRole(Role::kSync);
    for (LaneId stream : recall_) builder_.SyncStream(plan_.host, stream);
    return OpId::kNone;
  }

  OpId AttendRecalled(int layer, const DecoderPlan::LayerAccess& access, OpId recalled_now) {
    const auto& waits = ahead_[static_cast<size_t>(layer)];
    return plan_.Attend(layer, access.attended_tokens, access.attended_tokens_max,
                        {waits[0], waits[1], recalled_now});
  }

  void RecallAhead(int step, int layer, bool select, OpId query_ready, OpId attended) {
    LaneId issuer = plan_.host;
    builder_.At(layer, Role::kHost);
    if (!workers_.empty()) {
      plan_.Call(plan::Operator::kView, kSelectionViews);
      const OpId posted = builder_.Run(plan_.host, plan::HostHandoff{});
      issuer = workers_[static_cast<size_t>(layer) % workers_.size()];
      builder_.Run(issuer, plan::HostHandoff{}, {posted});
    }
    auto& waits = ahead_[static_cast<size_t>(layer)];
    if (select) {
      SelectForStep(step, recall_[0], issuer, std::array{query_ready, waits[0], waits[1]});
    }
    const auto missed = plan_.CopiesOfUnits(DecoderPlan::When::kAhead, step, layer, PageBytes());
    const bool safe = params_.overwrite == FreeKvParams::Overwrite::kSafe;
    // A kernel takes the list from the selection; who copies has waited for it at the host.
    const OpId listed = NeedsMissList() ? OpId::kNone : selected_;
    Recall(missed, issuer, {listed, offload_.Written(layer)}, safe ? attended : OpId::kNone);
    for (size_t i = 0; i < recall_.size(); ++i) waits[i] = builder_.Last(recall_[i]);
  }

  // What must be done before missed pages are read: their list is known, the newest is in the pool.
  struct Readable {
    OpId listed, pooled;
  };

  // Moves the missed pages of each (sequence, KV head), if any. `free`: what must be done before
  // pages in the cache are overwritten.
  bool Recall(std::span<const Copy> missed, LaneId issuer, Readable ready, OpId free) {
    const int64_t total = DecoderPlan::OneAfterTheOther(missed).pieces;
    if (total == 0) return false;
    switch (params_.recall) {
      case FreeKvParams::Recall::kPerPage:
        // A buffer holds one head's pages: with two, a head is copied while the one before is put
        // into the cache.
        for (size_t row = 0; row < missed.size(); ++row) {
          const int64_t pages = missed[row].pieces;
          if (pages == 0) continue;
          const LaneId stream = recall_[params_.double_buffer ? row % 2 : 0];
          Transfer(stream, issuer, Hybrid() ? missed[row] : PiecesOf(pages, CopyPath::kPerPiece),
                   pages, ready, free);
        }
        break;
      case FreeKvParams::Recall::kBatched:
        Transfer(recall_[0], issuer, PiecesOf(total, CopyPath::kBatched), total, ready, free);
        break;
      case FreeKvParams::Recall::kStaged:
        builder_.SetRole(Role::kRecall);
        builder_.Run(issuer, plan::HostGather{Pieces(total), PieceBytes(), 1}, {ready.pooled});
        Transfer(recall_[0], issuer,
                 Copy{Direction::kHostToDevice, CopyPath::kBulk, 1, total * PageBytes()}, total,
                 ready, free);
        break;
      case FreeKvParams::Recall::kZeroCopy: {
        builder_.SetRole(Role::kRecall);
        const std::array waits{free, ready.listed, ready.pooled};
        builder_.Run(recall_[0],
                     plan::ZeroCopyGather{Pieces(total), PieceBytes(),
                                          static_cast<int32_t>(params_.zero_copy_blocks)},
                     waits, issuer);
        break;
      }
    }
    return true;
  }

  Copy PiecesOf(int64_t pages, CopyPath path) const {
    return {Direction::kHostToDevice, path, Pieces(pages), PieceBytes()};
  }

  // Pages to a buffer and from there into the cache; NHD rows go straight into the cache, unless
  // one bulk copy brings them all.
  void Transfer(LaneId stream, LaneId issuer, const Copy& copy, int64_t pages, Readable ready,
                OpId free) {
    const bool buffered = Hybrid() || copy.path == CopyPath::kBulk;
    builder_.SetRole(Role::kRecall);
    const std::array waits{ready.listed, ready.pooled, buffered ? OpId::kNone : free};
    builder_.For(Purpose::kBringRecalled).Run(stream, copy, waits, issuer);
    if (!buffered) return;
    builder_.SetRole(Role::kLayout);
    const std::array<OpId, 1> overwrite{free};
    builder_.For(Purpose::kPlaceRecalled)
        .Run(stream, plan::Layout{Pieces(pages), PieceBytes()}, overwrite, issuer);
  }

  static constexpr int kSelectionViews = 12;  // as FreeKV's code has them

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  FreeKvParams params_;
  PageOffload offload_;
  std::array<LaneId, 2> recall_{};
  std::vector<LaneId> workers_;
  std::vector<std::array<OpId, 2>> ahead_;  // by layer: last ops of its recall for the next step
  OpId selected_ = OpId::kNone;             // last op of the latest selection on the device
};

}  // namespace

std::unique_ptr<PlanWriter> NewFreeKvPlan(DecoderPlan& plan, const FreeKvParams& params) {
  return std::make_unique<FreeKvPlan>(plan, params);
}

}  // namespace stallcast::methods
