#include "models/methods/quest/policy.h"

#include "models/methods/common/bound_selection.h"
#include "models/methods/common/log_cells.h"
#include "models/methods/common/page_cache.h"

namespace stallcast::methods {

void QuestPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                         AttendedRanges& attended) const {
  const bool alone = params_.group == QuestParams::Group::kQueryHead;
  const BoundSelection selection{
      .page_tokens = params_.page,
      .heads = alone ? tensors.query_heads() : tensors.kv_heads(),
      .pooling = params_.group == QuestParams::Group::kMax ? Pooling::kMax : Pooling::kMean,
      .pages = params_.budget_pages() - 1};
  const PageRegions regions{params_.page, /*sink_pages=*/0, /*window_pages=*/1};
  LogCells cells(access, attended, selection.heads);
  ForEachSelection(
      tensors, selection, [&](int step, int /*head*/, std::span<const uint32_t> pages) {
        const int64_t context = tensors.prompt_tokens() + step + 1;
        AddPages(regions, pages, context, attended);
        const bool selects = regions.SelectableEnd(context) > selection.pages;
        cells.End(
            {.flags = selects ? uint8_t{traces::kSelectedNow} : uint8_t{0}, .selected = pages});
      });
}

}  // namespace stallcast::methods
