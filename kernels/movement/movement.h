// Moving KV: between layouts on the device, and straight from pinned host memory.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/runtime/paged_kv.h"

namespace stallcast::kernels {

// Head dimensions are multiples of 8, data is 16-byte aligned, and one launch moves at most 32 GiB;
// anything else is an Error. `count` is read on the device, so it may be the result of a kernel
// before; null stands for pieces_max.

/// Copies one head's pages from a contiguous buffer ([piece][2][p][d], as they lie in an HND pool)
/// into a paged cache: piece i goes to (slot[i], head[i]).
void ScatterPages(const __nv_bfloat16* pieces, const int32_t* slot, const int32_t* head,
                  int32_t pieces_max, const int32_t* count, const PagedKv& cache,
                  cudaStream_t stream);

/// The reverse, for offloading with transpose: pages of the cache to HND [page][H][2][p][d].
void TransposePages(const PagedKv& cache, const int32_t* slots, int32_t pages, __nv_bfloat16* hnd,
                    cudaStream_t stream);

/// Reads pieces straight from pinned host memory with at most `blocks` blocks of 1,024 threads
/// (each two of 512) and 16-byte loads: source[i] = page * kv_heads + head, under 2^31, names a
/// piece of the pool, which goes to the cache at (slot[i], head[i]). Pool pages are HND,
/// [page][H][2][p][d], or with `rows` NHD, [page][2][p][H][d], where a piece is 2 p rows of
/// head_dim; p, H and d are the cache's. An H200's multiprocessors reach 51 GB/s of the host where
/// its copy engine has 55, with the link full in both cases: L2 asks for 128 bytes at a time,
/// whatever the instruction, the copy engine for 256, and each completion takes 20 bytes of the
/// link beside its payload (bench_movement counts both). Four blocks suffice for that.
void ZeroCopyGather(const __nv_bfloat16* pool, const int64_t* source, const int32_t* slot,
                    const int32_t* head, int32_t pieces_max, const int32_t* count,
                    const PagedKv& cache, bool rows, int32_t blocks, cudaStream_t stream);

/// Units that a recall brings, as AssignSlots() writes them: row first_row + r misses count[r]
/// units unit[r * k + i], which go to slots slot[r * k + i] of the row. With `flag`, only rows
/// whose flag is set (or, not `flagged`, is zero) take part.
struct MissedUnits {
  const int32_t* unit = nullptr;
  const int32_t* slot = nullptr;
  const int32_t* count = nullptr;
  const int32_t* flag = nullptr;
  bool flagged = true;
  int32_t first_row = 0, rows = 0;
  int32_t k = 0;
};
/// Where rows lie: a sequence has slots_a_sequence slots of the cache, of which those that
/// AssignSlots() numbers begin at first_slot, and pool_pages pages of the pool, of which unit 0 is
/// the first_page-th.
struct CacheSlots {
  int32_t slots_a_sequence = 0, first_slot = 0, pool_pages = 0, first_page = 0;
};

/// ScatterPages() of all missed units: the buffer holds them by row, then in the row's order.
void ScatterMissed(const __nv_bfloat16* pieces, const MissedUnits& missed, const CacheSlots& place,
                   const PagedKv& cache, cudaStream_t stream);
/// ZeroCopyGather() of all missed units.
void ZeroCopyMissed(const __nv_bfloat16* pool, const MissedUnits& missed, const CacheSlots& place,
                    const PagedKv& cache, bool rows, int32_t blocks, cudaStream_t stream);

/// Tokens that a selection brings, as SelectUnits() writes them: row r, the r % heads-th selection
/// head of sequence r / heads, wants the count[r] pool rows source[r * k + i] (token * kv_heads +
/// KV head). Of the heads / kv_heads rows that share a KV head the m-th has the slots m * k + i of
/// its sequence's slots_a_sequence. Pool and cache have pages of one token.
struct ChosenTokens {
  const int64_t* source = nullptr;
  const int32_t* count = nullptr;
  int32_t rows = 0, k = 0;
  int32_t heads = 0, slots_a_sequence = 0;
};

/// Brings them from a pool in pinned host memory, read by at most `blocks` blocks, to the cache.
void ZeroCopyTokens(const PagedKv& pool, const ChosenTokens& chosen, const PagedKv& cache,
                    int32_t blocks, cudaStream_t stream);
/// Brings them from a buffer that holds each token's key and value, by row, to the cache.
void ScatterTokens(const __nv_bfloat16* pieces, const ChosenTokens& chosen, const PagedKv& cache,
                   cudaStream_t stream);

/// What lies at each place of a gather's list: `rows` rows of row_bytes, each `stride` bytes after
/// the one before.
struct PlaceShape {
  int64_t row_bytes = 0, rows = 1, stride = 0;
  int64_t bytes() const { return rows * row_bytes; }
};

/// Gathers what lies at `count` places of `pool`, the i-th of which begins at row places[i], byte
/// places[i] * shape.row_bytes, to a contiguous buffer, place after place, with at most `threads`
/// host threads (the machine's at most). Rows of 4 KiB and more, and all that several threads
/// gather, are stored past the caches.
void HostGather(const void* pool, const int64_t* places, int64_t count, const PlaceShape& shape,
                void* out, int threads);

}  // namespace stallcast::kernels
