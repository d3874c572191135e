#include "models/methods/quest/plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

namespace stallcast::methods {
namespace {

using plan::Role;

// Bounds are kept up to date by the append kernel; a sparse layer adds scores and top-k.
class QuestPlan : public PlanWriter {
 public:
  QuestPlan(DecoderPlan& plan, const QuestParams& params) : plan_(plan), params_(params) {}

  void Attention(int step, int layer) override {
    if (layer < params_.dense_layers) {
      plan_.AttendAll(step, layer);
      return;
    }
    const llm::Model& m = plan_.input.model;
    const auto access = plan_.Access(step, layer);
    const int64_t pages = (plan_.Context(step) + params_.page - 1) / params_.page;
    const int heads = plan_.log.heads();
    plan_.builder.At(layer, Role::kSelection);
    plan_.builder.Run(
        plan_.compute,
        plan::Score{pages, plan_.kv_rows(), m.group(), /*vectors=*/2, m.head_dim,
                    params_.group == QuestParams::Group::kQueryHead ? plan::Score::Pool::kNone
                                                                    : plan::Score::Pool::kGroup});
    plan_.builder.Run(plan_.compute, plan::TopK{int64_t{plan_.input.batch} * heads, pages,
                                                std::min(pages, params_.budget_pages())});
    plan_.builder.SetRole(Role::kAttention);
    plan_.Attend(plan::DecodeAttention{access.attended_tokens, access.attended_tokens_max,
                                       plan_.input.batch, heads, m.query_heads / heads, m.head_dim,
                                       DistinctTokens(step, layer, access), plan_.Context(step)});
  }

  Decoder decoder() const override {
    return plan_.input.as_run ? Decoder::kTransformersFused : Decoder::kOwn;
  }
  bool KeepsBounds(int layer) const override { return layer >= params_.dense_layers; }

  void BeforePrefillAttention(int layer) override {
    if (layer < params_.dense_layers) return;
    const int64_t pages = (plan_.input.prompt_tokens + params_.page - 1) / params_.page;
    plan_.builder.At(layer, Role::kIndex);
    plan_.builder.Run(plan_.compute,
                      plan::Summarize{plan_.kv_rows() * pages, static_cast<int32_t>(params_.page),
                                      /*vectors=*/2, plan_.input.model.head_dim});
  }

 private:
  // Query heads of a group choose pages of one KV head: what several choose is read once.
  int64_t DistinctTokens(int step, int layer, const DecoderPlan::LayerAccess& access) {
    const int heads = plan_.log.heads();
    const int sharing = heads / plan_.input.model.kv_heads;
    if (sharing <= 1) return access.attended_tokens;
    int64_t distinct = 0;
    for (int cell = 0; cell < static_cast<int>(access.cells.size()); cell += sharing) {
      const AccessCell& first = access.cells[static_cast<size_t>(cell)];
      if (first.attended_tokens == plan_.Context(step)) {
        distinct += first.attended_tokens;  // each attends everything
        continue;
      }
      // Beside the pages that are chosen, all have the newest in common, which may be partial.
      const int64_t newest = (first.context - 1) % params_.page + 1;
      const int64_t shared = SharedPages(step, layer, cell / heads, cell % heads, sharing);
      const int64_t of_group =
          int64_t{sharing} * first.attended_tokens - shared * params_.page - (sharing - 1) * newest;
      // The log's context may be longer, with more to choose from.
      distinct += std::min(of_group, plan_.Context(step));
    }
    return distinct;
  }

  // Choices of the group's heads that another of them has made too.
  int64_t SharedPages(int step, int layer, int sequence, int first, int sharing) {
    const std::array<int, 3> key{plan_.log.LayerOf(layer), plan_.log.LogStep(step, sequence),
                                 first};
    const auto [known, fresh] = shared_pages_.try_emplace(key, 0);
    if (!fresh) return known->second;
    std::vector<uint32_t> pages;
    for (int head = first; head < first + sharing; ++head) {
      const auto chosen = plan_.log.Selected(step, layer, sequence, head);
      pages.insert(pages.end(), chosen.begin(), chosen.end());
    }
    std::sort(pages.begin(), pages.end());
    const auto distinct = std::unique(pages.begin(), pages.end());
    return known->second = pages.end() - distinct;
  }

  DecoderPlan& plan_;
  std::map<std::array<int, 3>, int64_t> shared_pages_;
  QuestParams params_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewQuestPlan(DecoderPlan& plan, const QuestParams& params) {
  return std::make_unique<QuestPlan>(plan, params);
}

}  // namespace stallcast::methods
