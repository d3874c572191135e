#include "models/methods/louiskv/plan.h"

#include <algorithm>
#include <vector>

#include "models/methods/louiskv/local_buffer.h"

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::LaneId;
using plan::OpId;
using plan::Purpose;
using plan::Role;

// LouisKV 4.1 to 4.3, appendix C. Clustering and offload have streams of their own, so that prefill
// goes on meanwhile; a retrieval stands between the queries and the attention of its step.
class LouisKvPlan : public PlanWriter {
 public:
  LouisKvPlan(DecoderPlan& plan, const LouisKvParams& params)
      : plan_(plan),
        builder_(plan.builder),
        model_(plan.input.model),
        params_(params),
        parts_(params, plan.input.prompt_tokens),
        offload_(builder_.AddStream("offload", plan.host)),
        recall_(builder_.AddStream("recall", plan.host)),
        index_(builder_.AddStream("index", plan.host)),
        offloaded_(static_cast<size_t>(model_.layers), OpId::kNone),
        units_(static_cast<size_t>(model_.layers),
               std::vector<int64_t>(static_cast<size_t>(plan.input.batch), parts_.clusters)) {
    if (plan.input.log != nullptr) FindLeaving();
  }

  void Attention(int step, int layer) override {
    if (layer < params_.dense_layers) {
      plan_.AttendAll(step, layer);
      return;
    }
    const auto access = plan_.Access(step, layer);
    if (params_.compares()) CompareQueries(layer);
    const OpId recalled = Retrieve(layer, access);
    OffloadSegments(step, layer);
    Attend(layer, access, recalled);
  }

  void BeforePrefillAttention(int layer) override {
    if (layer < params_.dense_layers || parts_.clustered == 0) return;
    const OpId appended = builder_.Last(plan_.compute);
    builder_.At(layer, Role::kIndex);
    if (params_.units == LouisKvParams::Units::kClusters) {
      builder_.Run(index_,
                   plan::KMeans{plan_.kv_rows(), parts_.clustered, parts_.clusters, model_.head_dim,
                                static_cast<int32_t>(params_.iterations)},
                   {appended});
    } else {
      builder_.Run(index_,
                   plan::Summarize{plan_.kv_rows() * parts_.clusters,
                                   static_cast<int32_t>(params_.cluster), 1, model_.head_dim},
                   {appended});
    }
    Offload(layer, plan_.input.batch, parts_.clustered, appended);
  }

  void AfterPrefillAttention(int layer) override {
    if (layer < params_.dense_layers || parts_.clustered == 0) return;
    // Sink and local buffer go to their places.
    builder_.At(layer, Role::kSelection);
    builder_.For(Purpose::kKeepPrompt)
        .Run(plan_.compute,
             plan::Layout{2 * plan_.kv_rows() * (parts_.sink + parts_.local), RowBytes()});
  }

  void EndPrefill() override {
    builder_.SyncStream(plan_.host, index_);
    builder_.SyncStream(plan_.host, offload_);
  }

 private:
  bool Paired() const { return params_.pool == LouisKvParams::Pool::kPaired; }
  Bytes RowBytes() const { return model_.KvRowBytes(); }
  // A token's key and value of a head are two rows, or one twice as long.
  int64_t Rows(int64_t tokens) const { return Paired() ? tokens : 2 * tokens; }
  Bytes PieceBytes() const { return Paired() ? 2 * RowBytes() : RowBytes(); }

  // Which segments leave in each step of the log follows from where its segments begin.
  void FindLeaving() {
    local_.resize(static_cast<size_t>(model_.layers));
    for (int layer = static_cast<int>(params_.dense_layers); layer < model_.layers; ++layer) {
      local_[layer] =
          LocalSteps(params_, plan_.input.prompt_tokens, plan_.input.log->steps, [&](int step) {
            return (plan_.log.At(step, layer, 0, 0).flags & traces::kTriggered) != 0;
          });
    }
  }

