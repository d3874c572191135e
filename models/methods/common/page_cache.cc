#include "models/methods/common/page_cache.h"

#include <iterator>

#include "models/methods/common/ranking.h"

namespace stallcast::methods {

std::vector<uint32_t> PageCache::Recall(std::span<const uint32_t> wanted,
                                        std::span<const float> scores, uint32_t first_id) {
  std::vector<uint32_t> missing;
  std::set_difference(wanted.begin(), wanted.end(), pages_.begin(), pages_.end(),
                      std::back_inserter(missing));
  if (missing.empty()) return missing;
  std::vector<uint32_t> all;
  std::set_union(wanted.begin(), wanted.end(), pages_.begin(), pages_.end(),
                 std::back_inserter(all));
  pages_ = Best(all, scores, first_id, slots_);
  evicted_ += static_cast<int32_t>(all.size() - pages_.size());
  return missing;
}

void AddPages(const PageRegions& regions, std::span<const uint32_t> pages, int64_t context,
              AttendedRanges& attended) {
  const int64_t page = regions.page_tokens;
  attended.Add(0, std::min(regions.sink_pages * page, context));
  for (uint32_t id : pages) attended.Add(id * page, (id + 1) * page);
  attended.Add(std::min(regions.SelectableEnd(context) * page, context), context);
}

}  // namespace stallcast::methods
