#include "models/methods/pariskv/plan.h"

#include <algorithm>

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::LaneId;
using plan::OpId;
using plan::Role;

// Sizes depend on the context alone, so the plan follows the run's context and not the log's, which
// only tells how much is read anew.
class ParisKvPlan : public PlanWriter {
 public:
  ParisKvPlan(DecoderPlan& plan, const ParisKvParams& params)
      : plan_(plan),
        builder_(plan.builder),
        model_(plan.input.model),
        params_(params),
        subspaces_(static_cast<int32_t>(params.subspaces)),
        heads_(params.query == ParisKvParams::Query::kQueryHead ? model_.query_heads
                                                                : model_.kv_heads),
        offload_(builder_.AddStream("offload", plan.host)) {}

  void BeginStep(int step) override {
    if (step == 0 || step % params_.update != 0) return;
    const int64_t before = Region(step - 1);
    const int64_t tokens = Region(step) - before;
    for (int layer = 0; layer < model_.layers && tokens > 0; ++layer) {
      const OpId copied = Offload(layer, tokens);
      Encode(layer, tokens);
      // The rest of the window moves to its start, as far at a time as it does not overlap itself.
      builder_.SetRole(Role::kLayout);
      for (int64_t moved = 0; moved < params_.local; moved += tokens) {
        const int64_t some = std::min(tokens, params_.local - moved);
        builder_.Run(plan_.compute, plan::Layout{2 * Rows() * some, RowBytes()}, {copied});
      }
    }
    if (AsCoded()) {
      builder_.At(-1, Role::kSync);
      builder_.SyncStream(plan_.host, offload_);
    }
  }

  void Attention(int step, int layer) override {
    const int64_t tokens = Region(step);
    const int64_t context = plan_.Context(step);
    if (tokens == 0 || context < params_.first_sparse()) {
      plan_.AttendAll(step, layer);
      return;
    }
    const int64_t chosen = std::min(params_.topk, tokens);
    const int64_t candidates = Candidates(params_, tokens);
    const int32_t group = model_.query_heads / heads_;
    builder_.At(layer, Role::kSelection);
    if (plan_.input.as_run) {
      AttendAsRun(step, layer, {tokens, context - tokens, candidates, chosen});
      return;
    }
    builder_.Run(plan_.compute,
                 plan::CollisionTable{SelectionRows(), group, model_.head_dim, subspaces_});
    builder_.Run(plan_.compute, plan::CollisionScore{SelectionRows(), Rows(), tokens, subspaces_});
    builder_.Run(plan_.compute, plan::BucketTopK{SelectionRows(), tokens, candidates});
    builder_.Run(plan_.compute,
                 plan::Rerank{SelectionRows(), candidates, model_.head_dim, subspaces_});
    builder_.Run(plan_.compute, plan::TopK{SelectionRows(), candidates, chosen});
    builder_.SetRole(Role::kRecall);
    const bool split = params_.pool == ParisKvParams::Pool::kSplit;
    const int64_t of_token = split ? 2 : 1;  // pieces
    const Bytes piece = RowBytes() * (split ? 1 : 2);
    builder_.Run(plan_.compute,
                 plan_.Scattered({SelectionRows() * chosen * of_token, piece,
                                  static_cast<int32_t>((params_.fetch_blocks + 3) / 4)},
                                 2 * Rows() * tokens * RowBytes(), step, layer, of_token));
    const int64_t near = context - tokens;
    builder_.SetRole(Role::kAttention);
    plan_.Attend(plan::DecodeAttention{SelectionRows() * (near + chosen), near + chosen,
                                       plan_.input.batch, heads_, group, model_.head_dim,
                                       Rows() * near + SelectionRows() * chosen});
  }

  void BeforePrefillAttention(int layer) override {
    const int64_t tokens = Region(0);
    if (tokens == 0) return;
    Offload(layer, tokens);
    Encode(layer, tokens);
    if (!AsCoded()) return;
    builder_.SetRole(Role::kSync);
    builder_.SyncStream(plan_.host, offload_);
  }

  void AfterPrefillAttention(int layer) override {
    // Sink and window go to their places.
    if (Region(0) == 0) return;
    builder_.At(layer, Role::kLayout);
    for (const int64_t tokens : {params_.sink, params_.local}) {
      if (tokens > 0) builder_.Run(plan_.compute, plan::Layout{2 * Rows() * tokens, RowBytes()});
    }
  }

  void EndPrefill() override { builder_.SyncStream(plan_.host, offload_); }

 private:
  bool AsCoded() const { return params_.offload == ParisKvParams::Offload::kAsCoded; }
  int64_t Rows() const { return plan_.kv_rows(); }
  int64_t SelectionRows() const { return int64_t{plan_.input.batch} * heads_; }
  Bytes RowBytes() const { return model_.KvRowBytes(); }
  /// Tokens between sink and window.
  int64_t Region(int step) const {
    return params_.RetrievalEnd(plan_.input.prompt_tokens, step) - params_.sink;
  }

  // Tokens that are searched, tokens that stay on the GPU, candidates and tokens chosen.
  struct Sizes {
    int64_t tokens, near, candidates, chosen;
  };

