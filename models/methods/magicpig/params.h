// MagicPIG: tokens sampled by locality-sensitive hashing, attended by the host.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stallcast::methods {

struct MagicPigParams {
  int64_t bits = 10;         ///< of a hash
  int64_t tables = 150;      ///< hashes of a key
  int64_t collisions = 2;    ///< tables in which a token must meet the query
  int64_t sink = 4;          ///< first tokens, on the GPU
  int64_t window = 64;       ///< last tokens of the prompt, on the GPU as all decoded ones are
  int64_t dense_layers = 1;  ///< first layers that attend everything
  int64_t reserve = 256;     ///< decoded tokens that memory is held for
  int64_t threads = 64;      ///< host threads

  /// Tokens of the prompt that are hashed: those from `sink` on.
  int64_t Hashed(int64_t prompt) const { return std::max<int64_t>(0, prompt - sink - window); }
  int64_t buckets() const { return int64_t{1} << bits; }
};

}  // namespace stallcast::methods
