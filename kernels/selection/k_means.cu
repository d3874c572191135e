// k-means. Keys and centroids are 8-bit whole numbers, so sums are exact whatever their order: the
// tensor cores find the nearest centroids (on Hopper as in k_means_hopper.cu), atomics add up the
// members.
#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <string>
#include <utility>

#include "kernels/device/page_runs.cuh"
#include "kernels/device/tile_product.cuh"
#include "kernels/runtime/cuda_error.h"
#include "kernels/selection/clusters.h"
#include "kernels/selection/k_means_params.cuh"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kBlockTokens = kWarps * 32;
constexpr float kLargest = 127;
// Closeness and the place in a tile share a word: 2 k . c - |c|^2 is under 2^24 for 256 channels.
constexpr int kPlaces = 128;

template <int kDim>
constexpr int kTile = kDim > 128 ? 64 : 128;  // centroids in shared memory at once

/// Centroids as their channels come. A key's word is its product times 2 kPlaces, and a bias.
template <int kDim>
struct PlainCentroids {
  __device__ static int Channel(int /*cluster*/, int i) { return i; }
  __device__ static int32_t Bias(int cluster, int32_t norm) {
    return kPlaces - 1 - cluster % kTile<kDim> - norm * kPlaces;
  }
};

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Parts of the workspace.
struct Workspace {
  int8_t* keys;             // [rows][tokens][dim]
  int8_t* centroids;        // [rows][padded][dim], as the search wants them
  int32_t* bias;            // [rows][padded]
  int32_t* sums;            // [rows][clusters][dim]
  int32_t* sizes;           // [rows][clusters]
  uint32_t* labels;         // [rows][tokens]: row * clusters + cluster
  uint32_t* sorted_labels;  // sorted, or of the pass before
  int32_t* tokens;          // [rows][tokens]
  int32_t* sorted_tokens;
  uint32_t* largest;  // [rows]: bits of the largest element
  void* sort;
  size_t sort_bytes;
};

int LabelBits(const KMeansArgs& args) {
  int bits = 1;
  while ((int64_t{1} << bits) < int64_t{args.rows} * args.clusters) ++bits;
  return bits;
}

int Padded(const KMeansArgs& args) {
  return static_cast<int>(
      RoundUp(args.clusters, args.keys.cache.head_dim > 128 ? kTile<256> : kTile<128>));
}

// Lays out the workspace from `base` on and returns its size.
int64_t Divide(const KMeansArgs& args, char* base, Workspace& w) {
  const int64_t dim = args.keys.cache.head_dim;
  const int64_t all = int64_t{args.rows} * args.tokens;
  int64_t bytes = 0;
  const auto take = [&](auto*& pointer, int64_t count) {
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(base + bytes);
    bytes += RoundUp(count * static_cast<int64_t>(sizeof(*pointer)), 256);
  };
  take(w.keys, all * dim);
  take(w.centroids, int64_t{args.rows} * Padded(args) * dim);
  take(w.bias, int64_t{args.rows} * Padded(args));
  take(w.sums, int64_t{args.rows} * args.clusters * dim);
  take(w.sizes, int64_t{args.rows} * args.clusters);
  take(w.labels, all);
  take(w.sorted_labels, all);
  take(w.tokens, all);
  take(w.sorted_tokens, all);
  take(w.largest, args.rows);
  w.sort_bytes = 0;
  Check(cub::DeviceRadixSort::SortPairs(nullptr, w.sort_bytes, w.labels, w.sorted_labels, w.tokens,
                                        w.sorted_tokens, static_cast<int>(all), 0, LabelBits(args)),
        "cub::DeviceRadixSort::SortPairs");
  char* sort = nullptr;
  take(sort, static_cast<int64_t>(w.sort_bytes));
  w.sort = sort;
  return bytes;
}

__global__ void __launch_bounds__(kThreads)
    LargestKernel(RunAddress keys, int first, int tokens, int pieces, uint32_t* largest) {
  const int row = static_cast<int>(blockIdx.y);
  uint32_t most = 0;
  const int stride = static_cast<int>(gridDim.x) * kThreads;
  for (int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x); i < tokens * pieces;
       i += stride) {
    const uint4 packed =
        __ldg(reinterpret_cast<const uint4*>(keys.Key(row, first + i / pieces)) + i % pieces);
    for (const uint32_t pair : {packed.x, packed.y, packed.z, packed.w}) {
      // Magnitudes order as their bits do.
      most = max(most, max(pair << 16 & 0x7fff0000u, pair & 0x7fff0000u));
    }
  }
  most = __reduce_max_sync(kAll, most);
  if (threadIdx.x % 32 == 0) atomicMax(largest + row, most);
}

