#include "models/methods/hisparse/policy.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "models/methods/common/bound_selection.h"
#include "models/methods/common/log_cells.h"
#include "models/methods/common/page_cache.h"

namespace stallcast::methods {
namespace {

// Steps in which each unit of each head is chosen, ascending.
class FutureUses {
 public:
  FutureUses(const LayerTensors& tensors, const BoundSelection& selection)
      : steps_(static_cast<size_t>(selection.heads)) {
    ForEachSelection(tensors, selection, [&](int step, int head, std::span<const uint32_t> pages) {
      auto& of_head = steps_[static_cast<size_t>(head)];
      for (const uint32_t page : pages) {
        if (page >= of_head.size()) of_head.resize(size_t{page} + 1);
        of_head[page].push_back(step);
      }
    });
  }
  int32_t Next(int head, uint32_t page, int32_t step) const {
    const auto& of_head = steps_[static_cast<size_t>(head)];
    constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
    if (page >= of_head.size()) return kNever;
    const auto next = std::ranges::upper_bound(of_head[page], step);
    return next == of_head[page].end() ? kNever : *next;
  }

 private:
  std::vector<std::vector<std::vector<int32_t>>> steps_;  // [head][unit]
};

}  // namespace

void HiSparsePolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                            AttendedRanges& attended) const {
  const int heads = tensors.kv_heads();
  const BoundSelection selection{
      .page_tokens = params_.page,
      .heads = heads,
      .pooling = params_.group == HiSparseParams::Group::kMax ? Pooling::kMax : Pooling::kMean,
      .pages = params_.chosen()};
  const PageRegions regions{params_.page, /*sink_pages=*/0, /*window_pages=*/1};
  std::optional<FutureUses> future;
  if (params_.eviction == Replacement::kBelady) future.emplace(tensors, selection);
  // Before the first step the newest page is the first token's to come.
  const auto filled = static_cast<uint32_t>(regions.SelectableEnd(tensors.prompt_tokens() + 1));
  std::vector<UnitBuffer> buffers;
  for (int head = 0; head < heads; ++head) {
    const auto seed = static_cast<uint64_t>(tensors.layer()) * 1024 + static_cast<uint64_t>(head);
    buffers.emplace_back(
        params_.slots(), params_.eviction, seed,
        [&future, head](uint32_t page, int32_t step) { return future->Next(head, page, step); });
    buffers.back().Fill(filled);
  }
  LogCells cells(access, attended, heads);
  uint32_t complete = filled;
  ForEachSelection(tensors, selection, [&](int step, int head, std::span<const uint32_t> pages) {
    const int64_t context = tensors.prompt_tokens() + step + 1;
    const auto end = static_cast<uint32_t>(regions.SelectableEnd(context));
    std::vector<uint32_t> written;
    if (end > complete) written.push_back(complete);
    if (head == heads - 1) complete = end;
    UnitBuffer& buffer = buffers[static_cast<size_t>(head)];
    const std::vector<uint32_t> missing = buffer.Use(step, pages, written);
    AddPages(regions, pages, context, attended);
    const bool selects = end > params_.chosen();
    cells.End({.flags = selects ? uint8_t{traces::kSelectedNow} : uint8_t{0},
               .selected = pages,
               .recalled_now = missing,
               .evicted = static_cast<int32_t>(buffer.evicted())});
  });
}

}  // namespace stallcast::methods
