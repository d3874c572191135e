// The GPU's share of a paged cache whose whole lies on the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

/// How a context splits into sink, selectable pages and window, all in whole pages. As in ArkVale's
/// and FreeKV's code the window counts the last, partial page, so the GPU never holds more than the
/// budget.
struct PageRegions {
  int64_t page_tokens, sink_pages, window_pages;

  /// First page of the window, which ends the selectable ones; at least sink_pages.
  int64_t SelectableEnd(int64_t context) const {
    const int64_t pages = (context + page_tokens - 1) / page_tokens;
    return std::max(sink_pages, pages - window_pages);
  }
  int64_t Selectable(int64_t context) const { return SelectableEnd(context) - sink_pages; }
};

/// Selectable pages on the GPU, at most `slots`.
class PageCache {
 public:
  explicit PageCache(int64_t slots) : slots_(slots) {}

  /// Ascending.
  std::span<const uint32_t> pages() const { return pages_; }

  /// Replaces all pages, at the end of prefill; at most `slots`, ascending.
  void Fill(std::vector<uint32_t> pages) { pages_ = std::move(pages); }

  /// Page `page`, larger than all before, left the window: it takes a free slot or is dropped.
  void Leave(uint32_t page) {
    if (static_cast<int64_t>(pages_.size()) < slots_) {
      pages_.push_back(page);
    } else {
      ++evicted_;
    }
  }

  /// Makes the ascending `wanted` (at most `slots`) resident in place of the worst-ranked others;
  /// wanted pages must rank above all others. Returns those that were missing, ascending.
  std::vector<uint32_t> Recall(std::span<const uint32_t> wanted, std::span<const float> scores,
                               uint32_t first_id);

  /// Pages that lost their place on the GPU, by Leave() or Recall(), since the last call.
  int32_t TakeEvicted() { return std::exchange(evicted_, 0); }

 private:
  int64_t slots_;
  int32_t evicted_ = 0;
  std::vector<uint32_t> pages_;
};

/// Adds sink, `pages` and window to the cell being filled.
void AddPages(const PageRegions& regions, std::span<const uint32_t> pages, int64_t context,
              AttendedRanges& attended);

}  // namespace stallcast::methods
