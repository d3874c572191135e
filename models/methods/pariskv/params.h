// ParisKV: retrieval of single tokens through data-independent codes, all on the GPU; keys and
// values of what is retrieved come from the host.
#pragma once

#include <cstdint>

namespace stallcast::methods {

struct ParisKvParams {
  /// Shares of the retrieval region: those that the code takes from a table by its length, or rho
  /// and beta as given.
  enum class Ratios : uint8_t { kTable, kFixed };
  /// Who selects: a KV head by its group's mean query (code), or each query head (paper).
  enum class Query : uint8_t { kGroupMean, kQueryHead };
  /// Host pool: a token's key and value apart (code), or side by side in one piece.
  enum class Pool : uint8_t { kSplit, kJoined };
  /// Copies to the host run beside everything (paper), or the host waits for them before a layer's
  /// prefill attention and at the end of each update (code).
  enum class Offload : uint8_t { kAsync, kAsCoded };

  int64_t topk = 100;          ///< tokens retrieved, a selection head
  int64_t sink = 128;          ///< first tokens, on the GPU
  int64_t local = 512;         ///< last tokens, on the GPU; the update buffer not counted
  int64_t update = 512;        ///< new tokens that the update buffer takes before the window slides
  int64_t dense_until = 2000;  ///< contexts shorter than this attend everything
  int64_t subspaces = 16;
  Ratios ratios = Ratios::kTable;
  double rho = 0.2;   ///< share of keys that get a bonus in a subspace
  double beta = 0.1;  ///< share of keys that are reranked
  Query query = Query::kGroupMean;
  bool rotation = true;
  int64_t seed = 1;  ///< of the rotation's random signs
  Pool pool = Pool::kSplit;
  int64_t fetch_blocks = 64;  ///< of 256 threads, that read the host pool
  Offload offload = Offload::kAsync;

  /// First context that is retrieved from; shorter ones attend everything.
  int64_t first_sparse() const {
    const int64_t least = sink + local + 2 * topk;
    return dense_until > least ? dense_until : least;
  }
  /// End of the retrieval region, which starts at `sink`, at decode step `step`: the window slides
  /// whenever the buffer is full when a step begins (paper 4.2.1, figure 5).
  int64_t RetrievalEnd(int64_t prompt_tokens, int64_t step) const {
    const int64_t end = prompt_tokens + step / update * update - local;
    return end > sink ? end : sink;
  }
};

/// Shares of a retrieval region of `tokens` tokens.
struct ParisKvShares {
  double rho, beta;
};
ParisKvShares SharesOf(const ParisKvParams& params, int64_t tokens);
/// How many of them are reranked: the share beta, but no fewer than are retrieved.
int64_t Candidates(const ParisKvParams& params, int64_t tokens);

}  // namespace stallcast::methods
