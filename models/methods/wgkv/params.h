// WG-KV: a gate admits tokens, a head each, to the cache that outlives the local window; composed
// with Quest's selection and a SnapKV-like eviction.
#pragma once

#include <cstdint>
#include <string>

namespace stallcast::methods {

struct WgKvParams {
  /// What admits: a random mask (the paper's efficiency runs), the attention that tokens will get,
  /// or the trained MLP.
  enum class Gate : uint8_t { kRandom, kOracle, kMlp };
  enum class Select : uint8_t { kNone, kQuest };
  enum class Evict : uint8_t { kNone, kSnapKv };
  enum class Prefill : uint8_t { kVerticalSlash, kDense };
  /// Whether the host takes part: never, or where the public code waits for it.
  enum class Host : uint8_t { kApart, kAsCoded };

  Gate gate = Gate::kRandom;
  double sparsity = 0.75;  ///< share of tokens not admitted
  int64_t seed = 1;        ///< of the random mask
  double threshold = 0.1;  ///< of the MLP's score
  std::string gate_file = kNoFile;
  int64_t expand = 4;    ///< hidden width of the MLP over head_dim
  int64_t window = 256;  ///< last tokens, all attended
  int64_t page = 16;     ///< tokens of one head
  Select select = Select::kNone;
  int64_t budget = 2048;  ///< tokens attended with Select::kQuest, window included
  Evict evict = Evict::kNone;
  int64_t capacity = 4096;  ///< tokens a head that make an eviction due, mean over a layer's heads
  double evict_share = 0.1;
  int64_t observe = 256;  ///< last queries that score tokens for eviction
  int64_t smooth = 5;     ///< tokens of the scores' max-pooling
  Prefill prefill = Prefill::kVerticalSlash;
  Host host = Host::kApart;

  static constexpr char kNoFile[] = "none";
};

}  // namespace stallcast::methods
