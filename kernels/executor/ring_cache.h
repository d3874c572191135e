// Sink and newest tokens on the GPU, behind the sink as a ring: StreamingLLM's cache, and with an
// empty sink that of layers that attend a window.
#pragma once

#include <map>
#include <vector>

#include "kernels/executor/cache_binder.h"
#include "kernels/executor/device_table.h"
#include "kernels/movement/keep_tokens.h"

namespace stallcast::kernels {

/// Attention does not ask for order: slots and places are the ring's.
class RingCache {
 public:
  /// Of these layers of the run.
  RingCache(const DecodeRun& run, const std::vector<int>& layers, int64_t sink, int64_t window);

  PagedKv Layer(int layer) const;
  CacheBinder::Append AppendAt(int step, int layer) const;
  /// The tokens that a step attends.
  PageTable Pages(int step) const;
  /// Pages a sequence.
  int32_t pages() const { return pages_; }
  /// Which of a prompt's tokens it keeps.
  KeptRing kept() const { return {sink_, window_, run_.input.prompt_tokens}; }
  /// Fills in what it keeps of the prompt.
  void Reset();
  void Clear() const;

 private:
  static constexpr int32_t kPage = 32;

  int64_t tokens() const { return sink_ + window_; }
  int64_t RingPlace(int64_t token) const {
    return token < sink_ ? token : sink_ + (token - sink_) % window_;
  }
  void Fill(int layer, int sequence, int64_t first, int64_t count);

  const DecodeRun& run_;
  int64_t sink_, window_;
  int32_t pages_;
  std::map<int, Buffer<__nv_bfloat16>> data_;  // by layer
  Buffer<int32_t> table_;
  StepTable tokens_, slot_, place_;
};

}  // namespace stallcast::kernels
