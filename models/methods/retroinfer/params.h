// RetroInfer: clusters of keys as an index; a few are attended exactly, many by their centroids.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace stallcast::methods {

struct RetroInferParams {
  int64_t cluster = 16;       ///< tokens of a cluster, on average
  int64_t segment = 8192;     ///< tokens that are clustered together
  int64_t iterations = 10;    ///< assignments of k-means
  double retrieval = 0.018;   ///< share of clusters that are attended exactly
  double estimation = 0.232;  ///< share of clusters whose attention is estimated
  int64_t sink = 4;           ///< first tokens, kept
  int64_t window = 64;        ///< last tokens, kept
  int64_t update = 1024;      ///< decoded tokens that are clustered together
  int64_t cache = 3;          ///< clusters on the GPU, in multiples of those that a step retrieves
  int64_t dense_layers = 0;   ///< first layers that attend everything
  int64_t threads = 16;       ///< host threads that look clusters up
  int64_t fetch_blocks = 16;  ///< blocks that bring clusters of a KV head

  /// First token, and number, of the prompt's clustered tokens.
  int64_t Clustered(int64_t prompt) const { return std::max<int64_t>(0, prompt - sink - window); }
  int64_t ClustersOf(int64_t tokens) const { return (tokens + cluster - 1) / cluster; }
  /// Of all segments of `tokens` tokens.
  int64_t PromptClusters(int64_t prompt) const {
    const int64_t tokens = Clustered(prompt);
    return tokens / segment * ClustersOf(segment) + ClustersOf(tokens % segment);
  }
  /// Decoded segments that are clusters when `step` attends.
  int64_t Updates(int64_t step) const { return step / update; }
  int64_t Clusters(int64_t prompt, int64_t step) const {
    return Clustered(prompt) == 0 ? 0 : PromptClusters(prompt) + Updates(step) * ClustersOf(update);
  }
  /// Tokens that `step` attends on the GPU whatever it selects, its own included.
  int64_t Steady(int64_t prompt, int64_t step) const {
    if (Clustered(prompt) == 0) return prompt + step + 1;
    return sink + window + step % update + 1;
  }
  int64_t Retrieved(int64_t clusters) const {
    return std::min(
        clusters,
        std::max<int64_t>(1, static_cast<int64_t>(retrieval * static_cast<double>(clusters))));
  }
  int64_t Estimated(int64_t clusters) const {
    return std::min(clusters - Retrieved(clusters),
                    static_cast<int64_t>(estimation * static_cast<double>(clusters)));
  }
  /// Of the largest index that a run of `steps` steps has.
  int64_t Slots(int64_t clusters) const { return cache * Retrieved(clusters); }
};

}  // namespace stallcast::methods
