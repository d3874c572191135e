#include "kernels/executor/ring_cache.h"

#include <algorithm>

#include "kernels/executor/contiguous_cache.h"

namespace stallcast::kernels {

RingCache::RingCache(const DecodeRun& run, const std::vector<int>& layers, int64_t sink,
                     int64_t window)
    : run_(run),
      sink_(sink),
      window_(window),
      pages_(static_cast<int32_t>((sink + window + kPage - 1) / kPage)) {
  const int64_t token = int64_t{2} * run.kv_heads() * run.head_dim();
  for (const int layer : layers) {
    data_.try_emplace(layer, int64_t{run.batch()} * pages_ * kPage * token);
  }
  table_ = PagesInOrder(run, pages_);
  const auto newest = [&](int step, int64_t sequence) {
    return RingPlace(run.Context(step, static_cast<int>(sequence)) - 1);
  };
  tokens_ = StepTable(run.input.steps, run.rows(), 1, [&](int step, int64_t row, int64_t) {
    return std::min(run.Context(step, static_cast<int>(row) / run.kv_heads()), tokens());
  });
  slot_ = StepTable(run.input.steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
    return sequence * pages_ + newest(step, sequence) / kPage;
  });
  place_ = StepTable(run.input.steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
    return newest(step, sequence) % kPage;
  });
}

PagedKv RingCache::Layer(int layer) const {
  return NhdPages(data_.at(layer).get(), kPage, run_.kv_heads(), run_.head_dim());
}

CacheBinder::Append RingCache::AppendAt(int step, int layer) const {
  return {Layer(layer), slot_.At(step), place_.At(step), {}};
}

PageTable RingCache::Pages(int step) const {
  const int64_t longest = run_.Context(step, run_.batch() - 1);
  return {table_.get(), tokens_.At(step), pages_,
          static_cast<int32_t>(std::min(longest, tokens()))};
}

// The prompt's tokens one stretch of the ring after the other.
void RingCache::Reset() {
  for (const auto& [layer, data] : data_) {
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      const int64_t end = run_.Context(-1, sequence);
      Fill(layer, sequence, 0, std::min(end, sink_));
      for (int64_t token = std::max(sink_, end - window_); token < end;) {
        const int64_t to_wrap = tokens() - RingPlace(token);
        const int64_t count = std::min(to_wrap, end - token);
        Fill(layer, sequence, token, count);
        token += count;
      }
    }
  }
}

void RingCache::Clear() const {
  for (const auto& [layer, data] : data_) Zero(data);
}

// `count` tokens from `first` on, which follow one another in the ring.
void RingCache::Fill(int layer, int sequence, int64_t first, int64_t count) {
  const int64_t shift = RingPlace(first) - first;
  FillTokens(Renumbered(run_.Source(layer), shift, run_.head_dim()), first + shift, count,
             Layer(layer), table_.get() + int64_t{sequence} * run_.kv_heads() * pages_, nullptr);
}

}  // namespace stallcast::kernels