__device__ uint32_t Whole(uint32_t bf16_bits, float scale) {
  const float value = rintf(__fmul_rn(__uint_as_float(bf16_bits), scale));
  return static_cast<uint32_t>(static_cast<int>(value)) & 0xffu;
}

__global__ void __launch_bounds__(kThreads)
    QuantiseKernel(RunAddress keys, int first, int tokens, int pieces, const uint32_t* largest,
                   int8_t* out) {
  const int row = static_cast<int>(blockIdx.y);
  const float most = __uint_as_float(largest[row]);
  const float scale = most > 0 ? __fdiv_rn(kLargest, most) : 0.0f;
  auto* to = reinterpret_cast<uint2*>(out) + int64_t{row} * tokens * pieces;
  const int stride = static_cast<int>(gridDim.x) * kThreads;
  for (int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x); i < tokens * pieces;
       i += stride) {
    const uint4 packed =
        __ldg(reinterpret_cast<const uint4*>(keys.Key(row, first + i / pieces)) + i % pieces);
    const auto four = [scale](uint32_t a, uint32_t b) {
      return Whole(a << 16, scale) | Whole(a & 0xffff0000u, scale) << 8 |
             Whole(b << 16, scale) << 16 | Whole(b & 0xffff0000u, scale) << 24;
    };
    to[i] = {four(packed.x, packed.y), four(packed.z, packed.w)};
  }
}

// The nearest whole number, half up; `before` where there is nothing to average.
__device__ int32_t Mean(int32_t sum, int32_t size, int32_t before) {
  if (size == 0) return before;
  const int64_t twice = int64_t{2} * sum + size, by = int64_t{2} * size;
  return static_cast<int32_t>(twice / by - (twice % by < 0 ? 1 : 0));
}

// The first centroids, or the means of the members; and what the search needs of them. A warp a
// centroid.
template <class Layout, bool kSeeds>
__global__ void __launch_bounds__(kThreads)
    CentroidKernel(const int8_t* keys, int tokens, int clusters, int padded, int dim,
                   int8_t* centroids, int32_t* bias, int32_t* sums, int32_t* sizes) {
  const int row = static_cast<int>(blockIdx.y);
  const int cluster = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (cluster >= padded) return;
  if (cluster >= clusters) {  // never the nearest
    if (lane == 0) bias[int64_t{row} * padded + cluster] = INT32_MIN;
    return;
  }
  int8_t* centroid = centroids + (int64_t{row} * padded + cluster) * dim;
  const int64_t at = int64_t{row} * clusters + cluster;
  const int64_t seed = (int64_t{2} * cluster + 1) * tokens / (int64_t{2} * clusters);
  int32_t norm = 0;
  for (int i = lane; i < dim; i += 32) {
    int8_t& channel = centroid[Layout::Channel(cluster, i)];
    int32_t value = 0;
    if constexpr (kSeeds) {
      value = keys[(int64_t{row} * tokens + seed) * dim + i];
    } else {
      value = Mean(sums[at * dim + i], sizes[at], channel);
    }
    channel = static_cast<int8_t>(value);
    if (kSeeds) sums[at * dim + i] = 0;
    norm += value * value;
  }
  norm = __reduce_add_sync(kAll, norm);
  if (lane == 0) {
    bias[int64_t{row} * padded + cluster] = Layout::Bias(cluster, norm);
    if (kSeeds) sizes[at] = 0;
  }
}

