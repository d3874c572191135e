#include "models/methods/common/paged_selection.h"

#include <algorithm>

namespace stallcast::methods {

PagedSelection::PagedSelection(const LayerTensors& tensors, const Options& options)
    : tensors_(tensors),
      options_(options),
      scores_(tensors, options.regions.page_tokens, options.summary),
      caches_(static_cast<size_t>(options.heads), PageCache(options.slots)),
      rows_(static_cast<size_t>(tensors.query_heads() / options.heads)),
      context_(tensors.prompt_tokens()) {
  const int64_t query = std::max(tensors.first_query_token(), context_ - 1);
  scores_.Load(query);
  for (int head = 0; head < options_.heads; ++head) {
    RankAt(head, query, options_.regions.Selectable(context_));
    caches_[head].Fill(Best(pooled_, first_page(), options_.slots));
  }
}

void PagedSelection::BeginStep(int step) {
  const int64_t before = options_.regions.SelectableEnd(context_);
  context_ = tensors_.prompt_tokens() + step + 1;
  if (context_ > loaded_end_) loaded_end_ = scores_.Load(context_ - 1);
  for (int64_t page = before; page < options_.regions.SelectableEnd(context_); ++page) {
    for (PageCache& cache : caches_) cache.Leave(static_cast<uint32_t>(page));
  }
}

void PagedSelection::Rank(int head) {
  RankAt(head, context_ - 1, options_.regions.Selectable(context_));
}

std::vector<uint32_t> PagedSelection::Recall(int head, int64_t count) {
  return caches_[head].Recall(Best(pooled_, first_page(), count), pooled_, first_page());
}

void PagedSelection::RankAt(int head, int64_t token, int64_t pages) {
  const int first = head * static_cast<int>(rows_.size());
  for (size_t r = 0; r < rows_.size(); ++r) {
    rows_[r] = scores_.Of(first + static_cast<int>(r), token) + options_.regions.sink_pages;
  }
  PoolScores(options_.pooling, rows_, pages, tensors_.softmax_scale(), pooled_);
}

}  // namespace stallcast::methods
