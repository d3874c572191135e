#include "models/methods/freekv/policy.h"

#include <algorithm>

#include "models/methods/common/log_cells.h"
#include "models/methods/common/paged_selection.h"
#include "models/methods/common/similarity.h"

namespace stallcast::methods {

void FreeKvPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                          AttendedRanges& attended) const {
  const int heads = tensors.kv_heads();
  PagedSelection selection(tensors, {.regions = params_.regions(),
                                     .summary = params_.summary,
                                     .pooling = params_.pooling,
                                     .heads = heads,
                                     .slots = params_.slots()});
  LogCells cells(access, attended, heads);
  std::vector<float> similarity(static_cast<size_t>(heads));
  for (int step = 0; step < tensors.steps(); ++step) {
    selection.BeginStep(step);
    const bool select = selection.Overflows();
    const bool check = select && params_.checks();
    const auto triggered = [&](float s) { return check && s < static_cast<float>(params_.tau); };
    for (int head = 0; check && head < heads; ++head) {
      similarity[head] =
          AdjacentSimilarity(tensors, head * tensors.group(), (head + 1) * tensors.group(),
                             tensors.prompt_tokens() + step);
    }
    // One head under tau puts the whole layer's selection before attention; the other heads' recall
    // stays behind it.
    const bool layer_now = std::any_of(similarity.begin(), similarity.end(), triggered);
    for (int head = 0; head < heads; ++head) {
      LogCell cell;
      std::vector<uint32_t> attended_pages, now, ahead;
      if (select) selection.Rank(head);
      const bool corrected = triggered(similarity[head]);
      const bool before = select && (corrected || !params_.speculation);
      if (before) now = selection.Recall(head, params_.slots());
      const std::span<const uint32_t> cached = selection.Cached(head);
      attended_pages.assign(cached.begin(), cached.end());
      selection.AddAttended(head, attended);
      if (select && !before) ahead = selection.Recall(head, params_.slots());
      if (check) cell.similarity = similarity[head];
      if (select) {
        cell.flags = before || layer_now ? traces::kSelectedNow : traces::kSelectedAhead;
      }
      if (corrected) cell.flags |= traces::kTriggered;
      cell.selected = attended_pages;
      cell.recalled_now = now;
      cell.recalled_ahead = ahead;
      cell.evicted = selection.TakeEvicted(head);
      cells.End(cell);
    }
  }
}

}  // namespace stallcast::methods
