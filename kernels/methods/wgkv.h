// WG-KV's stages: the gate, admission to a head's pages, and prefill attention that skips what the
// gate masks.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/runtime/paged_kv.h"
#include "kernels/runtime/token_view.h"

namespace stallcast::kernels {

/// The weights of one layer's gates, as the public checkpoints store them: w1 [H][hidden][2 d],
/// b1 and w2 [H][hidden], b2 [H]. Norms may be null: ones.
struct GateWeights {
  const __nv_bfloat16 *w1 = nullptr, *b1 = nullptr, *w2 = nullptr, *b2 = nullptr;
  const __nv_bfloat16 *pre_norm = nullptr, *post_norm = nullptr;  ///< [d]
  int32_t kv_heads = 0, head_dim = 0, hidden = 0;
};

/// scores[head * score_stride + token * token_stride] = sigmoid(MLP of a token's keys before and
/// after RoPE), each divided by its root mean square and rounded to bf16. Row h of the views is KV
/// head h; values are not read. head_dim 64 or 128, hidden a multiple of 64. `workspace`:
/// GateMlpWorkspace() floats, zero before first use; a launch leaves it ready for the next.
int64_t GateMlpWorkspace(const GateWeights& weights);
void GateMlp(const GateWeights& weights, const TokenView& before_rope, const TokenView& after_rope,
             int32_t tokens, float* scores, int64_t score_stride, int64_t token_stride,
             float* workspace, cudaStream_t stream);

/// What Admit() tells of the tokens that it admits, each where not null: their numbers, in order,
/// and of every token whether it is one, rows `stride` apart; and how many, [rows].
struct AdmittedTokens {
  int32_t* numbers = nullptr;
  uint8_t* flags = nullptr;
  int32_t* counts = nullptr;
  int64_t stride = 0;
};

/// What selection needs to know of rows that grow: how many pages each has begun behind its first
/// `lead` tokens, and the last of them that is whole, -1 if there is none.
struct PageMarks {
  int32_t *begun = nullptr, *last_whole = nullptr;  ///< [rows]; null: not kept
  int32_t lead = 0;
};

/// Appends those of tokens [0, tokens) of each row whose score is at least `threshold`, in order,
/// to the row's pages: row r's n-th token goes to slot table[r * max_pages + n / page_tokens] of
/// head 0 of `cache` (pages are of one head). `lengths` [rows] is read and brought up to date, so
/// are `marks`. Row r's scores begin at scores + r * score_stride. `workspace`: AdmitWorkspace()
/// integers.
void Admit(const TokenView& tokens_view, const float* scores, int64_t score_stride, int32_t rows,
           int32_t tokens, float threshold, const PagedKv& cache, const int32_t* table,
           int32_t max_pages, int32_t* lengths, const AdmittedTokens& list, int32_t* workspace,
           cudaStream_t stream, const PageMarks& marks = {});
int64_t AdmitWorkspace(int32_t rows, int32_t tokens);

/// What a row attends when its pages are selected: of all its pages, `table` [rows][max_pages], the
/// first `lead` ones and then ids[row][i] + lead, i < k, of those that it has begun. Writes
/// attended [rows][lead + k] and tokens [rows]; all pages are whole but the last one begun, whose
/// end `lengths` tells.
void AttendSelected(const int32_t* ids, int32_t rows, int32_t k, const int32_t* table,
                    int32_t max_pages, int32_t lead, int32_t page_tokens, const int32_t* lengths,
                    const int32_t* begun, int32_t* attended, int32_t* tokens, cudaStream_t stream);

struct VerticalSlashArgs {
  const __nv_bfloat16* query = nullptr;    ///< [sequence][tokens][kv_heads * group][head_dim]
  TokenView kv{};                          ///< row: sequence * kv_heads + KV head
  const int32_t* columns = nullptr;        ///< [row][tokens]: admitted tokens, ascending
  const int32_t* column_counts = nullptr;  ///< [row]
  const uint8_t* admitted = nullptr;       ///< [row][tokens]
  __nv_bfloat16* output = nullptr;         ///< like query
  int32_t sequences = 0, tokens = 0, window = 0;
  int32_t kv_heads = 0, group = 0, head_dim = 0;
  float scale = 0;
};

/// Causal attention of a prompt where token i sees j if i - j < window or j is admitted. Blocks of
/// keys that no query of a tile sees are not read. head_dim 128.
void VerticalSlashAttention(const VerticalSlashArgs& args, cudaStream_t stream);

struct WindowScoreArgs {
  const __nv_bfloat16* query = nullptr;  ///< [row][queries][group][head_dim]
  int64_t query_stride = 0;              ///< elements from row to row; 0: rows follow one another
  PagedKv cache;                         ///< pages of one head
  /// [row][stride]: the n-th key is token `place % page_tokens` of slot `place / page_tokens`, and
  /// its position in the sequence, ascending; counts[row] of them.
  const int32_t* places = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* counts = nullptr;
  float* scores = nullptr;  ///< [row][scored_stride]
  /// Null: all keys are scored. Else the first scored[row] of a row's, and the other places of the
  /// row are infinity, so that they are not among the lowest.
  const int32_t* scored = nullptr;
  int32_t scored_stride = 0;   ///< 0: stride
  float* workspace = nullptr;  ///< WindowScoreWorkspace() floats
  int32_t rows = 0, stride = 0, queries = 0, group = 0;
  int32_t first_position = 0;  ///< of the first query; the others follow
  int32_t smooth = 0;          ///< neighbours, itself included, over which scores are max-pooled
  float scale = 0;
};

/// Importance of keys to the last queries (appendix K.1): softmax over the keys not later than a
/// query, the largest of the group's heads, summed over queries, max-pooled. head_dim 128, groups
/// of up to 64.
void WindowScore(const WindowScoreArgs& args, cudaStream_t stream);
int64_t WindowScoreWorkspace(const WindowScoreArgs& args);

/// Rows whose tokens lie in pages of their own: the n-th in token n % page_tokens of slot
/// table[row * max_pages + n / page_tokens] of head 0 of `cache`. The first `window` of them are a
/// ring of the last tokens, the others what the row admitted, in order; `lengths` [rows] counts
/// both.
struct GrowingRows {
  PagedKv cache;
  const int32_t* table = nullptr;
  int32_t* lengths = nullptr;
  int32_t rows = 0, max_pages = 0, window = 0;
};

/// The keys of rows as WindowScore() reads them: what a row admitted, `admitted` [rows] of them,
/// and then its window from the oldest token on, which is at place `oldest` of the ring. Their
/// positions count from the first of `queries` queries, the last of which is the newest token's
/// predecessor; the first `unseen` queries see none of them. queries <= window.
struct ObservedKeys {
  int32_t *places = nullptr, *positions = nullptr;  ///< [rows][stride]
  int32_t *counts = nullptr, *admitted = nullptr;   ///< [rows]
  int32_t stride = 0;
};
void ListObservedKeys(const GrowingRows& rows, int32_t oldest, int32_t queries, int32_t unseen,
                      const ObservedKeys& keys, cudaStream_t stream);

/// Drops count[row] of the tokens that a row admitted, dropped[row * stride + i] ascending and from
/// 0; those of them that the row does not have are ignored. Later ones move up in its pages, in
/// order. Brings lengths and `marks` up to date.
void DropTokens(const GrowingRows& rows, const int32_t* dropped, int32_t stride,
                const int32_t* count, const PageMarks& marks, cudaStream_t stream);

}  // namespace stallcast::kernels
