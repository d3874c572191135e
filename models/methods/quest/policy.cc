#include "models/methods/quest/policy.h"

#include <tbb/parallel_for.h>

#include "models/methods/common/log_cells.h"
#include "models/methods/common/page_cache.h"
#include "models/methods/common/page_scores.h"
#include "models/methods/common/ranking.h"

namespace stallcast::methods {

void QuestPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                         AttendedRanges& attended) const {
  const bool alone = params_.group == QuestParams::Group::kQueryHead;
  const Pooling pooling =
      params_.group == QuestParams::Group::kMax ? Pooling::kMax : Pooling::kMean;
  const int heads = alone ? tensors.query_heads() : tensors.kv_heads();
  const int heads_a_selection = tensors.query_heads() / heads;
  const PageRegions regions{params_.page, /*sink_pages=*/0, /*window_pages=*/1};
  const int64_t kept = params_.budget_pages() - 1;  // beside the last page
  PageScores scores(tensors, params_.page, PageSummary::kMinMax);
  LogCells cells(access, attended, heads);
  // Selections do not depend on each other: a block of steps, all heads at once.
  std::vector<std::vector<uint32_t>> chosen;
  const int64_t end = tensors.prompt_tokens() + tensors.steps();
  for (int64_t begin = tensors.prompt_tokens(), next; begin < end; begin = next) {
    next = scores.Load(begin);
    chosen.resize(static_cast<size_t>((next - begin) * heads));
    tbb::parallel_for(0, heads, [&](int head) {
      std::vector<const float*> rows(static_cast<size_t>(heads_a_selection));
      std::vector<float> pooled;
      for (int64_t token = begin; token < next; ++token) {
        for (int g = 0; g < heads_a_selection; ++g) {
          rows[g] = scores.Of(head * heads_a_selection + g, token);
        }
        const int64_t pages = regions.SelectableEnd(token + 1);
        PoolScores(pooling, rows, pages, tensors.softmax_scale(), pooled);
        chosen[(token - begin) * heads + head] = Best(pooled, 0, kept);
      }
    });
    for (int64_t token = begin; token < next; ++token) {
      for (int head = 0; head < heads; ++head) {
        const std::vector<uint32_t>& pages = chosen[(token - begin) * heads + head];
        AddPages(regions, pages, token + 1, attended);
        const bool selects = regions.SelectableEnd(token + 1) > kept;
        cells.End(
            {.flags = selects ? uint8_t{traces::kSelectedNow} : uint8_t{0}, .selected = pages});
      }
    }
  }
}

}  // namespace stallcast::methods
