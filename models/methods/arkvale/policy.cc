#include "models/methods/arkvale/policy.h"

#include "models/methods/common/log_cells.h"
#include "models/methods/common/paged_selection.h"

namespace stallcast::methods {

void ArkValePolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                           AttendedRanges& attended) const {
  const int heads = params_.variant == ArkValeParams::Variant::kPublished ? 1 : tensors.kv_heads();
  PagedSelection selection(tensors, {.regions = params_.regions(),
                                     .summary = PageSummary::kCuboidMean,
                                     .pooling = Pooling::kMean,
                                     .heads = heads,
                                     .slots = params_.slots()});
  LogCells cells(access, attended, heads);
  for (int step = 0; step < tensors.steps(); ++step) {
    selection.BeginStep(step);
    for (int head = 0; head < heads; ++head) {
      LogCell cell;
      std::vector<uint32_t> recalled;
      if (selection.Overflows()) {
        cell.flags = traces::kSelectedNow;
        selection.Rank(head);
        recalled = selection.Recall(head, params_.ranked());
      }
      cell.selected = selection.Cached(head);
      cell.recalled_now = recalled;
      cell.evicted = selection.TakeEvicted(head);
      selection.AddAttended(head, attended);
      cells.End(cell);
    }
  }
}

}  // namespace stallcast::methods