// The nearest centroid of each key: the largest 2 k . c - |c|^2, ties to the smaller cluster.
template <int kDim>
__global__ void __launch_bounds__(kThreads, 2)
    AssignKernel(const int8_t* __restrict__ keys, const int8_t* __restrict__ centroids,
                 const int32_t* __restrict__ bias, int tokens, int clusters, int padded,
                 uint32_t* __restrict__ labels) {
  constexpr int kRows = kTile<kDim>;
  __shared__ SharedTile<kDim, kRows> tiles[2];
  __shared__ alignas(16) int32_t biases[2][kRows];
  const int row = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x * kBlockTokens + threadIdx.x / 32 * 32);
  const int g = static_cast<int>(threadIdx.x % 32) / 4, t = static_cast<int>(threadIdx.x % 4);
  keys += int64_t{row} * tokens * kDim;
  centroids += int64_t{row} * padded * kDim;
  bias += int64_t{row} * padded;

  const auto fetch = [&](int tile) {
    const char* from = reinterpret_cast<const char*>(centroids) + int64_t{tile} * kRows * kDim;
    tiles[tile % 2].template Fetch<kThreads>([from](int r) { return from + r * kDim; });
    if (threadIdx.x < kRows / 4) {
      __pipeline_memcpy_async(&biases[tile % 2][threadIdx.x * 4],
                              bias + tile * kRows + threadIdx.x * 4, 16);
    }
  };
  WarpRows<kDim> rows;

  int32_t nearest[2][2], closeness[2][2];
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    nearest[m][0] = nearest[m][1] = 0;
    closeness[m][0] = closeness[m][1] = INT32_MIN;
  }
  StreamTiles(
      padded / kRows, fetch,
      [&] { rows.Load([&](int i) { return keys + int64_t{min(first + i, tokens - 1)} * kDim; }); },
      [&](int tile) {
        int32_t best[2][2] = {{INT32_MIN, INT32_MIN}, {INT32_MIN, INT32_MIN}};
        MultiplyTile<Int8Product>(rows, tiles[tile % 2], [&](int n, const int32_t(&dots)[2][4]) {
          const int2 add = *reinterpret_cast<const int2*>(&biases[tile % 2][n + 2 * t]);
#pragma unroll
          for (int m = 0; m < 2; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              best[m][half] =
                  max(best[m][half], max(dots[m][2 * half] * (2 * kPlaces) + add.x,
                                         dots[m][2 * half + 1] * (2 * kPlaces) + add.y));
            }
          }
        });
#pragma unroll
        for (int m = 0; m < 2; ++m) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int32_t close = best[m][half] >> 7;
            if (close > closeness[m][half]) {
              closeness[m][half] = close;
              nearest[m][half] = tile * kRows + kPlaces - 1 - (best[m][half] & (kPlaces - 1));
            }
          }
        }
        __syncthreads();
      });
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int offset = 1; offset < 4; offset *= 2) {
        const int32_t close = __shfl_xor_sync(kAll, closeness[m][half], offset);
        const int32_t other = __shfl_xor_sync(kAll, nearest[m][half], offset);
        if (close > closeness[m][half] ||
            (close == closeness[m][half] && other < nearest[m][half])) {
          closeness[m][half] = close;
          nearest[m][half] = other;
        }
      }
      const int token = first + m * 16 + half * 8 + g;
      if (t == 0 && token < tokens) {
        labels[int64_t{row} * tokens + token] =
            static_cast<uint32_t>(row * clusters + nearest[m][half]);
      }
    }
  }
}

// Adds keys to the sums of their clusters, a warp a key. After the first time only keys that have
// changed their cluster move: whole numbers lose nothing by being added and taken away.
__global__ void __launch_bounds__(kThreads)
    AccumulateKernel(const int8_t* keys, const uint32_t* labels, const uint32_t* before,
                     int64_t all, int dim, int32_t* sums, int32_t* sizes) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (token >= all) return;
  const uint32_t label = labels[token];
  const bool moves = before != nullptr;
  const uint32_t old = moves ? before[token] : 0;
  if (moves && old == label) return;
  for (int i = lane; i < dim; i += 32) {
    const int32_t value = keys[token * dim + i];
    atomicAdd(sums + int64_t{label} * dim + i, value);
    if (moves) atomicAdd(sums + int64_t{old} * dim + i, -value);
  }
  if (lane == 0) {
    atomicAdd(sizes + label, 1);
    if (moves) atomicAdd(sizes + old, -1);
  }
}

__global__ void __launch_bounds__(kThreads) NumberKernel(int first, int tokens, int32_t* out) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i < tokens) out[int64_t{blockIdx.y} * tokens + i] = first + i;
}

