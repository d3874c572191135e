// What retrieval methods compute to choose units: summaries, similarity, scores, top-k, slots.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/runtime/paged_kv.h"

namespace stallcast::kernels {

enum class SummaryKind : uint8_t { kMinMax, kCuboidMean, kMean };

/// Summaries of `pages` pages of a row: [row][page][vectors][head_dim] bf16, with vectors = 2 (low,
/// high; for kCuboidMean centre -+ mean deviation, ArkVale) or 1 (kMean). Row r's page i is at slot
/// slots[r * max_pages + i]. Reads whole pages only. `first_page_of` and `last_page_of` (may be
/// null) give each row a first page of its own, and a last one past which it has none to summarize;
/// -1 stands for none.
void Summarize(SummaryKind kind, const PagedKv& cache, const int32_t* slots, int32_t max_pages,
               int32_t first_page, int32_t pages, int32_t rows, __nv_bfloat16* summaries,
               int32_t summary_pages, cudaStream_t stream, const int32_t* first_page_of = nullptr,
               const int32_t* last_page_of = nullptr);

/// Mean over each group of the cosine of a query with the step before's, [rows]; whether it is
/// below tau goes to flags[row], and whether any is to *any. Queries are [rows][group][head_dim].
void QuerySimilarity(const __nv_bfloat16* query, const __nv_bfloat16* previous, int32_t rows,
                     int32_t group, int32_t head_dim, float tau, float* similarity, int32_t* flags,
                     int32_t* any, cudaStream_t stream);

enum class Pooling : uint8_t {
  kSoftmaxMean,
  kSoftmaxMeanUnscaled,
  kSoftmaxMax,
  kRawMean,
  kMax,
  kNone,
};
/// Those that need a sum over units first.
constexpr bool IsSoftmax(Pooling pooling) { return pooling <= Pooling::kSoftmaxMax; }

/// Scores of `pages` page summaries for each row: sum over channels of max(q lo, q hi) (vectors 2)
/// or q . mean (vectors 1), pooled over the group. scores is [rows][pages] float, or [rows *
/// group][pages] for kNone. Row r has only pages_of[r] <= `pages` (null: all); the others score
/// -infinity.
void Score(const __nv_bfloat16* query, const __nv_bfloat16* summaries, int32_t rows, int32_t group,
           int32_t head_dim, int32_t vectors, int32_t first_page, int32_t pages,
           int32_t summary_pages, Pooling pooling, float scale, float* scores, float* workspace,
           cudaStream_t stream, const int32_t* pages_of = nullptr);
int64_t ScoreWorkspace(int32_t rows, int32_t group, int32_t pages);

/// mean[set][page] = mean of scores over the rows_a_set rows of a set: how the KV heads of a
/// sequence agree on one page set (ArkVale). scores is [sets * rows_a_set][pages].
void MeanOverRows(const float* scores, int32_t sets, int32_t rows_a_set, int32_t pages, float* mean,
                  cudaStream_t stream);

/// The k largest of `candidates` scores of each row, ids ascending, ties to the smaller id: ids is
/// [rows][k], or with `last` (Quest's newest page, [rows]) [rows][k + 1] and ends with it. k is at
/// most `candidates`, of more than 16,384 at most 8,192; candidates are at most 2^20. Else: Error.
void TopK(const float* scores, int32_t rows, int32_t candidates, int32_t k, int32_t* ids,
          void* workspace, cudaStream_t stream, const int32_t* last = nullptr);
int64_t TopKWorkspace(int32_t rows, int32_t candidates, int32_t k);

/// The k_of[row] <= k lowest scores of each row, in the places and with the workspace of TopK():
/// ids ascending, ties to the smaller id; what is left of a row's k places is not written.
void LowestK(const float* scores, int32_t rows, int32_t candidates, int32_t k, const int32_t* k_of,
             int32_t* ids, void* workspace, cudaStream_t stream);

/// How the slots of a row's cache are chosen for units that are not in it.
struct SlotVictims {
  /// Scores of units, [rows][units]: free slots go first, then the lowest-scored units not
  /// selected, of equals the larger id. Null: the smallest slots that hold none of the selection.
  const float* scores = nullptr;
  int32_t units = 0;
};

/// Hits, misses and victims. slot_unit is [rows][slots], the unit that each slot holds (-1: free).
/// Selected units that are cached stay; the others, ascending, take the slots of units not
/// selected. Writes missed_unit and missed_slot [rows][k] and missed [rows], and brings slot_unit
/// up to date. Rows that `rows_enabled` (may be null) has zero for miss nothing and keep their
/// slots.
void AssignSlots(const int32_t* ids, int32_t rows, int32_t k, int32_t slots, int32_t* slot_unit,
                 int32_t* missed_unit, int32_t* missed_slot, int32_t* missed,
                 const int32_t* rows_enabled, const SlotVictims& victims, cudaStream_t stream);

}  // namespace stallcast::kernels
