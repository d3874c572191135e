// GEMMs with few rows, as in decoding: every weight is read once, so nothing but reading counts.
// A block takes tiles of 8 weight rows, its warps every 16th chunk of 128 columns, which they
// stream through rings of their own in shared memory, on from tile to tile. The tensor cores' 16
// rows hold the few of A, their 8 columns a tile's weight rows. Which of an instruction's inner
// places an element takes does not matter, as it takes the same one in both factors: a thread has 8
// columns that follow one another.
#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "kernels/decoder/skinny_gemm.h"
#include "kernels/device/tensor_core.cuh"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/device_attribute.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kTileRows = 8;
constexpr int kChunk = 128;  // columns
constexpr int kPieces = kChunk / 8;
constexpr int kStageBytes = kTileRows * kChunk * 2;  // of a warp
// A warp has so many stages on their way, a multiprocessor 64 KiB. That keeps the memory busy, and
// more of them only begin and end later: a layer takes 2 % longer with three.
constexpr int kStages = 2;
constexpr int kRowsMax = 8;
// Registers are left for kernels of other streams: with all that the compiler would take, theirs
// begin where a block of ours has ended.
constexpr int kThreadsBeside = 256;

struct Shape {
  int m, n, k;
};

// Sums of a tile by one warp, [row of A][row of the tile].
using Sums = float[kRowsMax][kTileRows];

// Where 16 bytes of a weight row lie in a stage: so that 8 threads that load 4 pieces of 2 rows
// meet every bank once.
__device__ int Place(int row, int piece) { return (row * kPieces + (piece ^ (row % 2 * 4))) * 16; }

__global__ void __launch_bounds__(kThreads + kThreadsBeside, 1)
    SkinnyGemmKernel(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                     Shape shape) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Sums sums[2][kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, warp = thread / 32;
  const int chunks = shape.k / kChunk;
  const int mine = (chunks - warp + kWarps - 1) / kWarps;  // of a tile
  const int tiles = shape.n / kTileRows;
  const int my_tiles = (tiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) /
                       static_cast<int>(gridDim.x);

  unsigned char* const ring = shared + warp * (kStages * kStageBytes);
  const auto ring_address = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
  const int64_t tile_stride = int64_t{gridDim.x} * kTileRows * shape.k;
  const __nv_bfloat16* next_tile = b +
                                   (int64_t{blockIdx.x} * kTileRows + lane / kPieces) * shape.k +
                                   warp * kChunk + lane % kPieces * 8;
  const __nv_bfloat16* next = next_tile;
  int left = mine, tiles_left = mine > 0 ? my_tiles : 0;
  const uint64_t read_once = EvictFirst();
  const auto fetch = [&](int stage) {
    if (tiles_left > 0) {
      constexpr int kRowsAtOnce = 32 / kPieces;
#pragma unroll
      for (int row = 0; row < kTileRows; row += kRowsAtOnce) {
        CopyAsync(ring_address + stage * kStageBytes + Place(row + lane / kPieces, lane % kPieces),
                  next + int64_t{row} * shape.k, 16, read_once);
      }
      next += kWarps * kChunk;
      if (--left == 0) {
        left = mine;
        --tiles_left;
        next_tile += tile_stride;
        next = next_tile;
      }
    }
  };
  fetch(0);
  // A stays, in the order in which it is read: 32 columns of all its rows, then the next 32. A warp
  // reads no columns of it but those that it fetches itself, with its first weights.
  auto* const factors = reinterpret_cast<uint4*>(shared + kWarps * kStages * kStageBytes);
  const auto factors_address = static_cast<uint32_t>(__cvta_generic_to_shared(factors));
  for (int row_of_a = 0; row_of_a < shape.m; ++row_of_a) {
    const __nv_bfloat16* const from = a + int64_t{row_of_a} * shape.k;
    for (int i = lane; i < mine * kPieces; i += 32) {
      const int piece = (i / kPieces * kWarps + warp) * kPieces + i % kPieces;
      CopyAsync(factors_address + ((piece / 4 * shape.m + row_of_a) * 4 + piece % 4) * 16,
                from + piece * 8);
    }
  }
  CommitCopies();
  for (int i = 1; i < kStages; ++i) {
    fetch(i);
    CommitCopies();
  }

  const int row = lane / 4, piece = lane % 4;  // of the tile and of A, and 8 of 32 columns
  int stage = 0;
  for (int i = 0; i < my_tiles; ++i) {
    float sum[2][4] = {};
    const uint4* factor = factors + (warp * (kChunk / 32) * shape.m + row) * 4 + piece;
    for (int j = 0; j < mine; ++j) {
      WaitForCopies<kStages - 1>();
      __syncwarp();  // the chunk is in
      const unsigned char* const weights = ring + stage * kStageBytes;
      uint4 w[kChunk / 32];
#pragma unroll
      for (int part = 0; part < kChunk / 32; ++part) {
        w[part] = *reinterpret_cast<const uint4*>(weights + Place(row, part * 4 + piece));
      }
      __syncwarp();  // and its stage is free: nothing stands still while it is multiplied
      fetch(stage);
      CommitCopies();
      stage = stage + 1 == kStages ? 0 : stage + 1;
#pragma unroll
      for (int part = 0; part < kChunk / 32; ++part) {
        const uint4 x = row < shape.m ? factor[part * shape.m * 4] : uint4{};
        MultiplyAdd(sum[0], {x.x, 0, x.y, 0}, w[part].x, w[part].y);
        MultiplyAdd(sum[1], {x.z, 0, x.w, 0}, w[part].z, w[part].w);
      }
      factor += kWarps * (kChunk / 32) * shape.m * 4;
    }
    Sums* const of_warp = sums[i % 2];
    of_warp[warp][row][piece * 2] = sum[0][0] + sum[1][0];
    of_warp[warp][row][piece * 2 + 1] = sum[0][1] + sum[1][1];
    __syncthreads();  // once a tile: the next one's sums go elsewhere
    // 8 threads an element.
    const int element = thread / 8, to_row = element / kTileRows, column = element % kTileRows;
    float total = 0;
    for (int w = thread % 8; w < kWarps; w += 8) total += of_warp[w][to_row][column];
    for (int lanes = 4; lanes > 0; lanes /= 2) total += __shfl_xor_sync(~0u, total, lanes);
    if (thread % 8 == 0 && to_row < shape.m) {
      const int64_t tile = blockIdx.x + int64_t{i} * gridDim.x;
      c[int64_t{to_row} * shape.n + tile * kTileRows + column] = __float2bfloat16_rn(total);
    }
  }
}

