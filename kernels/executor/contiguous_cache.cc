#include "kernels/executor/contiguous_cache.h"

namespace stallcast::kernels {

Buffer<int32_t> PagesInOrder(const DecodeRun& run, int32_t pages) {
  std::vector<int32_t> table;
  for (int row = 0; row < run.rows(); ++row) {
    for (int32_t page = 0; page < pages; ++page) {
      table.push_back(row / run.kv_heads() * pages + page);
    }
  }
  return Uploaded(table);
}

ContiguousCache::ContiguousCache(const DecodeRun& run, int first, int last, int32_t page_tokens,
                                 bool hnd)
    : run_(run), first_(first), last_(last), page_tokens_(page_tokens), hnd_(hnd) {
  pages_ = static_cast<int32_t>((run.LongestContext() + page_tokens_ - 1) / page_tokens_);
  const int64_t token = int64_t{2} * run.kv_heads() * run.head_dim();
  for (int layer = first; layer < last; ++layer) {
    data_.emplace_back(int64_t{run.batch()} * pages_ * page_tokens_ * token);
  }
  table_ = PagesInOrder(run, pages_);
  const auto newest = [&run](int step, int64_t sequence) {
    return run.Context(step, static_cast<int>(sequence)) - 1;
  };
  tokens_ = StepTable(run.input.steps, run.rows(), 1, [&](int step, int64_t row, int64_t) {
    return newest(step, row / run.kv_heads()) + 1;
  });
  slot_ = StepTable(run.input.steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
    return sequence * pages_ + newest(step, sequence) / page_tokens_;
  });
  place_ = StepTable(run.input.steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
    return newest(step, sequence) % page_tokens_;
  });
}

PagedKv ContiguousCache::Layer(int layer) const {
  __nv_bfloat16* data = data_[static_cast<size_t>(layer - first_)].get();
  return hnd_ ? HndPages(data, page_tokens_, run_.kv_heads(), run_.head_dim())
              : NhdPages(data, page_tokens_, run_.kv_heads(), run_.head_dim());
}

CacheBinder::Append ContiguousCache::AppendAt(int step, int layer) const {
  return {Layer(layer), slot_.At(step), place_.At(step), {}};
}

PageTable ContiguousCache::Pages(int step) const {
  return {table_.get(), tokens_.At(step), pages_,
          static_cast<int32_t>(run_.Context(step, run_.batch() - 1))};
}

void ContiguousCache::Reset() {
  for (int layer = first_; layer < last_; ++layer) {
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      FillTokens(run_.Source(layer), 0, run_.Context(-1, sequence), Layer(layer),
                 table_.get() + int64_t{sequence} * run_.kv_heads() * pages_, nullptr);
    }
  }
}

}  // namespace stallcast::kernels
