// SnapKV-like importance (WG-KV, appendix K.1) by the tensor cores. One kernel finds every query
// head's softmax over all keys, in chunks of keys; the second multiplies again with keys as rows,
// so that the largest of a group and the sum over queries stay in registers; the third adds up what
// the parts of the window gave, and pools.
#include <algorithm>
#include <bit>
#include <string>

#include "kernels/device/divide.cuh"
#include "kernels/device/softmax_part.cuh"
#include "kernels/device/tile_product.cuh"
#include "kernels/methods/wgkv.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kHeadDim = 128;
constexpr int kRowBytes = kHeadDim * 2;
constexpr int kThreads = 256;
constexpr int kRows = kThreads;  // of the left factor, of a block: 32 a warp
constexpr int kTile = 64;        // of the right factor, in shared memory at once
constexpr int kMaxGroup = kTile;
constexpr float kLog2E = 1.4426950408889634f;

int CeilDivide(int n, int by) { return (n + by - 1) / by; }
__host__ __device__ constexpr int Queries(int slots) { return kRows / slots; }

struct Args {
  const __nv_bfloat16* query;
  int64_t query_stride;
  PagedKv cache;
  Divider by_page;
  const int32_t *places, *positions, *counts;
  int stride, queries, group;
  int heads;  // queries * group
  int chunks, parts;
  int first_position;
  float scale;            // to powers of two
  SoftmaxPart* partials;  // [rows][heads][chunks of keys]
  float* raw;             // [rows][parts of the window][stride]

  __device__ const __nv_bfloat16* Key(int row, int n) const {
    const auto place = static_cast<uint32_t>(places[int64_t{row} * stride + n]);
    const uint32_t slot = by_page.Quotient(place);
    return cache.data + slot * cache.slot_stride +
           by_page.Remainder(place, slot) * cache.token_stride;
  }
  // Query i of a row: i / group of the window, head i % group.
  __device__ const __nv_bfloat16* Query(int row, int i) const {
    return query + row * query_stride + int64_t{i} * kHeadDim;
  }
};

using Tiles = SharedTile<kRowBytes, kTile>[2];

// Calls use(tile, n, products) for the warp's rows and `count` tiles, of which the next is on its
// way meanwhile; source(r) is row r of them all.
template <class Source, class Use>
__device__ void Products(const WarpRows<kRowBytes>& rows, Tiles& tiles, int count,
                         const Source& source, const Use& use) {
  StreamTiles(
      count,
      [&](int tile) {
        tiles[tile % 2].template Fetch<kThreads>(
            [&](int r) { return reinterpret_cast<const char*>(source(tile * kTile + r)); });
      },
      [] {},
      [&](int tile) {
        MultiplyTile<Bf16Product>(rows, tiles[tile % 2],
                                  [&](int n, const float(&dots)[2][4]) { use(tile, n, dots); });
        __syncthreads();
      });
}

// 256 query heads with a chunk of as many keys.
__global__ void __launch_bounds__(kThreads, 2) SumsKernel(const Args args) {
  __shared__ SharedTile<kRowBytes, kTile> tiles[2];
  __shared__ const __nv_bfloat16* keys[kRows];
  __shared__ alignas(8) int positions[kRows];  // read in pairs
  const int row = static_cast<int>(blockIdx.z), thread = static_cast<int>(threadIdx.x);
  const int chunk = static_cast<int>(blockIdx.x), begin = chunk * kRows;
  const int first = static_cast<int>(blockIdx.y) * kRows + thread / 32 * 32;
  const int g = thread % 32 / 4, t = thread % 4;
  const int count = min(kRows, args.counts[row] - begin);
  SoftmaxPart partial[2][2];
  if (count > 0) {
    // Keys past the last repeat it, seen by none.
    const int key = begin + min(thread, count - 1);
    keys[thread] = args.Key(row, key);
    positions[thread] =
        thread < count ? args.positions[int64_t{row} * args.stride + key] : INT32_MAX;
    int last_seen[2][2];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        last_seen[m][half] = args.first_position + (first + m * 16 + half * 8 + g) / args.group;
      }
    }
    WarpRows<kRowBytes> rows;
    rows.Load([&](int i) { return first + i < args.heads ? args.Query(row, first + i) : nullptr; });
    __syncthreads();
    Products(
        rows, tiles, (count + kTile - 1) / kTile, [&](int r) { return keys[r]; },
        [&](int tile, int n, const float(&dots)[2][4]) {
          const int2 at = *reinterpret_cast<const int2*>(&positions[tile * kTile + n + 2 * t]);
#pragma unroll
          for (int m = 0; m < 2; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const int seen = last_seen[m][half];
              const float a = at.x <= seen ? dots[m][2 * half] * args.scale : kNever;
              const float b = at.y <= seen ? dots[m][2 * half + 1] * args.scale : kNever;
              partial[m][half].Add(a, b);
            }
          }
        });
  }
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const SoftmaxPart part = SumOfRow(partial[m][half]);
      const int head = first + m * 16 + half * 8 + g;
      if (t == 0 && head < args.heads) {
        args.partials[(int64_t{row} * args.heads + head) * args.chunks + chunk] = part;
      }
    }
  }
}

