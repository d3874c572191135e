// A layer's whole cache on the GPU, page after page: what dense layers and dense methods attend.
#pragma once

#include "kernels/executor/cache_binder.h"
#include "kernels/executor/device_table.h"

namespace stallcast::kernels {

/// Slots [row][page] of sequences of `pages` pages, where slot sequence * pages + i holds page i.
Buffer<int32_t> PagesInOrder(const DecodeRun& run, int32_t pages);

/// Slot sequence * pages + i holds page i of the sequence.
class ContiguousCache {
 public:
  static constexpr int32_t kPageTokens = 32;

  /// The layers of [first, last); pages of `page_tokens`, HND if `hnd`.
  ContiguousCache(const DecodeRun& run, int first, int last, int32_t page_tokens = kPageTokens,
                  bool hnd = false);

  PagedKv Layer(int layer) const;
  CacheBinder::Append AppendAt(int step, int layer) const;
  /// A prompt goes to the first pages.
  PromptKv Prompt(int layer) const { return {Layer(layer), nullptr, pages_}; }
  /// All pages of every row, with the tokens of the step.
  PageTable Pages(int step) const;
  int32_t pages() const { return pages_; }
  int32_t page_tokens() const { return page_tokens_; }
  /// Slots of the pages of each row.
  const int32_t* table() const { return table_.get(); }
  /// Fills the prompt's tokens.
  void Reset();
  void Clear() const {
    for (const auto& layer : data_) Zero(layer);
  }

 private:
  const DecodeRun& run_;
  int first_, last_;
  int32_t page_tokens_, pages_;
  bool hnd_;
  std::vector<Buffer<__nv_bfloat16>> data_;  // by layer
  Buffer<int32_t> table_;                    // [row][page]
  StepTable tokens_, slot_, place_;
};

}  // namespace stallcast::kernels