// Where each cluster begins among the sorted labels of its row, and the tokens.
__global__ void __launch_bounds__(kThreads)
    ListKernel(const uint32_t* sorted_labels, const int32_t* sorted_tokens, int tokens,
               int clusters, UnitLists lists) {
  const int row = static_cast<int>(blockIdx.y);
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  sorted_labels += int64_t{row} * tokens;
  if (i < tokens) {
    lists.members[row * lists.members_stride + i] = sorted_tokens[int64_t{row} * tokens + i];
  }
  if (i > clusters) return;
  const uint32_t label = static_cast<uint32_t>(row) * clusters + i;
  int low = 0, high = tokens;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (sorted_labels[middle] < label) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  lists.offsets[row * lists.offsets_stride + i] = low;
}

// The mean key of each cluster, a warp a cluster.
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    MeanKernel(RunAddress keys, int clusters, UnitLists lists, __nv_bfloat16* centroids,
               int64_t stride) {
  constexpr int kPairs = kDim / 64;
  const int row = static_cast<int>(blockIdx.y);
  const int cluster = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (cluster >= clusters) return;
  const int32_t* offsets = lists.offsets + row * lists.offsets_stride + cluster;
  const int begin = offsets[0], end = offsets[1];
  const int32_t* members = lists.members + row * lists.members_stride;
  float2 sum[kPairs] = {};
#pragma unroll 4
  for (int i = begin; i < end; ++i) {
    const auto* key = reinterpret_cast<const __nv_bfloat162*>(keys.Key(row, members[i]));
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const float2 pair = __bfloat1622float2(key[p * 32 + lane]);
      sum[p].x += pair.x;
      sum[p].y += pair.y;
    }
  }
  const float size = static_cast<float>(max(end - begin, 1));
  auto* to = reinterpret_cast<__nv_bfloat162*>(centroids + (row * stride + cluster) * kDim);
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    to[p * 32 + lane] = __floats2bfloat162_rn(sum[p].x / size, sum[p].y / size);
  }
}

unsigned Blocks(int64_t items, int a_block) {
  return static_cast<unsigned>((items + a_block - 1) / a_block);
}

template <int kDim>
struct PortableSearch {
  using Layout = PlainCentroids<kDim>;
  static void FindNearest(const NearestParams& p, cudaStream_t stream) {
    const dim3 blocks(Blocks(p.tokens, kBlockTokens), static_cast<unsigned>(p.rows));
    AssignKernel<kDim><<<blocks, kThreads, 0, stream>>>(p.keys, p.centroids, p.bias, p.tokens,
                                                        p.clusters, p.padded, p.labels);
  }
};

#ifdef STALLCAST_SM90A
template <int kDim>
struct HopperSearch {
  using Layout = SwizzledCentroids<kDim>;
  static void FindNearest(const NearestParams& p, cudaStream_t stream) {
    FindNearestHopper(p, kDim, stream);
  }
};
#endif

// All passes over the quantised keys; the last one's labels are in the workspace's `labels`.
template <int kDim, class Search>
void Iterate(const KMeansArgs& args, Workspace& w, cudaStream_t stream) {
  using Layout = typename Search::Layout;
  const int tokens = args.tokens, clusters = args.clusters, padded = Padded(args);
  const int64_t all = int64_t{args.rows} * tokens;
  const dim3 centroid_blocks(Blocks(padded, kWarps), static_cast<unsigned>(args.rows));
  for (int i = 0; i < args.iterations; ++i) {
    if (i == 0) {
      CentroidKernel<Layout, true><<<centroid_blocks, kThreads, 0, stream>>>(
          w.keys, tokens, clusters, padded, kDim, w.centroids, w.bias, w.sums, w.sizes);
    } else {
      AccumulateKernel<<<Blocks(all, kWarps), kThreads, 0, stream>>>(
          w.keys, w.labels, i > 1 ? w.sorted_labels : nullptr, all, kDim, w.sums, w.sizes);
      CentroidKernel<Layout, false><<<centroid_blocks, kThreads, 0, stream>>>(
          w.keys, tokens, clusters, padded, kDim, w.centroids, w.bias, w.sums, w.sizes);
    }
    std::swap(w.labels, w.sorted_labels);
    Search::FindNearest({.keys = w.keys,
                         .centroids = w.centroids,
                         .bias = w.bias,
                         .labels = w.labels,
                         .rows = args.rows,
                         .tokens = tokens,
                         .clusters = clusters,
                         .padded = padded},
                        stream);
  }
}