/// What a block may ask for, beside its own sums and the system's 1 KiB.
int64_t Room() {
  return CurrentDevice().shared_bytes - static_cast<int64_t>(2 * kWarps * sizeof(Sums)) - 1024;
}

/// Of the rings and A.
int64_t SharedBytes(int64_t m, int64_t k) { return kStages * kWarps * kStageBytes + 2 * m * k; }

}  // namespace

bool HasSkinnyGemm(int64_t m, int64_t n, int64_t k) {
  return m >= 1 && m <= kRowsMax && n % kTileRows == 0 && k % kChunk == 0 && n <= INT32_MAX &&
         k <= INT32_MAX && SharedBytes(m, k) <= Room();
}

void SkinnyGemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int64_t m,
                int64_t n, int64_t k, cudaStream_t stream) {
  if (!HasSkinnyGemm(m, n, k)) {
    throw Error("a GEMM of m " + std::to_string(m) + ", n " + std::to_string(n) + ", k " +
                    std::to_string(k),
                "SkinnyGemm", "use Gemm");
  }
  static std::array<std::atomic<bool>, 64> ready{};
  if (std::atomic<bool>& here = ready.at(CurrentDevice().device); !here) {
    Check(cudaFuncSetAttribute(SkinnyGemmKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(Room())),
          "cudaFuncSetAttribute(SkinnyGemm)");
    here = true;
  }
  const Shape shape{static_cast<int>(m), static_cast<int>(n), static_cast<int>(k)};
  const int blocks = std::min(shape.n / kTileRows, CurrentDevice().multiprocessors);
  SkinnyGemmKernel<<<static_cast<unsigned>(blocks), kThreads,
                     static_cast<size_t>(SharedBytes(m, k)), stream>>>(a, b, c, shape);
  CheckLaunch("SkinnyGemm");
}

}  // namespace stallcast::kernels
