// ParisKV's stages (models/methods/pariskv/codes.h says what they compute): index, collisions,
// candidates, estimates, fetch.
//
// A row is a selection head of a sequence; `share` rows in turn read one index row (a KV head of a
// sequence). Up to the candidates all results equal the policy's bit for bit; estimates differ by
// rounding. Head dimensions 64 and 128; subspaces of 4 or 8 dimensions.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/runtime/token_view.h"
#include "models/methods/pariskv/codes.h"

namespace stallcast::kernels {

/// What a CodeBook is on the device; passed by value.
struct CodeTables {
  explicit CodeTables(const methods::CodeBook& book);
  int32_t head_dim, subspaces;
  bool rotation;
  float level[8], threshold[7];
  uint32_t negative[4];  ///< bit i: sign i of the rotation is -1
};

/// The index: ids [row][capacity][subspaces], codes [row][capacity][head_dim / 2],
/// weights [row][capacity][subspaces], counts [row][subspaces][2^dimensions].
struct KeyIndex {
  uint8_t* ids = nullptr;
  uint8_t* codes = nullptr;
  __nv_bfloat16* weights = nullptr;
  int32_t* counts = nullptr;  ///< zero before the first key
  int32_t capacity = 0;
};

/// Encodes tokens [0, tokens) of each of `rows` rows of `keys` to index places [at, at + tokens),
/// and counts them.
void EncodeKeys(const CodeTables& tables, const TokenView& keys, int32_t rows, int32_t tokens,
                int32_t at, const KeyIndex& index, cudaStream_t stream);

/// Stage 1. `query` is [rows][group][head_dim]; writes the mean query rotated, [rows][head_dim],
/// and each sign pattern's bonus, [rows][subspaces][2^dimensions]. `limits` are TierLimits().
void CollisionTable(const CodeTables& tables, const __nv_bfloat16* query, int32_t rows,
                    int32_t group, int32_t share, const KeyIndex& index,
                    const std::array<int32_t, methods::kTiers>& limits, float* rotated,
                    uint8_t* table, cudaStream_t stream);

/// Scores of the first `tokens` keys, [rows][stride] with stride = ScoreStride(tokens), and
/// histograms of parts of them, HistogramSize() integers.
void CollisionScores(const CodeTables& tables, const uint8_t* table, const KeyIndex& index,
                     int32_t rows, int32_t share, int32_t tokens, uint8_t* scores,
                     int32_t* histograms, cudaStream_t stream);
int32_t ScoreStride(int32_t tokens);
int64_t HistogramSize(int32_t rows, int32_t tokens);

/// The k best of them by score, then by id: candidates [rows][k], ascending.
void BucketTopK(const uint8_t* scores, const int32_t* histograms, int32_t rows, int32_t tokens,
                int32_t k, int32_t* candidates, cudaStream_t stream);

/// Stage 2: estimates [rows][count] of the candidates' products with the rotated query.
void Rerank(const CodeTables& tables, const float* rotated, const KeyIndex& index,
            const int32_t* candidates, int32_t rows, int32_t share, int32_t count, float* estimates,
            cudaStream_t stream);

/// Brings tokens candidates[row][places[row][i]] + first, i < k, of pool rows row / share to the
/// tokens at, at + 1, ... of row `row` of `to`; at most `blocks` blocks of 256 threads read.
/// `candidates` null: places are tokens themselves. k and the pool's tokens under 2^31 / rows.
void FetchTokens(const TokenView& pool, const int32_t* places, const int32_t* candidates,
                 int32_t rows, int32_t share, int32_t k, int32_t count, int32_t first,
                 const TokenView& to, int32_t at, int32_t head_dim, int32_t blocks,
                 cudaStream_t stream);

}  // namespace stallcast::kernels