  void RunEager(plan::Operator op, Bytes read, Bytes written, int16_t slices = 0) {
    builder_.Run(plan_.compute,
                 plan::Eager{.op = op, .read = read, .written = written, .slices = slices});
  }

  // polar_cache.compute() of the public code: what is not a kernel of its own is PyTorch's.
  void AttendAsRun(int step, int layer, const Sizes& n) {
    using plan::Operator;
    const Bytes query = SelectionRows() * RowBytes();
    const Bytes token = Rows() * RowBytes();
    for (int of = 0; of < 2; ++of) RunEager(Operator::kLaunch, token, token, 3);
    for (int of = 0; of < 2; ++of) RunEager(Operator::kLaunchAllocating, 8, n.near * 8);
    RunEager(Operator::kReduce, query * model_.group(), query, 4);  // the group's mean query
    plan_.Call(Operator::kSlice, 3);                                // codes, weights, key codes
    // Its norm, at least so much, the quotient, signs, Hadamard.
    RunEager(Operator::kReduce, query, SelectionRows() * 4, 1);
    for (int i = 0; i < 4; ++i) RunEager(Operator::kLaunchAllocating, query, query);
    // Scores of each subspace's 256 centres, and their order.
    const Bytes scores = SelectionRows() * subspaces_ * kCentres * 2;
    RunEager(Operator::kLinear, query, scores);
    RunEager(Operator::kSort, scores, scores * 4);
    builder_.Run(plan_.compute,
                 plan::CollisionScore{SelectionRows(), Rows(), n.tokens, subspaces_});
    // A block a row goes three times over counts of four bytes.
    builder_.Run(plan_.compute, plan::Eager{.op = Operator::kLaunch,
                                            .read = 3 * SelectionRows() * n.tokens * Bytes{4},
                                            .written = SelectionRows() * n.candidates * Bytes{8},
                                            .blocks = static_cast<int32_t>(SelectionRows())});
    builder_.Run(plan_.compute,
                 plan::Rerank{SelectionRows(), n.candidates, model_.head_dim, subspaces_});
    builder_.Run(plan_.compute, plan::TopK{SelectionRows(), n.candidates, n.chosen});
    RunEager(Operator::kIndexSelect, SelectionRows() * n.chosen * 16,
             SelectionRows() * n.chosen * 8, 4);
    builder_.SetRole(Role::kRecall);
    builder_.Run(plan_.compute,
                 plan_.Scattered({SelectionRows() * n.chosen * 2, RowBytes(),
                                  static_cast<int32_t>((params_.fetch_blocks + 3) / 4)},
                                 2 * Rows() * n.tokens * RowBytes(), step, layer, 2));
    builder_.SetRole(Role::kLayout);
    const Bytes attended = (Rows() * n.near + SelectionRows() * n.chosen) * RowBytes();
    for (int of = 0; of < 2; ++of) RunEager(Operator::kCat, attended, attended, 3);
    builder_.SetRole(Role::kAttention);
    plan_.Attend(plan::DecodeAttention{SelectionRows() * (n.near + n.chosen), n.near + n.chosen,
                                       plan_.input.batch, heads_, model_.query_heads / heads_,
                                       model_.head_dim,
                                       Rows() * n.near + SelectionRows() * n.chosen});
  }

  void Encode(int layer, int64_t tokens) {
    builder_.At(layer, Role::kIndex);
    builder_.Run(plan_.compute, plan::KeyEncode{Rows() * tokens, model_.head_dim, subspaces_});
  }

  // Keys and values are two runs of rows each, or one of pairs.
  OpId Offload(int layer, int64_t tokens) {
    const OpId ready = builder_.Last(plan_.compute);
    builder_.At(layer, Role::kOffload);
    const int64_t pieces = params_.pool == ParisKvParams::Pool::kSplit ? 2 : 1;
    if (plan_.input.as_run) {
      // To part of a pool: to memory that is not pinned, whence the thread copies each head's rows.
      const Bytes half = Rows() * tokens * RowBytes();
      OpId placed = OpId::kNone;
      for (int of = 0; of < 2; ++of) {
        const OpId copied = builder_.Run(offload_,
                                         Copy{.direction = Direction::kDeviceToHost,
                                              .pieces = 1,
                                              .piece_bytes = half,
                                              .host_memory = Copy::HostMemory::kPageable},
                                         {ready});
        placed =
            builder_.Run(plan_.host, plan::HostGather{Rows(), tokens * RowBytes(), 1}, {copied});
      }
      return placed;
    }
    return builder_.Run(offload_,
                        Copy{Direction::kDeviceToHost, CopyPath::kPerPiece, pieces,
                             2 / pieces * Rows() * tokens * RowBytes()},
                        {ready});
  }

  static constexpr Bytes kCentres = 256;  // of a subspace

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  ParisKvParams params_;
  int32_t subspaces_, heads_;
  LaneId offload_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewParisKvPlan(DecoderPlan& plan, const ParisKvParams& params) {
  return std::make_unique<ParisKvPlan>(plan, params);
}

}  // namespace stallcast::methods
