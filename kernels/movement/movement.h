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

/// Reads pieces straight from pinned host memory, with 16-byte loads by at most `blocks` blocks of
/// 1,024 threads (each two of 512). Piece source[i] = page * kv_heads + head, under 2^31, of the
/// pool goes to the cache at (slot[i], head[i]). Pool pages are HND, [page][H][2][p][d]. With
/// `rows` they are NHD, [page][2][p][H][d], and a piece is 2 p rows of head_dim. p, H and d are the
/// cache's.
///
/// Four blocks fill the link of an H200. They reach 51 GB/s where the copy engine reaches 55: the
/// multiprocessors' requests have 128 bytes and the copy engine's 256, and each completion takes 20
/// bytes of the link besides its payload (bench_movement counts both).
void ZeroCopyGather(const __nv_bfloat16* pool, const int64_t* source, const int32_t* slot,
                    const int32_t* head, int32_t pieces_max, const int32_t* count,
                    const PagedKv& cache, bool rows, int32_t blocks, cudaStream_t stream);

/// The miss list that AssignSlots() writes. Row first_row + r misses count[r] units unit[r * k +
/// i], which go to the row's slots slot[r * k + i]. With `flag`, only rows with a set flag take
/// part, or if `flagged` is false, only rows without.
struct MissedUnits {
  const int32_t* unit = nullptr;
  const int32_t* slot = nullptr;
  const int32_t* count = nullptr;
  const int32_t* flag = nullptr;
  bool flagged = true;
  int32_t first_row = 0, rows = 0;
  int32_t k = 0;
};
/// Places of rows in cache and pool. A sequence has slots_a_sequence slots of the cache; slot 0 of
/// AssignSlots() is its slot first_slot. It has pool_pages pages of the pool; unit 0 is its page
/// first_page.
struct CacheSlots {
  int32_t slots_a_sequence = 0, first_slot = 0, pool_pages = 0, first_page = 0;
};

/// ScatterPages() of all missed units. The buffer holds them by row, in the order of the list.
void ScatterMissed(const __nv_bfloat16* pieces, const MissedUnits& missed, const CacheSlots& place,
                   const PagedKv& cache, cudaStream_t stream);
/// ZeroCopyGather() of all missed units.
void ZeroCopyMissed(const __nv_bfloat16* pool, const MissedUnits& missed, const CacheSlots& place,
                    const PagedKv& cache, bool rows, int32_t blocks, cudaStream_t stream);

/// Selected tokens, as SelectUnits() writes them. Row r is selection head r % heads of sequence
/// r / heads. It selects the count[r] pool rows source[r * k + i], each token * kv_heads + KV head.
/// heads / kv_heads rows share a KV head; the m-th of them has slots m * k + i of its sequence's
/// slots_a_sequence. Pool and cache have pages of one token.
struct ChosenTokens {
  const int64_t* source = nullptr;
  const int32_t* count = nullptr;
  int32_t rows = 0, k = 0;
  int32_t heads = 0, slots_a_sequence = 0;
};

/// Copies the tokens from a pool in pinned host memory to the cache, with at most `blocks` blocks.
void ZeroCopyTokens(const PagedKv& pool, const ChosenTokens& chosen, const PagedKv& cache,
                    int32_t blocks, cudaStream_t stream);
/// Copies the tokens from a buffer, which holds each token's key and value, by row, to the cache.
void ScatterTokens(const __nv_bfloat16* pieces, const ChosenTokens& chosen, const PagedKv& cache,
                   cudaStream_t stream);

/// The shape of each item that a gather reads: `rows` rows of row_bytes, `stride` bytes apart.
struct PlaceShape {
  int64_t row_bytes = 0, rows = 1, stride = 0;
  int64_t bytes() const { return rows * row_bytes; }
};

/// Gathers `count` items of `pool` into a contiguous buffer, in order. Item i begins at byte
/// places[i] * shape.row_bytes. Uses at most `threads` host threads, and no more than the machine
/// has. Stores bypass the caches if rows have 4 KiB or more, or if several threads gather.
void HostGather(const void* pool, const int64_t* places, int64_t count, const PlaceShape& shape,
                void* out, int threads);

}  // namespace stallcast::kernels
