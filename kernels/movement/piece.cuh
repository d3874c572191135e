// Pieces: one head's keys and values of one page, moved 16 bytes at a time between any two layouts.
#pragma once

#include <cstdint>

#include "kernels/device/divide.cuh"
#include "kernels/runtime/paged_kv.h"

namespace stallcast::kernels {

/// Where a piece lies in a paged cache or pool.
struct PiecePlace {
  int64_t slot;
  int32_t head;
};

/// How a piece of [2][page_tokens][head_dim] bf16 splits into chunks of 16 bytes.
struct PieceShape {
  explicit PieceShape(const PagedKv& pages)
      : chunks(2 * pages.page_tokens * pages.head_dim / 8),
        by_piece(chunks),
        by_row(pages.head_dim / 8),
        page_tokens(pages.page_tokens) {}

  uint32_t chunks;
  Divider by_piece;  ///< chunk of all pieces -> piece
  Divider by_row;    ///< chunk of a piece -> row of head_dim
  uint32_t page_tokens;
};

/// The address of a piece's chunk; chunks run through [2][page_tokens][head_dim].
inline __device__ uint4* ChunkAddress(const PagedKv& pages, const PieceShape& shape,
                                      PiecePlace place, uint32_t chunk) {
  const uint32_t row = shape.by_row.Quotient(chunk);
  const bool value = row >= shape.page_tokens;
  const uint32_t token = value ? row - shape.page_tokens : row;
  __nv_bfloat16* base = pages.data + place.slot * pages.slot_stride +
                        place.head * pages.head_stride + token * pages.token_stride +
                        (value ? pages.kv_stride : 0);
  return reinterpret_cast<uint4*>(base) + shape.by_row.Remainder(chunk, row);
}

/// Copies pieces `from` one layout `to` another. `route.Begin(scratch)` is called once a block, by
/// all its threads, and gives the number of pieces; `route(piece, scratch)` gives a pair of places,
/// from and to. Each thread has kLoads independent loads in flight before its first store. Pieces
/// are marked as read and written once, so that what starts the next kernels stays in the cache.
/// kBlocks: how many should fit on a multiprocessor.
template <int kThreads, int kLoads, int kBlocks, class Route>
__global__ void __launch_bounds__(kThreads, kBlocks)
    CopyPieces(PagedKv from, PagedKv to, PieceShape shape, Route route) {
  extern __shared__ uint32_t scratch[];
  const uint32_t chunks = route.Begin(scratch) * shape.chunks;
  // Tiles of a warp, not of a block: a warp's loads are then contiguous, and pieces stay whole.
  constexpr uint32_t kTile = 32 * kLoads;
  const uint32_t warp = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  for (uint32_t tile = warp * kTile; tile < chunks; tile += gridDim.x * (kThreads * kLoads)) {
    uint4 data[kLoads];
    uint4* target[kLoads];
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const uint32_t index = tile + load * 32 + threadIdx.x % 32;
      target[load] = nullptr;
      if (index >= chunks) continue;
      const uint32_t piece = shape.by_piece.Quotient(index);
      const uint32_t chunk = shape.by_piece.Remainder(index, piece);
      const auto [source, destination] = route(piece, scratch);
      data[load] = __ldcs(ChunkAddress(from, shape, source, chunk));
      target[load] = ChunkAddress(to, shape, destination, chunk);
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      if (target[load] != nullptr) __stcs(target[load], data[load]);
    }
  }
}

}  // namespace stallcast::kernels
