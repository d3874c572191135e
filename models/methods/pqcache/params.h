// PQCache: tokens by product-quantised keys, fetched through the host.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stallcast::methods {

struct PqCacheParams {
  /// How codes lie on the host, whence all of them come in every step: as the framework's 64-bit
  /// numbers, or a byte each.
  enum class Codes : uint8_t { kInt64, kCompact };

  double ratio = 0.2;         ///< of the prompt: tokens attended beside the sink
  double recent_share = 0.5;  ///< of them, the last ones
  int64_t sink = 32;          ///< first tokens, kept
  int64_t subspaces = 2;      ///< parts of a key
  int64_t bits = 6;           ///< of a part's code
  int64_t iterations = 10;    ///< assignments of k-means
  int64_t block = 128;        ///< tokens of all heads that the GPU's cache takes together
  int64_t cache = 4096;       ///< tokens of the cache
  Codes codes = Codes::kInt64;
  int64_t dense_layers = 0;  ///< first layers that attend everything
  int64_t threads = 16;      ///< host threads that gather and cluster

  int64_t centroids() const { return int64_t{1} << bits; }
  int64_t Attended(int64_t prompt) const {
    return static_cast<int64_t>(ratio * static_cast<double>(prompt));
  }
  /// Last tokens of any context, which the GPU keeps.
  int64_t Recent(int64_t prompt) const {
    const auto tokens = static_cast<int64_t>(recent_share * static_cast<double>(Attended(prompt)));
    return std::max<int64_t>(1, tokens);
  }
  /// Tokens chosen between sink and recent ones.
  int64_t Chosen(int64_t prompt) const {
    return std::max<int64_t>(1, Attended(prompt) - Recent(prompt));
  }
  /// Tokens between sink and recent ones at a context.
  int64_t Candidates(int64_t prompt, int64_t context) const {
    return std::max<int64_t>(0, context - Recent(prompt) - sink);
  }
  /// Tokens whose keys are clustered; with fewer than centroids, nothing is.
  int64_t Clustered(int64_t prompt) const { return std::max<int64_t>(0, prompt - sink); }
  bool Sparse(int64_t prompt) const {
    return Clustered(prompt) >= centroids() && Candidates(prompt, prompt) > Chosen(prompt);
  }
};

}  // namespace stallcast::methods
