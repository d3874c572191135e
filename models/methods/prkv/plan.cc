#include "models/methods/prkv/plan.h"

#include <algorithm>
#include <vector>

#include "models/methods/common/page_offload.h"

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::LaneId;
using plan::OpId;
using plan::Purpose;
using plan::Role;

// PRKV 4.1, 4.2, appendix H. Host and GPU pages have one layout, so pages that fill up are
// offloaded as they are. The static set is chosen from all keys of a layer: in prefill they are on
// the GPU, later they come from the host and go back restructured.
class PrkvPlan : public PlanWriter {
 public:
  PrkvPlan(DecoderPlan& plan, const PrkvParams& params)
      : plan_(plan),
        builder_(plan.builder),
        model_(plan.input.model),
        params_(params),
        filled_(plan, params.page, PageOffload::Pool::kNhd, static_cast<int>(params.dense_layers)),
        write_back_(builder_.AddStream("write-back", plan.host)),
        recall_(builder_.AddStream("recall", plan.host)),
        written_(static_cast<size_t>(model_.layers), OpId::kNone) {}

  void BeginStep(int step) override { filled_.BeginStep(step); }

  void Attention(int step, int layer) override {
    if (layer < params_.dense_layers) {
      plan_.AttendAll(step, layer);
      return;
    }
    const auto access = plan_.Access(step, layer);
    const int64_t context = plan_.Context(step);
    const int64_t pages = params_.regions().SelectableEnd(context);
    int64_t restructuring = 0, selecting = 0, dynamic = 0, missed = 0;
    const auto heads = static_cast<size_t>(model_.kv_heads);
    for (size_t i = 0; i < access.cells.size(); ++i) {
      const AccessCell& cell = access.cells[i];
      if (i % heads == 0 && (cell.flags & traces::kTriggered)) ++restructuring;
      if (i % heads == 0 && (cell.flags & traces::kSelectedNow)) ++selecting;
      dynamic = std::max<int64_t>(dynamic, cell.selected);
      missed += cell.recalled_now;
    }
    const int64_t static_pages = std::max<int64_t>(0, params_.budget_pages() - dynamic);
    OpId ready = OpId::kNone;
    if (restructuring > 0) RestructureFromHost(layer, restructuring, context, static_pages);
    if (selecting > 0 && dynamic > 0) {
      Select(layer, selecting, pages - static_pages, dynamic);
      if (selecting > restructuring) {
        ready = Recall(step, layer, selecting - restructuring, dynamic, missed);
      }
    }
    if (restructuring > 0) {
      // The restructured pages are still at hand.
      builder_.At(layer, Role::kLayout);
      builder_.For(Purpose::kKeepReordered)
          .Run(plan_.compute,
               plan::Layout{restructuring * model_.kv_heads * (static_pages + dynamic),
                            PageHeadBytes()});
    }
    const OpId written = params_.async_write_back ? OpId::kNone : written_[layer];
    plan_.Attend(layer, access.attended_tokens, access.attended_tokens_max, {ready, written});
  }

  void BeforePrefillAttention(int layer) override {
    if (layer >= params_.dense_layers && !RestructuresPrompt()) {
      filled_.Prefill(layer, /*sync_each_page=*/false);
    }
  }

  void AfterPrefillAttention(int layer) override {
    const int64_t pages = PromptPages();
    if (layer < params_.dense_layers || pages <= params_.budget_pages()) return;
    // How many pages the overlap rule makes static is known when it has run; its share of the
    // budget stands for it here.
    const int64_t static_pages = params_.static_pages();
    if (RestructuresPrompt()) {
      // The window's full pages are summarised and written with the others.
      const int64_t full = plan_.input.prompt_tokens / params_.page;
      Restructure(layer, plan_.input.batch, plan_.input.prompt_tokens, full, static_pages,
                  OpId::kNone);
      WriteBack(layer, plan_.input.batch, full);
    }
    // The cache is cut down to the budget by the last prompt token's scores.
    const int64_t dynamic = params_.budget_pages() - static_pages;
    if (dynamic > 0) Select(layer, plan_.input.batch, pages - static_pages, dynamic);
    filled_.Keep(layer, params_.regions(), params_.budget_pages());
  }

  void EndPrefill() override {
    filled_.EndPrefill();
    builder_.SyncStream(plan_.host, write_back_);
  }

 private:
  Bytes PageHeadBytes() const {
    return params_.page * model_.KvBytesPerTokenLayer() / model_.kv_heads;
  }
  Bytes RowBytes() const { return model_.KvRowBytes(); }
  int64_t PromptPages() const { return params_.regions().SelectableEnd(plan_.input.prompt_tokens); }
  bool RestructuresPrompt() const {
    return params_.has_static_set() && PromptPages() > params_.budget_pages();
  }