  // Whether the queries have drifted; each sequence's flag goes to the host if it decides by it.
  void CompareQueries(int layer) {
    builder_.At(layer, Role::kSelection);
    builder_.Run(
        plan_.compute,
        plan::QuerySimilarity{int64_t{plan_.input.batch} * model_.query_heads, model_.head_dim});
    builder_.SetRole(Role::kSync);
    builder_.For(Purpose::kReadFlags)
        .Run(plan_.compute, Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                                 plan_.input.batch * int64_t{sizeof(int32_t)}});
    if (params_.trigger == LouisKvParams::Trigger::kBoundary) {
      builder_.SyncStream(plan_.host, plan_.compute);
    }
  }

  // For the sequences whose cells say so. Returns the op that the attention waits for.
  OpId Retrieve(int layer, const DecoderPlan::LayerAccess& access) {
    const int heads = plan_.log.heads();
    int64_t sequences = 0, units = 0;
    for (int s = 0; s < plan_.input.batch; ++s) {
      if ((access.cells[static_cast<size_t>(int64_t{s} * heads)].flags & traces::kSelectedNow) == 0)
        continue;
      ++sequences;
      units = std::max(units, units_[layer][s]);
    }
    if (sequences == 0) return OpId::kNone;
    Select(layer, sequences, units);
    const int64_t tokens = sequences * heads * params_.capacity();
    builder_.At(layer, Role::kRecall);
    if (params_.recall == LouisKvParams::Recall::kRows) {
      return builder_.Run(
          recall_,
          plan::ZeroCopyGather{.pieces = Rows(tokens),
                               .piece_bytes = PieceBytes(),
                               .blocks = static_cast<int32_t>(params_.zero_copy_blocks),
                               .lookup = plan::ZeroCopyGather::Lookup::kTokens},
          {builder_.Last(plan_.compute)});
    }
    builder_.SetRole(Role::kSync);
    builder_.For(Purpose::kReadMissed)
        .Run(plan_.compute,
             Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1, tokens * int64_t{sizeof(int64_t)}});
    builder_.SyncStream(plan_.host, plan_.compute);
    builder_.SetRole(Role::kRecall);
    builder_.Run(plan_.host, plan::HostGather{Rows(tokens), PieceBytes(),
                                              static_cast<int32_t>(params_.workers)});
    builder_.For(Purpose::kBringRecalled)
        .Run(recall_, Copy{Direction::kHostToDevice, CopyPath::kBulk, 1, tokens * 2 * RowBytes()});
    builder_.SetRole(Role::kLayout);
    return builder_.For(Purpose::kPlaceRecalled)
        .Run(recall_, plan::Layout{Rows(tokens), PieceBytes()});
  }

  void Select(int layer, int64_t sequences, int64_t units) {
    const int64_t rows = sequences * plan_.log.heads();
    const auto group = static_cast<int32_t>(sequences * model_.query_heads / rows);
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.compute,
                 plan::Score{units, sequences * model_.kv_heads, model_.group(), 1, model_.head_dim,
                             plan::Score::Pool::kNone},
                 {offloaded_[layer]});
    if (params_.kernel == LouisKvParams::Kernel::kFused) {
      builder_.Run(plan_.compute, plan::SelectUnits{rows, group, units, params_.capacity()});
      return;
    }
    // As a framework does it: softmax and mean, sort, sizes in that order, their running sum, the
    // comparison with the budget, the rows that pass (whose number the host must know), their
    // tokens.
    const auto pass = [&](Purpose purpose, const plan::Work& work) {
      builder_.For(purpose).Run(plan_.compute, work);
    };
    const Bytes line = units * int64_t{sizeof(float)};
    pass(Purpose::kPassSoftmax, plan::Layout{rows * group, line});
    pass(Purpose::kPassMean, plan::Layout{rows * group, line});
    pass(Purpose::kPassSort, plan::Sort{rows, units});
    pass(Purpose::kPassSizes, plan::Layout{rows, line});
    pass(Purpose::kPassRunningSum, plan::Layout{rows, line});
    pass(Purpose::kPassFit, plan::Layout{rows, line});
    builder_.SetRole(Role::kSync);
    pass(Purpose::kReadCount,
         Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1, int64_t{sizeof(int64_t)}});
    builder_.SyncStream(plan_.host, plan_.compute);
    builder_.SetRole(Role::kSelection);
    pass(Purpose::kPassList, plan::Layout{rows, params_.capacity() * int64_t{sizeof(int64_t)}});
  }

  // The oldest segment of each sequence whose local buffer is full gets a centroid and goes to the
  // host.
  void OffloadSegments(int step, int layer) {
    for (int s = 0; s < plan_.input.batch; ++s) {
      const int64_t tokens = local_[layer][plan_.log.LogStep(step, s)].leaving;
      if (tokens == 0) continue;
      ++units_[layer][s];
      const OpId appended = builder_.Last(plan_.compute);
      builder_.At(layer, Role::kIndex);
      builder_.Run(
          offload_,
          plan::Summarize{model_.kv_heads, static_cast<int32_t>(tokens), 1, model_.head_dim},
          {appended});
      Offload(layer, 1, tokens, appended);
      offloaded_[layer] = builder_.Last(offload_);
    }
  }

  // Keys and values of `tokens` consecutive tokens of each sequence, all heads.
  void Offload(int layer, int64_t sequences, int64_t tokens, OpId ready) {
    const Bytes bytes = tokens * model_.KvBytesPerTokenLayer();
    builder_.At(layer, Role::kLayout);
    if (Paired()) {
      builder_.For(Purpose::kPackFilled)
          .Run(offload_, plan::Layout{2 * sequences * tokens * model_.kv_heads, RowBytes()},
               {ready});
    }
    builder_.SetRole(Role::kOffload);
    const int64_t tensors = Paired() ? 1 : 2;
    builder_.For(Purpose::kOffloadFilled)
        .Run(offload_,
             Copy{Direction::kDeviceToHost, CopyPath::kPerPiece, sequences * tensors,
                  bytes / tensors},
             {ready});
  }

  void Attend(int layer, const DecoderPlan::LayerAccess& access, OpId recalled) {
    const int heads = plan_.log.heads();
    builder_.At(layer, Role::kAttention);
    plan_.Attend(
        plan::DecodeAttention{access.attended_tokens, access.attended_tokens_max, plan_.input.batch,
                              heads, model_.query_heads / heads, model_.head_dim},
        {recalled});
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  LouisKvParams params_;
  PromptParts parts_;
  LaneId offload_, recall_, index_;
  std::vector<std::vector<LocalStep>> local_;  // [layer][step of the log]
  std::vector<OpId> offloaded_;                // by layer: the last segment's way to the host
  std::vector<std::vector<int64_t>> units_;    // [layer][sequence]
};

}  // namespace

std::unique_ptr<PlanWriter> NewLouisKvPlan(DecoderPlan& plan, const LouisKvParams& params) {
  return std::make_unique<LouisKvPlan>(plan, params);
}

}  // namespace stallcast::methods
