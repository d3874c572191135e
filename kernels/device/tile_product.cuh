// Products of many rows with many others by the tensor cores: a warp holds 32 rows in registers,
// tiles of the others stream through shared memory, and each 32 x 8 products go to a functor.
//
// 16 bytes a load: lane 4 g + t holds bytes 16 t .. 16 t + 15 of each 64 of row g. Which of an
// instruction's inner places an element takes does not matter, as it takes the same one in both
// factors.
#pragma once

#include <cuda_pipeline_primitives.h>

#include <cstdint>

namespace stallcast::kernels {

/// 8-bit whole numbers, exact sums.
struct Int8Product {
  using Sum = int32_t;
  static __device__ void MultiplyAdd(Sum (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                     uint32_t a3, uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
};

/// bf16, sums in float.
struct Bf16Product {
  using Sum = float;
  static __device__ void MultiplyAdd(Sum (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                     uint32_t a3, uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
};

/// Rows of kRowBytes, a multiple of 64, in shared memory. Every other row swaps its neighbouring 64
/// bytes, so that the eight lanes that load at once meet all banks.
template <int kRowBytes, int kRows>
struct SharedTile {
  static constexpr int kChunks = kRowBytes / 64;
  alignas(16) char bytes[kRows * kRowBytes];

  static __device__ int Place(int row, int chunk, int t) {
    const int swapped = kChunks > 1 ? chunk ^ (row & 1) : chunk;
    return row * kRowBytes + swapped * 64 + t * 16;
  }
  /// Starts to copy rows; `source(row)` is a row's 16-byte aligned address in device memory.
  template <int kThreads, class Source>
  __device__ void Fetch(const Source& source) {
    constexpr int kPieces = kRowBytes / 16;
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPieces; i += kThreads) {
      const int row = i / kPieces, piece = i % kPieces;
      __pipeline_memcpy_async(bytes + Place(row, piece / 4, piece % 4), source(row) + piece * 16,
                              16);
    }
  }
  __device__ uint4 Chunk(int row, int chunk, int t) const {
    return *reinterpret_cast<const uint4*>(bytes + Place(row, chunk, t));
  }
};

/// 32 rows of a warp: row(i) gives the address of row i, or null for zeros.
template <int kRowBytes>
struct WarpRows {
  static constexpr int kChunks = kRowBytes / 64;
  uint4 chunk[2][2][kChunks];  // [tile of 16][row g or g + 8]

  template <class Row>
  __device__ void Load(const Row& row) {
    const int g = static_cast<int>(threadIdx.x % 32) / 4, t = static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto* from = reinterpret_cast<const uint4*>(row(tile * 16 + half * 8 + g));
#pragma unroll
        for (int j = 0; j < kChunks; ++j) {
          chunk[tile][half][j] = from == nullptr ? uint4{} : __ldg(from + 4 * j + t);
        }
      }
    }
  }
};

/// Calls use(n, sums) for n = 0, 8, ... under kTileRows: sums[tile][2 half + c] is the product of
/// the warp's row 16 tile + 8 half + g with the tile's row n + 2 t + c.
template <class Product, int kRowBytes, int kTileRows, class Use>
__device__ void MultiplyTile(const WarpRows<kRowBytes>& rows,
                             const SharedTile<kRowBytes, kTileRows>& tile, const Use& use) {
  const int g = static_cast<int>(threadIdx.x % 32) / 4, t = static_cast<int>(threadIdx.x % 4);
#pragma unroll 4
  for (int n = 0; n < kTileRows; n += 8) {
    typename Product::Sum sums[2][4] = {};
#pragma unroll
    for (int j = 0; j < kRowBytes / 64; ++j) {
      const uint4 b = tile.Chunk(n + g, j, t);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const uint4 low = rows.chunk[m][0][j], high = rows.chunk[m][1][j];
        Product::MultiplyAdd(sums[m], low.x, high.x, low.y, high.y, b.x, b.y);
        Product::MultiplyAdd(sums[m], low.z, high.z, low.w, high.w, b.z, b.w);
      }
    }
    use(n, sums);
  }
}

/// Calls use(tile) for tile = 0, 1, ... under count, while fetch(tile + 1) is on its way to the
/// other of two buffers; meanwhile() is called while the first is. All threads call it. use() ends
/// behind a barrier, when no warp reads the tile any more.
template <class Fetch, class Meanwhile, class Use>
__device__ void StreamTiles(int count, const Fetch& fetch, const Meanwhile& meanwhile,
                            const Use& use) {
  const auto start = [&](int tile) {
    fetch(tile);
    __pipeline_commit();
  };
  start(0);
  meanwhile();
  for (int tile = 0; tile < count; ++tile) {
    if (tile + 1 < count) {
      start(tile + 1);
      __pipeline_wait_prior(1);
    } else {
      __pipeline_wait_prior(0);
    }
    __syncthreads();
    use(tile);
  }
}

}  // namespace stallcast::kernels
