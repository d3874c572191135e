#include "models/methods/hisparse/plan.h"

#include <algorithm>

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::LaneId;
using plan::OpId;
using plan::Role;

// Selection, slots and fetch are kernels of the compute stream, as in the public code, so that a
// step can be one graph. Full pages of all layers are packed and go to the host together.
class HiSparsePlan : public PlanWriter {
 public:
  HiSparsePlan(DecoderPlan& plan, const HiSparseParams& params)
      : plan_(plan),
        builder_(plan.builder),
        model_(plan.input.model),
        params_(params),
        offload_(builder_.AddStream("offload", plan.host)) {}

  void BeginStep(int step) override {
    if (step == 0 || (plan_.Context(step) - 1) % params_.page != 0) return;
    // The step before has ended at the host, so its page is complete.
    const int64_t pages = (model_.layers - params_.dense_layers) * plan_.kv_rows();
    builder_.At(-1, Role::kLayout);
    builder_.Run(offload_, plan::Layout{pages, PageBytes()});
    builder_.SetRole(Role::kOffload);
    written_ = builder_.Run(
        offload_, Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1, pages * PageBytes()});
  }

  void Attention(int step, int layer) override {
    if (layer < params_.dense_layers) {
      plan_.AttendAll(step, layer);
      return;
    }
    const auto access = plan_.Access(step, layer);
    int64_t missed = 0;
    for (const AccessCell& cell : access.cells) missed += cell.recalled_now;
    if (access.flags & traces::kSelectedNow) Select(step, layer);
    if (missed > 0) {
      builder_.At(layer, Role::kRecall);
      using Lookup = plan::ZeroCopyGather::Lookup;
      builder_.Run(
          plan_.compute,
          plan_.Scattered({.pieces = missed,
                           .piece_bytes = PageBytes(),
                           .blocks = static_cast<int32_t>(plan_.kv_rows() * params_.blocks),
                           .lookup = params_.page == 1 ? Lookup::kTokens : Lookup::kPieces},
                          plan_.input.batch * plan_.Context(step) * model_.KvBytesPerTokenLayer(),
                          step, layer),
          {written_});
    }
    builder_.At(layer, Role::kAttention);
    plan_.Attend(plan::DecodeAttention{
        .kv_tokens = access.attended_tokens,
        .kv_tokens_max = access.attended_tokens_max,
        .sequences = plan_.input.batch,
        .kv_heads = model_.kv_heads,
        .group = model_.group(),
        .head_dim = model_.head_dim,
        .cache_tokens = std::min(plan_.Context(step), params_.buffer + params_.page)});
  }

  bool KeepsBounds(int layer) const override {
    return params_.page > 1 && layer >= params_.dense_layers;
  }

  void BeforePrefillAttention(int layer) override {
    if (layer < params_.dense_layers) return;
    const OpId appended = builder_.Last(plan_.compute);
    const int64_t pages = plan_.input.prompt_tokens / params_.page;
    if (pages == 0) return;
    if (params_.page > 1) {
      builder_.At(layer, Role::kIndex);
      builder_.Run(plan_.compute,
                   plan::Summarize{plan_.kv_rows() * pages, static_cast<int32_t>(params_.page),
                                   /*vectors=*/2, model_.head_dim});
    }
    builder_.At(layer, Role::kLayout);
    builder_.Run(offload_, plan::Layout{plan_.kv_rows() * pages, PageBytes()}, {appended});
    builder_.SetRole(Role::kOffload);
    builder_.Run(offload_, Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                                plan_.kv_rows() * pages * PageBytes()});
  }

  void AfterPrefillAttention(int layer) override {
    if (layer < params_.dense_layers) return;
    const int64_t pages = (plan_.input.prompt_tokens + params_.page - 1) / params_.page;
    builder_.At(layer, Role::kLayout);
    builder_.Run(plan_.compute,
                 plan::Layout{plan_.kv_rows() * std::min(pages, params_.slots() + 1), PageBytes()});
  }

  void EndPrefill() override { builder_.SyncStream(plan_.host, offload_); }

 private:
  // A head's keys and values of a page lie in one piece.
  Bytes PageBytes() const { return params_.page * 2 * model_.KvRowBytes(); }

  void Select(int step, int layer) {
    const int64_t units = (plan_.Context(step) - 1) / params_.page;
    const int64_t chosen = std::min(units, params_.chosen());
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.compute,
                 plan::Score{units, plan_.kv_rows(), model_.group(), params_.page > 1 ? 2 : 1,
                             model_.head_dim, plan::Score::Pool::kGroup});
    builder_.Run(plan_.compute, plan::TopK{plan_.kv_rows(), units, chosen});
    builder_.Run(plan_.compute,
                 plan::AssignSlots{plan_.kv_rows(), chosen, std::min(units, params_.slots())});
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  HiSparseParams params_;
  LaneId offload_;
  OpId written_ = OpId::kNone;
};

}  // namespace

std::unique_ptr<PlanWriter> NewHiSparsePlan(DecoderPlan& plan, const HiSparseParams& params) {
  return std::make_unique<HiSparsePlan>(plan, params);
}

}  // namespace stallcast::methods
