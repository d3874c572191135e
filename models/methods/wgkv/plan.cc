#include "models/methods/wgkv/plan.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::Purpose;
using plan::Role;

// Waits of the public code for scalars that it reads: a step's promotion and whether to evict, and
// a layer's index of the vertical-slash pattern in prefill, beside one a head for its admitted
// tokens there and for its length in an eviction.
constexpr int kPromotionSyncs = 3;
constexpr int kTriggerSyncs = 1;
constexpr int kIndexSyncs = 1;

bool EverEvicts(const traces::AccessLog& log) {
  return std::ranges::any_of(log.layers, [](const traces::LayerAccess& layer) {
    return std::ranges::any_of(layer.flags,
                               [](uint8_t flags) { return (flags & traces::kEvicted) != 0; });
  });
}

// Cache sizes come from the log. At another context than the trace's, the share admitted of what
// has left the window stays as it is; a cache that evicts stays as large as it is, and evicts when
// the trace's does.
//
// Each sequence evicts by itself, between a layer's gate and its attention. Its last queries lie
// where RopeAppend puts them, in a ring of `observe`, so keeping them is no op.
class WgKvPlan : public PlanWriter {
 public:
  WgKvPlan(DecoderPlan& plan, const WgKvParams& params)
      : plan_(plan),
        builder_(plan.builder),
        model_(plan.input.model),
        params_(params),
        copies_(model_.kv_heads / plan.log.heads()),
        evicts_(EverEvicts(*plan.input.log)) {}

  void BeginStep(int step) override {
    if (plan_.Context(step) <= params_.window) return;
    int64_t promoted = 0;
    for (int layer = 0; layer < model_.layers; ++layer) {
      ForEachHead(step, layer, [&](int sequence, int head, const AccessCell& cell) {
        const bool logged = step > 0 || (evicts_ && sequence * plan_.log.stagger() > 0);
        const int64_t before = logged
                                   ? Global(plan_.log.At(step - 1, layer, sequence, head), step - 1)
                                   : BeforeFirst(cell);
        promoted += std::max<int64_t>(0, BeforeEviction(cell, step) - before);
      });
    }
    builder_.At(-1, Role::kLayout);
    Sync(kPromotionSyncs + (MayEvict() ? kTriggerSyncs : 0));
    const int64_t rows = plan_.kv_rows() * model_.layers;
    builder_.Run(plan_.compute, plan::Admit{rows, rows, promoted, model_.head_dim});
    if (Selects()) Summarize(Purpose::kSummarizeFilled, rows);  // each row's last whole page
  }

  void Attention(int step, int layer) override {
    RunGate(layer, plan_.input.batch);
    for (int sequence = 0; evicts_ && sequence < plan_.input.batch; ++sequence) {
      Evict(step, layer, sequence);
    }
    int64_t attended = 0, longest = 0, cached = 0;
    ForEachHead(step, layer, [&](int, int, const AccessCell& cell) {
      const int64_t tokens = Attended(cell, step);
      attended += tokens;
      longest = std::max(longest, tokens);
      cached += Global(cell, step);
    });
    const int64_t pages = Mean(cached) / params_.page;
    if (Selects() && pages > 0) {
      builder_.SetRole(Role::kSelection);
      builder_.Run(plan_.compute,
                   plan::Score{pages, plan_.kv_rows(), model_.group(), 2, model_.head_dim});
      builder_.For(Purpose::kChooseUnits)
          .Run(plan_.compute, plan::TopK{plan_.kv_rows(), pages, std::min(pages, SelectedPages())});
      // The table of what is attended.
      const int64_t entries = params_.window / params_.page + std::min(pages, SelectedPages());
      builder_.For(Purpose::kListAttended)
          .Run(plan_.compute, plan::Layout{plan_.kv_rows(), entries * Bytes{sizeof(int32_t)}});
    }
    plan_.Attend(layer, attended, longest);
  }

  void BeforePrefillAttention(int layer) override {
    const int64_t tokens = int64_t{plan_.input.batch} * plan_.input.prompt_tokens;
    RunGate(layer, tokens);
    builder_.SetRole(Role::kLayout);
    Sync(model_.kv_heads + kIndexSyncs);
    builder_.Run(plan_.compute, plan::Admit{plan_.kv_rows(), tokens * model_.kv_heads,
                                            Vertical(layer), model_.head_dim});
    if (Selects()) Summarize(Purpose::kSummarizeFilled, Vertical(layer) / params_.page);
  }

  void AfterPrefillAttention(int layer) override {
    // The window goes to its ring.
    const int64_t tokens = std::min(plan_.input.prompt_tokens, params_.window);
    builder_.At(layer, Role::kLayout);
    builder_.For(Purpose::kKeepPrompt)
        .Run(plan_.compute, plan::Layout{plan_.kv_rows(), tokens * 2 * model_.KvRowBytes()});
  }

  plan::Work PrefillAttention(int layer, const plan::PrefillAttention& dense) override {
    if (params_.prefill == WgKvParams::Prefill::kDense || dense.tokens <= params_.window) {
      return dense;
    }
    return plan::VerticalSlashAttention{dense.sequences, dense.tokens,      params_.window,
                                        Vertical(layer), dense.query_heads, dense.kv_heads,
                                        dense.head_dim};
  }

 private:
  bool Selects() const { return params_.select == WgKvParams::Select::kQuest; }
  bool MayEvict() const { return params_.evict == WgKvParams::Evict::kSnapKv; }
  int64_t SelectedPages() const { return (params_.budget - params_.window) / params_.page; }
  int64_t Mean(int64_t all_rows) const { return all_rows / plan_.kv_rows(); }