// log2 of the sum of a query head's weights; infinite if it sees no key.
__device__ float LogSum(const SoftmaxPart* partials, int chunks) {
  float max = kNever, sum = 0;
  for (int i = 0; i < chunks; ++i) max = fmaxf(max, partials[i].max);
  if (max == kNever) return INFINITY;
  for (int i = 0; i < chunks; ++i) sum += partials[i].sum * Exp2(partials[i].max - max);
  return max + log2f(sum);
}

// 256 keys with a part of the window. A query has kSlots slots, a power of two, of which those past
// the group repeat its last head: the largest of them is that of the group.
template <int kSlots>
__global__ void __launch_bounds__(kThreads, 2) WeightsKernel(const Args args) {
  __shared__ SharedTile<kRowBytes, kTile> tiles[2];
  __shared__ alignas(8) float log_sums[kRows];
  const int row = static_cast<int>(blockIdx.z), thread = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(blockIdx.y), first_query = part * Queries(kSlots);
  const int queries = min(Queries(kSlots), args.queries - first_query);
  const int first = static_cast<int>(blockIdx.x) * kRows + thread / 32 * 32;
  const int g = thread % 32 / 4, t = thread % 4;
  const int count = args.counts[row];
  if (static_cast<int>(blockIdx.x) * kRows >= count) return;
  // Slots past the last query repeat it, and weigh nothing.
  const auto head = [&](int slot) {
    return (first_query + min(slot / kSlots, queries - 1)) * args.group +
           min(slot % kSlots, args.group - 1);
  };
  log_sums[thread] =
      thread / kSlots < queries
          ? LogSum(args.partials + (int64_t{row} * args.heads + head(thread)) * args.chunks,
                   args.chunks)
          : INFINITY;
  WarpRows<kRowBytes> rows;
  rows.Load([&](int i) { return args.Key(row, min(first + i, count - 1)); });
  int position[2][2];
  float total[2][2] = {}, largest[2][2] = {};
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = min(first + m * 16 + half * 8 + g, count - 1);
      position[m][half] = args.positions[int64_t{row} * args.stride + key];
    }
  }
  __syncthreads();
  Products(
      rows, tiles, (queries * kSlots + kTile - 1) / kTile,
      [&](int slot) { return args.Query(row, head(slot)); },
      [&](int tile, int n, const float(&dots)[2][4]) {
        const int slot = tile * kTile + n + 2 * t;
        const float2 log = *reinterpret_cast<const float2*>(&log_sums[slot]);
        const int seen[2] = {args.first_position + first_query + slot / kSlots,
                             args.first_position + first_query + (slot + 1) / kSlots};
#pragma unroll
        for (int m = 0; m < 2; ++m) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int at = position[m][half];
            const float a = at <= seen[0] ? Exp2(dots[m][2 * half] * args.scale - log.x) : 0;
            const float b = at <= seen[1] ? Exp2(dots[m][2 * half + 1] * args.scale - log.y) : 0;
            float most = kSlots == 1 ? a + b : fmaxf(a, b);
            if constexpr (kSlots >= 4) most = fmaxf(most, __shfl_xor_sync(kAll, most, 1));
            if constexpr (kSlots >= 8) most = fmaxf(most, __shfl_xor_sync(kAll, most, 2));
            if constexpr (kSlots <= 8) {
              total[m][half] += most;
            } else {
              largest[m][half] = fmaxf(largest[m][half], most);
              if ((n + 8) % kSlots == 0) {
                total[m][half] += largest[m][half];
                largest[m][half] = 0;
              }
            }
          }
        }
      });
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Lanes whose columns belong to different queries.
      float sum = total[m][half];
      if constexpr (kSlots <= 2) sum += __shfl_xor_sync(kAll, sum, 1);
      if constexpr (kSlots <= 4) sum += __shfl_xor_sync(kAll, sum, 2);
      const int key = first + m * 16 + half * 8 + g;
      if (t == 0 && key < count) {
        args.raw[(int64_t{row} * args.parts + part) * args.stride + key] = sum;
      }
    }
  }
}

