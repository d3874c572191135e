#include "models/methods/streaming/policy.h"

#include <algorithm>

#include "models/methods/common/log_cells.h"

namespace stallcast::methods {

void StreamingPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                             AttendedRanges& attended) const {
  LogCells cells(access, attended, /*heads=*/1);
  for (int step = 0; step < tensors.steps(); ++step) {
    const int64_t context = tensors.prompt_tokens() + step + 1;
    const int64_t sink = std::min(params_.sink, context);
    attended.Add(0, sink);
    attended.Add(std::max(sink, context - params_.window()), context);
    // One token came.
    cells.End({.evicted = context > params_.budget ? 1 : 0});
  }
}

}  // namespace stallcast::methods
