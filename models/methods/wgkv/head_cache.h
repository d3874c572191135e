// The global cache of one KV head: admitted tokens in order, in pages of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

class HeadCache {
 public:
  /// Bounds of pages are kept only with `summaries` (for Quest).
  HeadCache(const LayerTensors& tensors, int head, int64_t page, bool summaries);

  std::span<const uint32_t> tokens() const { return tokens_; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  /// Whole pages; what is left over is the last, partial one.
  int64_t whole_pages() const { return size() / page_; }
  /// Adds a token, later than all before.
  void Add(uint32_t token);
  /// Keeps these alone, ascending: pages are filled anew.
  void Keep(std::span<const uint32_t> tokens);
  /// Upper bounds of a query's products with each whole page's keys.
  void ScorePages(std::span<const float> query, std::vector<float>& scores) const;

 private:
  void SummarizeLast();

  const LayerTensors& tensors_;
  int head_;
  int64_t page_;
  bool summaries_;
  std::vector<uint32_t> tokens_;
  std::vector<float> bounds_;  // [page][upper, lower][dim]
};

/// Importance of `cached` tokens and then the `window` ones from `window_begin` to the queries of
/// tokens [first, last): softmax over both, the largest of the group's heads, summed over queries,
/// max-pooled over `smooth` neighbours (WG-KV, appendix K.1). One value a cached token.
std::vector<float> Importance(const LayerTensors& tensors, int head,
                              std::span<const uint32_t> cached, int64_t window_begin,
                              int64_t window, int64_t first, int64_t last, int64_t smooth);

}  // namespace stallcast::methods
