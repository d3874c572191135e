// The experts' GEMMs of a decode step: few rows each, so nothing but reading the weights counts. A
// warp takes an item, 8 weight rows of one expert with all rows of A that take it (a group), and
// streams them through a ring of its own in shared memory, on from item to item. The tensor cores
// are used as in SkinnyGemm(). Experts are too narrow for its blocks, whose warps share a tile's
// columns; here warps have tiles of their own.
//
// With sums a block has the same columns of all groups: each warp leaves its products in shared
// memory, and what a row's experts make is added in the order of the row's experts.
#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "kernels/decoder/experts.h"
#include "kernels/device/tensor_core.cuh"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/device_attribute.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kTileRows = 8;
constexpr int kChunk = 64;  // columns: experts are as narrow as 768
constexpr int kPieces = kChunk / 8;
constexpr int kStageBytes = kTileRows * kChunk * 2;  // of a warp
constexpr int kStages = 4;                           // 64 KiB on their way a multiprocessor
constexpr int kRingBytes = kStages * kStageBytes;
// Registers are left for kernels of other streams, as in SkinnyGemm().
constexpr int kThreadsBeside = 256;

struct Params {
  const __nv_bfloat16 *a, *b;
  __nv_bfloat16* c;
  Routing routing;
  int n, k;
  bool adds;
};

struct Item {
  ExpertGroup group;
  int tile;
  int block_tile;  // which of the block's tiles it is; with sums
};

// Where 16 bytes of a weight row lie in a stage: so that 8 threads that load 4 pieces of 2 rows
// meet every bank once.
__device__ int Place(int row, int piece) { return (row * kPieces + (piece ^ (row % 2 * 4))) * 16; }

// A thread's part of a chunk of A.
struct Factors {
  uint4 part[kChunk / 32];
};

__device__ Factors Load(const __nv_bfloat16* from, bool there) {
  Factors factors;
#pragma unroll
  for (int i = 0; i < kChunk / 32; ++i) {
    factors.part[i] = there ? __ldg(reinterpret_cast<const uint4*>(from + i * 32)) : uint4{};
  }
  return factors;
}

template <bool kSums>
__global__ void __launch_bounds__(kThreads + kThreadsBeside, 1) GroupedGemmKernel(Params p) {
  extern __shared__ __align__(128) unsigned char shared[];
  auto* const groups = reinterpret_cast<ExpertGroup*>(shared + kWarps * kRingBytes);
  const int pairs = p.routing.rows * p.routing.active;
  auto* const products = reinterpret_cast<float*>(groups + pairs);  // [block's tile][place][8]
  auto* const row_of = reinterpret_cast<int32_t*>(groups + pairs);  // without sums
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, warp = thread / 32;
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int tiles = p.n / kTileRows, chunks = p.k / kChunk;
  const int block_tiles = (tiles - block + blocks - 1) / blocks;

  const int count = *p.routing.groups;
  for (int i = thread; i < pairs; i += kThreads) {
    groups[i] = p.routing.group[i];
    if constexpr (!kSums) row_of[i] = p.routing.row_of[i];
  }
  __syncthreads();
  // Without sums, items that follow one another go to different multiprocessors.
  const int all = count * (kSums ? block_tiles : tiles);
  const int first = kSums ? warp : block + blocks * warp;
  const int stride = kSums ? kWarps : blocks * kWarps;
  const int items = first < all ? (all - first - 1) / stride + 1 : 0;
  const auto item = [&](int i) -> Item {
    const int at = first + i * stride;
    if constexpr (kSums) {
      const int block_tile = at / count;
      return {groups[at - block_tile * count], block + block_tile * blocks, block_tile};
    } else {
      const int group = at / tiles;
      return {groups[group], at - group * tiles, 0};
    }
  };

  unsigned char* const ring = shared + warp * kRingBytes;
  const auto ring_address = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
  const uint64_t read_once = EvictFirst();
  const __nv_bfloat16* next = nullptr;
  int next_item = 0, left = 0;
  const auto seek = [&] {
    if (next_item >= items) return;
    const Item of = item(next_item);
    const int64_t row = int64_t{of.group.expert} * p.n + of.tile * kTileRows + lane / kPieces;
    next = p.b + row * p.k + lane % kPieces * 8;
    left = chunks;
  };
  const auto fetch = [&](int stage) {
    if (next_item >= items) return;
    constexpr int kRowsAtOnce = 32 / kPieces;
#pragma unroll
    for (int row = 0; row < kTileRows; row += kRowsAtOnce) {
      CopyAsync(ring_address + stage * kStageBytes + Place(row + lane / kPieces, lane % kPieces),
                next + int64_t{row} * p.k, 16, read_once);
    }
    next += kChunk;
    if (--left == 0) {
      ++next_item;
      seek();
    }
  };
  seek();
  for (int stage = 0; stage < kStages; ++stage) {
    fetch(stage);
    CommitCopies();
  }

  const int row = lane / 4, piece = lane % 4;  // of the tile and of A, and 8 of 32 columns
  int stage = 0;
  for (int i = 0; i < items; ++i) {
    const Item of = item(i);
    const int place = of.group.first + row;
    const bool taken = row < of.group.rows;
    const __nv_bfloat16* from = p.a;
    if (taken) from += int64_t{kSums ? place : row_of[place]} * p.k + piece * 8;
    Factors next_x = Load(from, taken);
    float sum[2][4] = {};
    for (int j = 0; j < chunks; ++j) {
      const Factors x = next_x;  // the next ones come while these are multiplied
      from += kChunk;
      next_x = Load(from, taken && j + 1 < chunks);
      WaitForCopies<kStages - 1>();
      __syncwarp();  // the chunk is in
      const unsigned char* const weights = ring + stage * kStageBytes;
      uint4 w[kChunk / 32];
#pragma unroll
      for (int part = 0; part < kChunk / 32; ++part) {
        w[part] = *reinterpret_cast<const uint4*>(weights + Place(row, part * 4 + piece));
      }
      __syncwarp();  // and its stage is free
      fetch(stage);
      CommitCopies();
      stage = stage + 1 == kStages ? 0 : stage + 1;
#pragma unroll
      for (int part = 0; part < kChunk / 32; ++part) {
        MultiplyAdd(sum[0], {x.part[part].x, 0, x.part[part].y, 0}, w[part].x, w[part].y);
        MultiplyAdd(sum[1], {x.part[part].z, 0, x.part[part].w, 0}, w[part].z, w[part].w);
      }
    }
    if (!taken) continue;
    const float2 two = {sum[0][0] + sum[1][0], sum[0][1] + sum[1][1]};
    if constexpr (kSums) {
      const int at = (of.block_tile * pairs + place) * kTileRows + piece * 2;
      *reinterpret_cast<float2*>(products + at) = two;
    } else {
      auto* const to = p.c + int64_t{place} * p.n + of.tile * kTileRows + piece * 2;
      *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(two.x, two.y);
    }
  }
  if constexpr (kSums) {
    __syncthreads();
    const int elements = block_tiles * p.routing.rows * kTileRows;
    for (int i = thread; i < elements; i += kThreads) {
      const int column = i % kTileRows, to_row = i / kTileRows % p.routing.rows;
      const int block_tile = i / kTileRows / p.routing.rows;
      float total = 0;
      for (int pair = to_row * p.routing.active; pair < (to_row + 1) * p.routing.active; ++pair) {
        const int place = p.routing.place_of[pair];
        total +=
            p.routing.weight[pair] * products[(block_tile * pairs + place) * kTileRows + column];
      }
      __nv_bfloat16* const to =
          p.c + int64_t{to_row} * p.n + (block + block_tile * blocks) * kTileRows + column;
      *to = __float2bfloat16_rn(p.adds ? __bfloat162float(*to) + total : total);
    }
  }
}