template <int kDim>
void Iterate(const KMeansArgs& args, Workspace& w, cudaStream_t stream) {
#ifdef STALLCAST_SM90A
  if constexpr (kDim <= 128) {
    if (!args.portable && HopperFindsNearest(kDim, args.clusters)) {
      return Iterate<kDim, HopperSearch<kDim>>(args, w, stream);
    }
  }
#endif
  Iterate<kDim, PortableSearch<kDim>>(args, w, stream);
}

template <int kDim>
void Run(const KMeansArgs& args, Workspace& w, cudaStream_t stream) {
  const RunAddress keys(args.keys);
  const int tokens = args.tokens, clusters = args.clusters;
  const auto rows = static_cast<unsigned>(args.rows);
  const int64_t all = int64_t{args.rows} * tokens;
  constexpr int kPieces = kDim / 8;
  const dim3 passes(std::min(Blocks(int64_t{tokens} * kPieces, 4 * kThreads), 4096u), rows);
  Check(cudaMemsetAsync(w.largest, 0, sizeof(uint32_t) * rows, stream), "cudaMemsetAsync");
  LargestKernel<<<passes, kThreads, 0, stream>>>(keys, args.first_token, tokens, kPieces,
                                                 w.largest);
  QuantiseKernel<<<passes, kThreads, 0, stream>>>(keys, args.first_token, tokens, kPieces,
                                                  w.largest, w.keys);
  Check(cudaMemsetAsync(w.centroids, 0, size_t{rows} * static_cast<size_t>(Padded(args)) * kDim,
                        stream),
        "cudaMemsetAsync");
  Iterate<kDim>(args, w, stream);
  CheckLaunch("KMeans");
  // A stable sort keeps the tokens of a cluster in order.
  NumberKernel<<<dim3(Blocks(tokens, kThreads), rows), kThreads, 0, stream>>>(args.first_token,
                                                                              tokens, w.tokens);
  size_t sort_bytes = w.sort_bytes;
  Check(cub::DeviceRadixSort::SortPairs(w.sort, sort_bytes, w.labels, w.sorted_labels, w.tokens,
                                        w.sorted_tokens, static_cast<int>(all), 0, LabelBits(args),
                                        stream),
        "cub::DeviceRadixSort::SortPairs");
  ListKernel<<<dim3(Blocks(std::max(tokens, clusters + 1), kThreads), rows), kThreads, 0, stream>>>(
      w.sorted_labels, w.sorted_tokens, tokens, clusters, args.lists);
  MeanKernel<kDim><<<dim3(Blocks(clusters, kWarps), rows), kThreads, 0, stream>>>(
      keys, clusters, args.lists, args.centroids, args.centroid_stride);
  CheckLaunch("KMeans (lists)");
}

void CheckArgs(const KMeansArgs& args) {
  if (args.rows < 1 || args.iterations < 1 || args.clusters < 1 || args.clusters > args.tokens ||
      int64_t{args.rows} * args.tokens > INT32_MAX) {
    throw Error(std::to_string(args.clusters) + " clusters of " + std::to_string(args.tokens) +
                    " keys in " + std::to_string(args.rows) + " rows",
                "KMeans", "give 1 cluster up to as many as there are keys, under 2^31 in all");
  }
}

}  // namespace

int64_t KMeansWorkspace(const KMeansArgs& args) {
  CheckArgs(args);
  Workspace workspace{};
  return Divide(args, nullptr, workspace);
}

void KMeans(const KMeansArgs& args, void* workspace, cudaStream_t stream) {
  CheckArgs(args);
  Workspace w{};
  Divide(args, static_cast<char*>(workspace), w);
  switch (args.keys.cache.head_dim) {
    case 64:
      return Run<64>(args, w, stream);
    case 128:
      return Run<128>(args, w, stream);
    case 256:
      return Run<256>(args, w, stream);
    default:
      throw Error("heads of " + std::to_string(args.keys.cache.head_dim) + " channels", "KMeans",
                  "use a model whose heads have 64, 128 or 256");
  }
}

}  // namespace stallcast::kernels
