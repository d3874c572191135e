// ShadowKV: values on the host, keys as low-rank factors on the GPU, chunks chosen by their mean
// keys; what is chosen has its values fetched and its keys rebuilt.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stallcast::methods {

struct ShadowKvParams {
  int64_t budget = 2048;       ///< tokens retrieved, a KV head
  int64_t chunk = 8;           ///< tokens
  int64_t outliers = 48;       ///< chunks kept whole, those that their mean key stands for worst
  int64_t local = 4;           ///< chunks kept whole, the last ones
  int64_t rank = 160;          ///< of the keys' factors, shared by all heads of a layer
  int64_t dense_until = 4096;  ///< prompts up to this length are attended whole
  int64_t dense_layers = 0;    ///< first layers that attend everything
  /// Tokens decoded between two factorizations, which make what has been decoded retrievable; 0:
  /// the prompt's is the only one (code).
  int64_t update = 0;
  int64_t reserve = 4096;       ///< decoded tokens that the GPU has room for
  int64_t fetch_threads = 128;  ///< that read the host pool, a sequence and KV head

  int64_t chosen() const { return budget / chunk; }
  /// Tokens that were cached when the index of decode step `step` was made.
  int64_t Indexed(int64_t prompt_tokens, int64_t step) const {
    return prompt_tokens + (update > 0 ? step / update * update : 0);
  }
  /// End of the chunks that may be retrieved, of `indexed` tokens: whole ones before the local.
  int64_t RegionChunks(int64_t indexed) const {
    return std::max<int64_t>(0, indexed / chunk - local);
  }
  /// Chunks that selection ranks: the region's but for its outliers.
  int64_t Candidates(int64_t indexed) const {
    return std::max<int64_t>(0, RegionChunks(indexed) - outliers);
  }
  bool Sparse(int64_t indexed) const { return indexed > dense_until && Candidates(indexed) > 0; }
};

}  // namespace stallcast::methods
