#include "models/methods/common/head_keeper.h"

#include <tbb/parallel_for.h>

#include <algorithm>

#include "models/methods/common/log_cells.h"

namespace stallcast::methods {

void ReplayKeepers(const LayerTensors& tensors,
                   std::span<const std::unique_ptr<HeadKeeper>> keepers,
                   const std::function<void(int step)>& begin_step, traces::LayerAccess& access,
                   AttendedRanges& attended) {
  const auto heads = static_cast<int>(keepers.size());
  std::vector<std::vector<uint32_t>> kept(keepers.size());
  std::vector<int64_t> dropped(keepers.size());
  tbb::parallel_for(0, heads, [&](int head) { kept[head] = keepers[head]->AfterPrefill(); });
  LogCells cells(access, attended, heads);
  for (int step = 0; step < tensors.steps(); ++step) {
    if (begin_step) begin_step(step);
    const auto token = static_cast<uint32_t>(tensors.prompt_tokens() + step);
    tbb::parallel_for(0, heads, [&](int head) {
      const auto before = std::ssize(kept[head]);
      keepers[head]->MakeRoom(step, kept[head]);
      dropped[head] = before - std::ssize(kept[head]);
      kept[head].push_back(token);
      keepers[head]->Attended(step, kept[head]);
    });
    const bool any = std::ranges::any_of(dropped, [](int64_t tokens) { return tokens > 0; });
    for (int head = 0; head < heads; ++head) {
      for (const uint32_t id : kept[head]) attended.Add(id, int64_t{id} + 1);
      cells.End({.flags = any ? uint8_t{traces::kEvicted} : uint8_t{0},
                 .evicted = static_cast<int32_t>(dropped[head]),
                 .cached_tokens = std::ssize(kept[head])});
    }
  }
}

ObservationWindow::ObservationWindow(const LayerTensors& tensors, int64_t window)
    : first(std::max(tensors.first_query_token(), tensors.prompt_tokens() - window)),
      end(std::max(first + 1, tensors.prompt_tokens())) {}

}  // namespace stallcast::methods
