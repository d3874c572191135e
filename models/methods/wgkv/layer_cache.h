// What the KV heads of a layer keep, step by step: admission and eviction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "models/methods/wgkv/gate.h"
#include "models/methods/wgkv/head_cache.h"
#include "models/methods/wgkv/params.h"

namespace stallcast::methods {

/// Both arguments must outlive it.
class LayerCache {
 public:
  LayerCache(const LayerTensors& tensors, const WgKvParams& params);

  const Admission& admitted() const { return admitted_; }
  const HeadCache& head(int head) const { return heads_[static_cast<size_t>(head)]; }
  int64_t window(int64_t context) const { return std::min(params_.window, context); }
  int64_t kept(int head, int64_t context) const {
    return heads_[static_cast<size_t>(head)].size() + window(context);
  }

  /// The window now ends at `context`: promotes what left it.
  void Promote(int64_t context);
  /// Evicts once if the heads keep more than the capacity: each the least important evict_share of
  /// what it keeps, rounded up, the window excepted; of equals the older. Scores come from the last
  /// queries before the newest token; where the trace has none, nothing is evicted. Returns how
  /// many tokens each head dropped, all zero if it did not evict; valid until the next call.
  std::span<const int32_t> Evict(int64_t context);

 private:
  bool Overflows(int64_t context) const;

  const LayerTensors& tensors_;
  const WgKvParams& params_;
  Admission admitted_;
  std::vector<HeadCache> heads_;
  std::vector<int32_t> dropped_;
  int64_t left_ = 0;  // tokens that have left the window
};

}  // namespace stallcast::methods