// Scores of the first `scored[row]` keys (null: of all); the places behind them are infinity.
__global__ void PoolKernel(const Args args, int reach, const int32_t* scored, int scored_stride,
                           float* scores) {
  extern __shared__ float sums[];  // of the block's keys and `reach` on either side
  const int row = static_cast<int>(blockIdx.y), size = static_cast<int>(blockDim.x);
  const int begin = static_cast<int>(blockIdx.x) * size - reach;
  const int count = args.counts[row];
  const float* raw = args.raw + int64_t{row} * args.parts * args.stride;
  for (int i = static_cast<int>(threadIdx.x); i < size + 2 * reach; i += size) {
    const int key = begin + i;
    float sum = 0;
    for (int part = 0; key >= 0 && key < count && part < args.parts; ++part) {
      sum += raw[int64_t{part} * args.stride + key];
    }
    sums[i] = sum;
  }
  __syncthreads();
  const int key = begin + reach + static_cast<int>(threadIdx.x);
  if (key >= scored_stride) return;
  float& score = scores[int64_t{row} * scored_stride + key];
  if (scored != nullptr && key >= scored[row]) {
    score = INFINITY;
    return;
  }
  if (key >= count) return;
  float largest = 0;
  for (int i = 0; i <= 2 * reach; ++i) {
    largest = fmaxf(largest, sums[static_cast<int>(threadIdx.x) + i]);
  }
  score = largest;
}

// Slots of a query: the least power of two that holds the group.
int Slots(int group) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(group, 1))));
}
int Chunks(const WindowScoreArgs& args) { return CeilDivide(args.stride, kRows); }
int Parts(const WindowScoreArgs& args) {
  return CeilDivide(args.queries, Queries(std::min(Slots(args.group), kMaxGroup)));
}
int64_t Partials(const WindowScoreArgs& args) {
  return int64_t{args.rows} * args.queries * args.group * Chunks(args);
}

void Weigh(const Args& args, int slots, dim3 grid, cudaStream_t stream) {
  switch (slots) {
    case 1:
      return WeightsKernel<1><<<grid, kThreads, 0, stream>>>(args);
    case 2:
      return WeightsKernel<2><<<grid, kThreads, 0, stream>>>(args);
    case 4:
      return WeightsKernel<4><<<grid, kThreads, 0, stream>>>(args);
    case 8:
      return WeightsKernel<8><<<grid, kThreads, 0, stream>>>(args);
    case 16:
      return WeightsKernel<16><<<grid, kThreads, 0, stream>>>(args);
    case 32:
      return WeightsKernel<32><<<grid, kThreads, 0, stream>>>(args);
    default:
      return WeightsKernel<64><<<grid, kThreads, 0, stream>>>(args);
  }
}

}  // namespace

int64_t WindowScoreWorkspace(const WindowScoreArgs& args) {
  return 2 * Partials(args) + int64_t{args.rows} * Parts(args) * args.stride;
}

void WindowScore(const WindowScoreArgs& args, cudaStream_t stream) {
  if (args.cache.head_dim != kHeadDim || args.group < 1 || args.group > kMaxGroup) {
    throw Error("heads of " + std::to_string(args.cache.head_dim) + " in groups of " +
                    std::to_string(args.group),
                "WindowScore", "use a head dimension of 128 and groups of up to 64");
  }
  if (args.rows <= 0 || args.queries <= 0 || args.stride <= 0) return;
  const int heads = args.queries * args.group, chunks = Chunks(args), parts = Parts(args);
  auto* partials = reinterpret_cast<SoftmaxPart*>(args.workspace);
  const int64_t row_elements = int64_t{heads} * kHeadDim;
  const int scored_stride = args.scored_stride > 0 ? args.scored_stride : args.stride;
  const Args device{args.query,
                    args.query_stride > 0 ? args.query_stride : row_elements,
                    args.cache,
                    Divider(static_cast<uint32_t>(args.cache.page_tokens)),
                    args.places,
                    args.positions,
                    args.counts,
                    args.stride,
                    args.queries,
                    args.group,
                    heads,
                    chunks,
                    parts,
                    args.first_position,
                    args.scale * kLog2E,
                    partials,
                    args.workspace + 2 * Partials(args)};
  const auto x = static_cast<unsigned>(chunks), rows = static_cast<unsigned>(args.rows);
  SumsKernel<<<dim3(x, static_cast<unsigned>(CeilDivide(heads, kRows)), rows), kThreads, 0,
               stream>>>(device);
  Weigh(device, Slots(args.group), dim3(x, static_cast<unsigned>(parts), rows), stream);
  const int reach = args.smooth / 2;
  const auto pooled = static_cast<unsigned>(CeilDivide(scored_stride, kRows));
  PoolKernel<<<dim3(pooled, rows), kRows, static_cast<size_t>(kRows + 2 * reach) * sizeof(float),
               stream>>>(device, reach, args.scored, scored_stride, args.scores);
  CheckLaunch("WindowScore");
}

}  // namespace stallcast::kernels