  /// Calls for every KV head of a sequence; heads that share a cell one after another.
  template <class Call>
  void ForEachHead(int step, int layer, int sequence, const Call& call) const {
    for (int head = 0; head < plan_.log.heads(); ++head) {
      const AccessCell cell = plan_.log.At(step, layer, sequence, head);
      for (int i = 0; i < copies_; ++i) call(sequence, head, cell);
    }
  }
  /// Of every sequence.
  template <class Call>
  void ForEachHead(int step, int layer, const Call& call) const {
    for (int sequence = 0; sequence < plan_.input.batch; ++sequence) {
      ForEachHead(step, layer, sequence, call);
    }
  }

  /// `kept` tokens of a head's global cache in the trace, at the context of `step`, `later` tokens
  /// later, if the share of what has left the window stays as it is.
  int64_t AtContext(const AccessCell& cell, int64_t kept, int step, int later) const {
    const int64_t traced = cell.context - params_.window;
    return traced <= 0 ? 0
                       : std::llround(static_cast<double>(kept) / static_cast<double>(traced) *
                                      static_cast<double>(Left(step, later)));
  }
  int64_t Left(int step, int later) const {
    return std::max<int64_t>(0, plan_.Context(step) + later - params_.window);
  }
  int64_t Kept(const AccessCell& cell) const {
    return cell.cached_tokens - std::min(params_.window, cell.context);
  }

  /// Tokens in the global cache of a head when `step` attends.
  int64_t Global(const AccessCell& cell, int step) const {
    return evicts_ ? std::min(Kept(cell), Left(step, 0)) : AtContext(cell, Kept(cell), step, 0);
  }
  int64_t BeforeEviction(const AccessCell& cell, int step) const {
    return Global(cell, step) + cell.evicted;
  }
  /// Before step 0: what prefill admitted, of a sequence that starts with the trace.
  int64_t BeforeFirst(const AccessCell& cell) const {
    return AtContext(cell, Kept(cell) + cell.evicted, 0, -1);
  }

  int64_t Attended(const AccessCell& cell, int step) const {
    const int64_t context = plan_.Context(step);
    if (context == cell.context) return cell.attended_tokens;
    const int64_t kept = std::min(params_.window, context) + Global(cell, step);
    return Selects() ? std::min(kept, params_.budget) : kept;
  }

  /// Tokens that a layer's heads admit of the prompt, which all sequences share where some evict.
  int64_t Vertical(int layer) const {
    int64_t tokens = 0;
    for (int sequence = 0; sequence < plan_.input.batch; ++sequence) {
      ForEachHead(0, layer, evicts_ ? 0 : sequence,
                  [&](int, int, const AccessCell& cell) { tokens += BeforeFirst(cell); });
    }
    return tokens;
  }

  void Summarize(Purpose purpose, int64_t pages) {
    builder_.SetRole(Role::kIndex);
    builder_.For(purpose).Run(plan_.compute,
                              plan::Summarize{pages, static_cast<int32_t>(params_.page),
                                              /*vectors=*/2, model_.head_dim});
  }

  void RunGate(int layer, int64_t tokens) {
    builder_.At(layer, Role::kIndex);
    builder_.Run(plan_.compute,
                 plan::GateMlp{tokens, model_.kv_heads, model_.head_dim,
                               static_cast<int32_t>(params_.expand * model_.head_dim)});
  }

  /// If the log says so: the last queries score what each head keeps, the least important tokens
  /// are chosen, and those behind the first of them move up in their pages.
  void Evict(int step, int layer, int sequence) {
    int64_t before = 0, after = 0, longest = 0, dropped = 0, pages = 0;
    ForEachHead(step, layer, sequence, [&](int, int, const AccessCell& cell) {
      before += BeforeEviction(cell, step);
      after += Global(cell, step);
      longest = std::max(longest, BeforeEviction(cell, step));
      dropped = std::max<int64_t>(dropped, cell.evicted);
      pages += Global(cell, step) / params_.page;
    });
    if (dropped == 0) return;
    const int64_t rows = model_.kv_heads;
    Sync(model_.kv_heads);
    builder_.SetRole(Role::kSelection);
    builder_.Run(plan_.compute,
                 plan::WindowScore{rows, before + rows * params_.window, params_.observe,
                                   model_.group(), model_.head_dim});
    builder_.For(Purpose::kChooseEvicted)
        .Run(plan_.compute, plan::TopK{rows, longest, std::min(dropped, longest)});
    builder_.SetRole(Role::kLayout);
    builder_.For(Purpose::kDropEvicted)
        .Run(plan_.compute, plan::Layout{2 * after, model_.KvRowBytes()});
    if (Selects()) Summarize(Purpose::kSummarizeKept, pages);
  }

  void Sync(int times) {
    if (params_.host != WgKvParams::Host::kAsCoded) return;
    for (int i = 0; i < times; ++i) {
      builder_.SetRole(Role::kSync);
      builder_.Run(plan_.compute, Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1, 4});
      builder_.SyncStream(plan_.host, plan_.compute);
    }
    builder_.SetRole(Role::kLayout);
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  WgKvParams params_;
  int copies_;   // KV heads of the model for each of the log's
  bool evicts_;  // at any step of the log
};

}  // namespace

std::unique_ptr<PlanWriter> NewWgKvPlan(DecoderPlan& plan, const WgKvParams& params) {
  return std::make_unique<WgKvPlan>(plan, params);
}

}  // namespace stallcast::methods
