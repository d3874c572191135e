#include "models/methods/wgkv/plan.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::Role;

// Waits of the public code for scalars that it reads of a mask: a step's promotion, and a layer's
// index of the vertical-slash pattern in prefill, beside one a head for its admitted tokens.
constexpr int kPromotionSyncs = 3;
constexpr int kIndexSyncs = 1;

// Cache sizes come from the log. At another context than the trace's, the share admitted of what
// has left the window stays as it is; a cache that evicts stays as large as it is.
class WgKvPlan : public PlanWriter {
 public:
  WgKvPlan(DecoderPlan& plan, const WgKvParams& params)
      : plan_(plan),
        builder_(plan.builder),
        model_(plan.input.model),
        params_(params),
        copies_(model_.kv_heads / plan.log.heads()) {
    if (params.host == WgKvParams::Host::kAsCoded) {
      plan.RefuseGraph("wgkv", "use host=apart, or no graphs");
    }
    if (Evicts()) plan.RefuseGraph("wgkv", "use evict=none, or no graphs");
  }

  void BeginStep(int step) override {
    if (plan_.Context(step) <= params_.window) return;
    int64_t promoted = 0;
    for (int layer = 0; layer < model_.layers; ++layer) {
      ForEachHead(step, layer, [&](int sequence, int head, const AccessCell& cell) {
        const int64_t before =
            step == 0 ? Global(cell, 0, -1)
                      : Global(plan_.log.At(step - 1, layer, sequence, head), step - 1, 0);
        promoted += std::max<int64_t>(0, Global(cell, step, 0) - before);
      });
    }
    builder_.At(-1, Role::kLayout);
    Sync(kPromotionSyncs);
    const int64_t rows = plan_.kv_rows() * model_.layers;
    builder_.Run(plan_.compute, plan::Admit{rows, rows, promoted, model_.head_dim});
    if (Selects()) Summarize(rows);  // each row's last whole page
  }

  void Attention(int step, int layer) override {
    RunGate(layer, plan_.input.batch);
    int64_t attended = 0, longest = 0, cached = 0;
    bool evicted = false;
    ForEachHead(step, layer, [&](int, int, const AccessCell& cell) {
      const int64_t tokens = Attended(cell, step);
      attended += tokens;
      longest = std::max(longest, tokens);
      cached += Global(cell, step, 0);
      evicted |= (cell.flags & traces::kEvicted) != 0;
    });
    if (evicted) Evict(cached);
    const int64_t pages = Mean(cached) / params_.page;
    if (Selects() && pages > 0) {
      builder_.SetRole(Role::kSelection);
      builder_.Run(plan_.compute,
                   plan::Score{pages, plan_.kv_rows(), model_.group(), 2, model_.head_dim});
      builder_.Run(plan_.compute,
                   plan::TopK{plan_.kv_rows(), pages, std::min(pages, SelectedPages())});
      // The table of what is attended.
      const int64_t entries = params_.window / params_.page + std::min(pages, SelectedPages());
      builder_.Run(plan_.compute, plan::Layout{plan_.kv_rows(), entries * Bytes{sizeof(int32_t)}});
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
    if (Selects()) Summarize(Vertical(layer) / params_.page);
  }

  void AfterPrefillAttention(int layer) override {
    // The window goes to its ring.
    const int64_t tokens = std::min(plan_.input.prompt_tokens, params_.window);
    builder_.At(layer, Role::kLayout);
    builder_.Run(plan_.compute,
                 plan::Layout{plan_.kv_rows(),
                              tokens * 2 * int64_t{model_.head_dim} * model_.element_bytes});
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
  bool Evicts() const { return params_.evict == WgKvParams::Evict::kSnapKv; }
  int64_t SelectedPages() const { return (params_.budget - params_.window) / params_.page; }
  int64_t Mean(int64_t all_rows) const { return all_rows / plan_.kv_rows(); }

  /// Calls for every KV head of every sequence; heads that share a cell one after another.
  template <class Call>
  void ForEachHead(int step, int layer, const Call& call) const {
    for (int sequence = 0; sequence < plan_.input.batch; ++sequence) {
      for (int head = 0; head < plan_.log.heads(); ++head) {
        const AccessCell cell = plan_.log.At(step, layer, sequence, head);
        for (int i = 0; i < copies_; ++i) call(sequence, head, cell);
      }
    }
  }

  /// Tokens in the global cache of a head at `step`, `later` tokens later.
  int64_t Global(const AccessCell& cell, int step, int later) const {
    const int64_t kept = cell.cached_tokens - std::min(params_.window, cell.context);
    const int64_t left = std::max<int64_t>(0, plan_.Context(step) + later - params_.window);
    if (Evicts()) return std::min(kept, left);
    const int64_t traced = cell.context - params_.window;
    if (traced <= 0) return 0;
    return std::llround(static_cast<double>(kept) / static_cast<double>(traced) *
                        static_cast<double>(left));
  }

  int64_t Attended(const AccessCell& cell, int step) const {
    const int64_t context = plan_.Context(step);
    if (context == cell.context) return cell.attended_tokens;
    const int64_t kept = std::min(params_.window, context) + Global(cell, step, 0);
    return Selects() ? std::min(kept, params_.budget) : kept;
  }

  /// Tokens that a layer's heads admit of the prompt.
  int64_t Vertical(int layer) const {
    int64_t tokens = 0;
    ForEachHead(0, layer, [&](int, int, const AccessCell& cell) { tokens += Global(cell, 0, -1); });
    return tokens;
  }

  void Summarize(int64_t pages) {
    builder_.SetRole(Role::kIndex);
    builder_.Run(plan_.compute, plan::Summarize{pages, static_cast<int32_t>(params_.page),
                                                /*vectors=*/2, model_.head_dim});
  }

  void RunGate(int layer, int64_t tokens) {
    builder_.At(layer, Role::kIndex);
    builder_.Run(plan_.compute,
                 plan::GateMlp{tokens, model_.kv_heads, model_.head_dim,
                               static_cast<int32_t>(params_.expand * model_.head_dim)});
  }

  void Evict(int64_t kept) {
    const int64_t share = Mean(kept);
    const auto before = std::llround(static_cast<double>(kept) / (1 - params_.evict_share));
    builder_.SetRole(Role::kSelection);
    builder_.Run(plan_.compute,
                 plan::WindowScore{plan_.kv_rows(), before + plan_.kv_rows() * params_.window,
                                   params_.observe, model_.group(), model_.head_dim});
    builder_.Run(plan_.compute, plan::TopK{plan_.kv_rows(), Mean(before), share});
    builder_.SetRole(Role::kLayout);
    builder_.Run(plan_.compute, plan::Admit{plan_.kv_rows(), before, kept, model_.head_dim});
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
  int copies_;  // KV heads of the model for each of the log's
};

}  // namespace

std::unique_ptr<PlanWriter> NewWgKvPlan(DecoderPlan& plan, const WgKvParams& params) {
  return std::make_unique<WgKvPlan>(plan, params);
}

}  // namespace stallcast::methods