  // Chooses the static set from the keys that are there when `ready` is done, by the queries of the
  // window, and makes `pages` pages anew.
  void Restructure(int layer, int64_t sequences, int64_t context, int64_t pages,
                   int64_t static_pages, OpId ready) {
    const int64_t rows = sequences * model_.kv_heads;
    const int64_t tokens = params_.regions().SelectableEnd(context) * params_.page;
    builder_.At(layer, Role::kSelection);
    builder_.Run(
        plan_.compute,
        plan::ObservationScore{rows, model_.group(), static_cast<int32_t>(context - tokens),
                               model_.head_dim, tokens},
        {ready});
    builder_.For(Purpose::kChooseStatic)
        .Run(plan_.compute, plan::TopK{rows, tokens, static_pages * params_.page});
    builder_.SetRole(Role::kLayout);
    builder_.For(Purpose::kReorder)
        .Run(plan_.compute, plan::Layout{2 * rows * pages * params_.page, RowBytes()});
    builder_.SetRole(Role::kIndex);
    builder_.For(Purpose::kSummarizeReordered)
        .Run(plan_.compute,
             plan::Summarize{rows * pages, static_cast<int32_t>(params_.page), 2, model_.head_dim});
  }

  void WriteBack(int layer, int64_t sequences, int64_t pages) {
    builder_.At(layer, Role::kOffload);
    written_[layer] =
        builder_.For(Purpose::kWriteReordered)
            .Run(write_back_,
                 Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                      sequences * pages * params_.page * model_.KvBytesPerTokenLayer()},
                 {builder_.Last(plan_.compute)});
  }

  void RestructureFromHost(int layer, int64_t sequences, int64_t context, int64_t static_pages) {
    const int64_t pages = params_.regions().SelectableEnd(context);
    builder_.At(layer, Role::kIndex);
    const OpId fetched =
        builder_.For(Purpose::kFetchSequence)
            .Run(recall_,
                 Copy{Direction::kHostToDevice, CopyPath::kBulk, 1,
                      sequences * pages * params_.page * model_.KvBytesPerTokenLayer()},
                 {builder_.Last(plan_.compute), written_[layer], filled_.Written(layer)});
    Restructure(layer, sequences, context, pages, static_pages, fetched);
    WriteBack(layer, sequences, pages);
  }

  void Select(int layer, int64_t sequences, int64_t candidates, int64_t dynamic) {
    const int64_t rows = sequences * model_.kv_heads;
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.compute, plan::Score{candidates, rows, model_.group(), 2, model_.head_dim});
    builder_.For(Purpose::kChooseUnits)
        .Run(plan_.compute, plan::TopK{rows, candidates, std::min(candidates, dynamic)});
  }

  // What is missed comes from the host. Returns the op that the attention waits for.
  OpId Recall(int step, int layer, int64_t sequences, int64_t dynamic, int64_t missed) {
    const int64_t rows = sequences * model_.kv_heads;
    builder_.Run(plan_.compute, plan::AssignSlots{rows, dynamic, dynamic});
    builder_.SetRole(Role::kSync);
    builder_.For(Purpose::kReadMissed)
        .Run(plan_.compute, Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                                 rows * dynamic * int64_t{sizeof(int32_t)}});
    builder_.SyncStream(plan_.host, plan_.compute);
    if (missed == 0) return OpId::kNone;
    const bool hnd = params_.layout == PrkvParams::Layout::kHnd;
    const bool batched = params_.transfer == PrkvParams::Transfer::kBatched;
    builder_.At(layer, Role::kRecall);
    if (batched || !hnd) {
      // A head's page is one piece, or a piece a key and value row.
      const int64_t pieces = hnd ? missed : missed * 2 * params_.page;
      builder_.Run(plan_.host,
                   plan::HostGather{pieces, hnd ? PageHeadBytes() : RowBytes(),
                                    static_cast<int32_t>(params_.workers)},
                   {written_[layer], filled_.Written(layer)});
    }
    Copy copy{Direction::kHostToDevice, CopyPath::kPerPiece, missed, PageHeadBytes()};
    if (batched) {
      copy = {Direction::kHostToDevice, CopyPath::kBulk, 1, missed * PageHeadBytes()};
    } else if (hnd) {
      copy = DecoderPlan::OneAfterTheOther(
          plan_.CopiesOfUnits(DecoderPlan::When::kNow, step, layer, PageHeadBytes()));
    }
    const OpId copied = builder_.For(Purpose::kBringRecalled)
                            .Run(recall_, copy, {written_[layer], filled_.Written(layer)});
    // A page copied by itself to an HND cache is where it belongs.
    if (!batched && hnd) return copied;
    builder_.SetRole(Role::kLayout);
    return builder_.For(Purpose::kPlaceRecalled)
        .Run(recall_, plan::Layout{hnd ? missed : missed * 2 * params_.page,
                                   hnd ? PageHeadBytes() : RowBytes()});
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  PrkvParams params_;
  PageOffload filled_;
  LaneId write_back_, recall_;
  std::vector<OpId> written_;  // by layer: its last write-back
};

}  // namespace

std::unique_ptr<PlanWriter> NewPrkvPlan(DecoderPlan& plan, const PrkvParams& params) {
  return std::make_unique<PrkvPlan>(plan, params);
}

}  // namespace stallcast::methods
