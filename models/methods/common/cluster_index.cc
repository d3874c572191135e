#include "models/methods/common/cluster_index.h"

#include <algorithm>

#include "models/methods/common/bf16.h"
#include "models/methods/common/key_clusters.h"

namespace stallcast::methods {

void ClusterIndex::Add(const LayerTensors& tensors, int kv_head, int64_t first, int64_t count,
                       int64_t clusters, int64_t iterations) {
  const KeyClusters found = ClusterKeys(tensors, kv_head, first, count, clusters, iterations);
  for (int64_t c = 0; c < clusters; ++c) {
    const auto at = static_cast<size_t>(c);
    if (found.offsets[at] == found.offsets[at + 1]) continue;
    for (uint32_t i = found.offsets[at]; i < found.offsets[at + 1]; ++i) {
      tokens.push_back(static_cast<uint32_t>(first) + found.tokens[i]);
    }
    offsets.push_back(static_cast<uint32_t>(tokens.size()));
  }
}

void FillCentroids(const LayerTensors& tensors, int kv_head, const ClusterIndex& index,
                   int64_t first, int64_t count, float* columns) {
  const int64_t dim = tensors.head_dim();
  std::vector<float> key(static_cast<size_t>(dim));
  std::vector<double> sum(static_cast<size_t>(dim));
  for (int64_t cluster = first; cluster < first + count; ++cluster) {
    std::fill(sum.begin(), sum.end(), 0.0);
    const auto tokens = index.Tokens(cluster);
    for (const uint32_t token : tokens) {
      tensors.ReadKeys(kv_head, token, 1, key.data());
      for (int64_t i = 0; i < dim; ++i) sum[i] += static_cast<double>(key[i]);
    }
    for (int64_t i = 0; i < dim; ++i) {
      *columns++ = RoundToBf16(static_cast<float>(sum[i] / static_cast<double>(tokens.size())));
    }
  }
}

}  // namespace stallcast::methods
