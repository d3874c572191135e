// Clusters of a KV head's keys and their mean keys, as cluster-wise methods score them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

/// Clusters that hold tokens, in order of coming.
struct ClusterIndex {
  std::vector<uint32_t> offsets{0};  ///< into tokens
  std::vector<uint32_t> tokens;      ///< ascending in a cluster

  int64_t size() const { return static_cast<int64_t>(offsets.size()) - 1; }
  std::span<const uint32_t> Tokens(int64_t cluster) const {
    const auto at = static_cast<size_t>(cluster);
    return std::span(tokens).subspan(offsets[at], offsets[at + 1] - offsets[at]);
  }
  /// Adds the clusters of ClusterKeys(), those without tokens left out.
  void Add(const LayerTensors& tensors, int kv_head, int64_t first, int64_t count, int64_t clusters,
           int64_t iterations);
};

/// The mean keys of clusters [first, first + count) as the GPU keeps them (bf16): dim values each.
void FillCentroids(const LayerTensors& tensors, int kv_head, const ClusterIndex& index,
                   int64_t first, int64_t count, float* columns);

}  // namespace stallcast::methods
