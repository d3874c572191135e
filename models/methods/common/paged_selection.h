// What ArkVale and FreeKV share: a paged cache a selection head, filled from the last prompt query,
// and pooled page scores for the pages between sink and window.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/methods/common/page_cache.h"
#include "models/methods/common/page_scores.h"
#include "models/methods/common/ranking.h"
#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

class PagedSelection {
 public:
  struct Options {
    PageRegions regions;
    PageSummary summary = PageSummary::kMinMax;
    Pooling pooling = Pooling::kMean;
    int heads = 1;      ///< selection heads: 1 or the KV heads
    int64_t slots = 0;  ///< cached selectable pages a head
  };

  /// The caches start as the end of prefill leaves them: the pages that the last prompt query
  /// selects. A trace without that query starts from the first decoded token's.
  PagedSelection(const LayerTensors& tensors, const Options& options);

  /// Moves to step `step`: pages that left the window take a free slot or are dropped.
  void BeginStep(int step);
  /// Whether some selectable pages cannot be on the GPU, so that there is something to select.
  bool Overflows() const { return options_.regions.Selectable(context_) > options_.slots; }
  /// Ranks the selectable pages for the step's query.
  void Rank(int head);
  /// Makes the best `count` pages of the last Rank(head) resident and returns those recalled.
  std::vector<uint32_t> Recall(int head, int64_t count);
  /// On the GPU now, ascending.
  std::span<const uint32_t> Cached(int head) const { return caches_[head].pages(); }
  /// Pages that left the GPU since the last call.
  int32_t TakeEvicted(int head) { return caches_[head].TakeEvicted(); }
  /// Adds sink, cached pages and window to the cell being filled.
  void AddAttended(int head, AttendedRanges& attended) const {
    AddPages(options_.regions, Cached(head), context_, attended);
  }

 private:
  uint32_t first_page() const { return static_cast<uint32_t>(options_.regions.sink_pages); }
  void RankAt(int head, int64_t token, int64_t pages);

  const LayerTensors& tensors_;
  Options options_;
  PageScores scores_;
  std::vector<PageCache> caches_;
  std::vector<const float*> rows_;
  std::vector<float> pooled_;
  int64_t context_;
  int64_t loaded_end_ = 0;  // first token whose scores are not loaded
};

}  // namespace stallcast::methods