/// What a block may ask for, beside the system's 1 KiB.
int64_t Room() { return CurrentDevice().shared_bytes - 1024; }

/// With sums a block has its tiles of all groups, else items are dealt out to all.
int64_t Blocks(int64_t n, bool sums) {
  const int64_t all = CurrentDevice().multiprocessors;
  return sums ? std::min(n / kTileRows, all) : all;
}

int64_t SharedBytes(const Routing& of, int64_t n, bool sums) {
  const int64_t blocks = Blocks(n, sums), block_tiles = (n / kTileRows + blocks - 1) / blocks;
  const int64_t a_place = sums ? block_tiles * kTileRows * int64_t{sizeof(float)} : sizeof(int32_t);
  return kWarps * kRingBytes + of.pairs() * (int64_t{sizeof(ExpertGroup)} + a_place);
}

template <bool kSums>
void Launch(const Params& params, cudaStream_t stream) {
  const Routing& of = params.routing;
  if (!HasGroupedGemm(of, params.n, params.k, kSums)) {
    throw Error("experts' GEMMs of " + std::to_string(of.rows) + " rows, n " +
                    std::to_string(params.n) + ", k " + std::to_string(params.k),
                "GroupedGemm", "use n in eights, k in sixty-fours, or fewer rows");
  }
  if (of.rows == 0) return;
  static std::array<std::atomic<bool>, 64> ready{};
  if (std::atomic<bool>& here = ready.at(CurrentDevice().device); !here) {
    Check(
        cudaFuncSetAttribute(GroupedGemmKernel<kSums>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(Room())),
        "cudaFuncSetAttribute(GroupedGemm)");
    here = true;
  }
  GroupedGemmKernel<kSums>
      <<<static_cast<unsigned>(Blocks(params.n, kSums)), kThreads,
         static_cast<size_t>(SharedBytes(of, params.n, kSums)), stream>>>(params);
  CheckLaunch("GroupedGemm");
}

}  // namespace

bool HasGroupedGemm(const Routing& of, int64_t n, int64_t k, bool sums) {
  return of.rows >= 0 && of.active >= 1 && n >= kTileRows && n % kTileRows == 0 && k >= kChunk &&
         k % kChunk == 0 && n <= INT32_MAX && k <= INT32_MAX && SharedBytes(of, n, sums) <= Room();
}

void GroupedGemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                 const Routing& routing, int64_t n, int64_t k, cudaStream_t stream) {
  Launch<false>({a, b, c, routing, static_cast<int>(n), static_cast<int>(k), false}, stream);
}

void GroupedGemmSum(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                    const Routing& routing, int64_t n, int64_t k, bool adds, cudaStream_t stream) {
  Launch<true>({a, b, c, routing, static_cast<int>(n), static_cast<int>(k), adds}, stream);
}

}  // namespace stallcast::kernels
