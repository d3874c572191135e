// k-means of keys, the same on every machine (LouisKV 4.2).
#pragma once

#include <cstdint>
#include <vector>

#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

/// Tokens by cluster; a cluster may be empty.
struct KeyClusters {
  std::vector<uint32_t> offsets;  ///< cluster c holds tokens[offsets[c]] to tokens[offsets[c + 1]]
  std::vector<uint32_t> tokens;  ///< counted from the first clustered token, ascending in a cluster
};

/// Channels of a key that count; `count` 0: all.
struct Channels {
  int64_t first = 0, count = 0;
};

/// Lloyd's algorithm on `count` keys of a KV head from `first` on, in whole numbers: keys are
/// scaled so that the largest element is 127 and rounded, centroids are means rounded to the
/// nearest (half up). Every sum is exact, so a GPU finds the same clusters in whatever order it
/// adds.
///
/// Cluster c of C starts at key floor((2 c + 1) count / 2 C). Then `iterations` times each key goes
/// to the nearest centroid, ties to the smaller cluster; between them centroids move to the mean of
/// their keys, those of empty clusters stay. 1 <= clusters <= count; head_dim <= 256. Clusters of
/// the same keys are remembered, for replays that differ in what they select alone.
KeyClusters ClusterKeys(const LayerTensors& tensors, int kv_head, int64_t first, int64_t count,
                        int64_t clusters, int64_t iterations, Channels channels = {});

}  // namespace stallcast::methods
