// Products with few rows, as in decoding: every weight is read once, so nothing but reading counts.
// A block takes tiles of 8 weight rows, its warps every 16th chunk of 128 columns, which they
// stream through rings of their own in shared memory, on from tile to tile. The tensor cores' 16
// rows hold the few of A, their 8 columns a tile's weight rows. Which of an instruction's inner
// places an element takes does not matter, as it takes the same one in both factors: a thread has 8
// columns that follow one another.
#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "kernels/cuda_error.h"
#include "kernels/device/tensor_core.cuh"
#include "kernels/skinny_product.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kTileRows = 8;
constexpr int kChunk = 128;  // columns
constexpr int kPieces = kChunk / 8;
constexpr int kStageBytes = kTileRows * kChunk * 2;  // of a warp
constexpr int kMaxStages = 6, kMinStages = 3;
constexpr int kRowsMax = 8;

struct Shape {
  int m, n, k;
};

// Sums of a tile by one warp, [row of A][row of the tile].
using Sums = float[kRowsMax][kTileRows];

// Where 16 bytes of a weight row lie in a stage: so that 8 threads that load 4 pieces of 2 rows
// meet every bank once.
__device__ int Place(int row, int piece) { return (row * kPieces + (piece ^ (row % 2 * 4))) * 16; }

template <int kStages>
__global__ void __launch_bounds__(kThreads, 1)
    SkinnyProductKernel(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
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
  int left = mine, tiles_left = mine > 0 ? my_tiles : 0, fetch_stage = 0;
  const uint64_t read_once = EvictFirst();
  const auto fetch = [&] {
    if (tiles_left > 0) {
      constexpr int kRowsAtOnce = 32 / kPieces;
#pragma unroll
      for (int row = 0; row < kTileRows; row += kRowsAtOnce) {
        CopyAsync(
            ring_address + fetch_stage * kStageBytes + Place(row + lane / kPieces, lane % kPieces),
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
    fetch_stage = fetch_stage + 1 == kStages ? 0 : fetch_stage + 1;
    CommitCopies();
  };
  for (int i = 0; i < kStages - 1; ++i) fetch();

  // A lies as it will be read: 32 columns of all its rows after the other.
  auto* const factors = reinterpret_cast<uint4*>(shared + kWarps * kStages * kStageBytes);
  for (int row_of_a = 0; row_of_a < shape.m; ++row_of_a) {
    const auto* from = reinterpret_cast<const uint4*>(a + int64_t{row_of_a} * shape.k);
    for (int i = thread; i < shape.k / 8; i += kThreads) {
      factors[(i / 4 * shape.m + row_of_a) * 4 + i % 4] = from[i];
    }
  }
  __syncthreads();

  const int row = lane / 4, piece = lane % 4;  // of the tile and of A, and 8 of 32 columns
  int stage = 0;
  for (int i = 0; i < my_tiles; ++i) {
    float sum[2][4] = {};
    const uint4* factor = factors + (warp * (kChunk / 32) * shape.m + row) * 4 + piece;
    for (int j = 0; j < mine; ++j) {
      WaitForCopies<kStages - 2>();
      __syncwarp();  // the chunk is in, and its predecessor's stage is free
      fetch();
      const unsigned char* const weights = ring + stage * kStageBytes;
      stage = stage + 1 == kStages ? 0 : stage + 1;
#pragma unroll
      for (int part = 0; part < kChunk / 32; ++part) {
        const uint4 w = *reinterpret_cast<const uint4*>(weights + Place(row, part * 4 + piece));
        const uint4 x = row < shape.m ? factor[part * shape.m * 4] : uint4{};
        MultiplyAdd(sum[0], {x.x, 0, x.y, 0}, w.x, w.y);
        MultiplyAdd(sum[1], {x.z, 0, x.w, 0}, w.z, w.w);
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

struct Device {
  int multiprocessors, shared_bytes;
};

int Current() {
  int device = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

const Device& CurrentDevice() {
  static const std::vector<Device> devices = [] {
    int count = 0;
    Check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    std::vector<Device> all(count);
    for (int i = 0; i < count; ++i) {
      Check(cudaDeviceGetAttribute(&all[i].multiprocessors, cudaDevAttrMultiProcessorCount, i),
            "cudaDeviceGetAttribute");
      Check(
          cudaDeviceGetAttribute(&all[i].shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, i),
          "cudaDeviceGetAttribute");
    }
    return all;
  }();
  return devices.at(Current());
}

/// What a block may ask for, beside its own sums and the system's 1 KiB.
int64_t Room() {
  return CurrentDevice().shared_bytes - static_cast<int64_t>(2 * kWarps * sizeof(Sums)) - 1024;
}

/// How many stages fit beside A in shared memory.
int Stages(int64_t m, int64_t k) {
  return static_cast<int>(
      std::clamp<int64_t>((Room() - m * k * 2) / (kWarps * kStageBytes), 0, kMaxStages));
}

bool IsServed(int64_t m, int64_t n, int64_t k, int stages) {
  return m >= 1 && m <= kRowsMax && n % kTileRows == 0 && k % kChunk == 0 && n <= INT32_MAX &&
         k <= INT32_MAX && stages >= kMinStages;
}

template <int kStages>
void Launch(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, Shape shape,
            cudaStream_t stream) {
  const auto kernel = SkinnyProductKernel<kStages>;
  static std::array<std::atomic<bool>, 64> ready{};
  if (std::atomic<bool>& here = ready.at(Current()); !here) {
    Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(Room())),
          "cudaFuncSetAttribute(SkinnyProduct)");
    here = true;
  }
  const int blocks = std::min(shape.n / kTileRows, CurrentDevice().multiprocessors);
  const size_t bytes = kStages * kWarps * kStageBytes + size_t{2} * shape.m * shape.k;
  kernel<<<static_cast<unsigned>(blocks), kThreads, bytes, stream>>>(a, b, c, shape);
  CheckLaunch("SkinnyProduct");
}

}  // namespace

bool HasSkinnyProduct(int64_t m, int64_t n, int64_t k) { return IsServed(m, n, k, Stages(m, k)); }

void SkinnyProduct(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int64_t m,
                   int64_t n, int64_t k, cudaStream_t stream) {
  const int stages = Stages(m, k);
  if (!IsServed(m, n, k, stages)) {
    throw Error("a product of m " + std::to_string(m) + ", n " + std::to_string(n) + ", k " +
                    std::to_string(k),
                "SkinnyProduct", "use Gemm");
  }
  const auto launch = stages == 6   ? Launch<6>
                      : stages == 5 ? Launch<5>
                      : stages == 4 ? Launch<4>
                                    : Launch<3>;
  launch(a, b, c, Shape{static_cast<int>(m), static_cast<int>(n), static_cast<int>(k)}, stream);
}

}  // namespace stallcast::kernels
