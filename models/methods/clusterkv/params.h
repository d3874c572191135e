// ClusterKV: clusters of keys, chosen by each query head until a budget is full.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stallcast::methods {

struct ClusterKvParams {
  int64_t budget = 2048;     ///< tokens attended, the sink included, decoded ones not
  int64_t sink = 16;         ///< first tokens, kept
  int64_t lists = 200;       ///< clusters of a prompt
  int64_t update = 320;      ///< decoded tokens that are clustered together
  int64_t update_lists = 8;  ///< clusters of them
  int64_t iterations = 20;   ///< assignments of k-means
  int64_t dense_layers = 2;  ///< first layers that attend everything
  int64_t fetch_blocks = 1;  ///< blocks that bring tokens of a query head

  int64_t capacity() const { return budget - sink; }
  int64_t Clustered(int64_t prompt) const { return std::max<int64_t>(0, prompt - sink); }
  int64_t PromptClusters(int64_t prompt) const { return std::min(lists, Clustered(prompt)); }
  /// Decoded runs that are clusters when `step` attends.
  int64_t Updates(int64_t step) const { return step / update; }
  int64_t Clusters(int64_t prompt, int64_t step) const {
    return PromptClusters(prompt) + Updates(step) * UpdateClusters();
  }
  int64_t UpdateClusters() const { return std::min(update_lists, update); }
  /// Clustered tokens when `step` attends, none if all of the prompt is sink, and those after them,
  /// its own included.
  int64_t Indexed(int64_t prompt, int64_t step) const {
    return Clustered(prompt) > 0 ? Clustered(prompt) + Updates(step) * update : 0;
  }
  int64_t Local(int64_t step) const { return step % update + 1; }
  bool Selects(int64_t prompt, int64_t step) const { return Indexed(prompt, step) > capacity(); }
};

}  // namespace stallcast::methods
