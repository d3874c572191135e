// ParisKV: the index of keys, and a query's table of bonuses.
#include <algorithm>
#include <string>

#include "kernels/device/vector.cuh"
#include "kernels/methods/hadamard.cuh"
#include "kernels/methods/pariskv.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kKeys = 64;           // of a tile
constexpr int kMostTiles = 32;      // of a CTA: its counts are added to the index's once
constexpr int kFewestBlocks = 512;  // where there are keys for them
constexpr int kTableThreads = 1024;

// A warp rotates a key into shared memory; then a thread takes one subspace of one key, adding in
// the policy's order and without fused multiplies.
template <int kDim, int kSub>
__global__ void __launch_bounds__(kThreads)
    EncodeKernel(const __grid_constant__ CodeTables tables, const TokenView keys, int tokens,
                 int block_tokens, int at, const KeyIndex index) {
  constexpr int kParts = kDim / kSub, kClusters = 1 << kSub, kEach = kDim / 32;
  constexpr int kPadded = kSub + 1;  // so that subspaces of a key start in different banks
  extern __shared__ float shared[];
  float* rotated = shared;  // [kKeys][kParts][kPadded]
  auto* counts = reinterpret_cast<int32_t*>(shared + kKeys * kParts * kPadded);
  __shared__ float level[8];
  const int row = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  for (int i = thread; i < kParts * kClusters; i += kThreads) counts[i] = 0;
  if (thread < 8) level[thread] = tables.level[thread];
  const __nv_bfloat16* from = keys.data + row * keys.row_stride;
  const int begin = static_cast<int>(blockIdx.x) * block_tokens;
  const int end = min(tokens, begin + block_tokens);
  for (int first = begin; first < end; first += kKeys) {
    const int count = min(kKeys, end - first);
    __syncthreads();
#pragma unroll 4
    for (int round = 0; round < kKeys / kWarps; ++round) {
      const int key = round * kWarps + warp;
      float x[kEach];
      const __nv_bfloat16* element =
          from + int64_t{min(first + key, tokens - 1)} * keys.token_stride + lane * kEach;
#pragma unroll
      for (int i = 0; i < kEach; i += 2) {
        const float2 pair =
            __bfloat1622float2(__ldcs(reinterpret_cast<const __nv_bfloat162*>(element + i)));
        x[i] = pair.x;
        x[i + 1] = pair.y;
      }
      RotateInWarp(tables, x);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int e = lane * kEach + i;
        rotated[(key * kParts + e / kSub) * kPadded + e % kSub] = x[i];
      }
    }
    __syncthreads();
    const int64_t place = int64_t{row} * index.capacity + at + first;
    for (int pair = thread; pair < count * kParts; pair += kThreads) {
      const float* y = rotated + pair * kPadded;
      float energy = 0;
#pragma unroll
      for (int j = 0; j < kSub; ++j) energy = __fadd_rn(energy, __fmul_rn(y[j], y[j]));
      // Of a key of zeros all magnitudes are of the first bin.
      const float radius = energy > 0 ? __fsqrt_rn(energy) : INFINITY;
      float edge[7];
#pragma unroll
      for (int t = 0; t < 7; ++t) edge[t] = __fmul_rn(tables.threshold[t], radius);
      uint32_t id = 0, code = 0;
      float aligned = 0;
#pragma unroll
      for (int j = 0; j < kSub; ++j) {
        const float magnitude = fabsf(y[j]);
        // Edges ascend: three comparisons find the bin.
        const bool high = magnitude >= edge[3];
        const bool middle = magnitude >= (high ? edge[5] : edge[1]);
        const bool low =
            magnitude >= (high ? (middle ? edge[6] : edge[4]) : (middle ? edge[2] : edge[0]));
        const uint32_t bin = (high ? 4 : 0) + (middle ? 2 : 0) + (low ? 1 : 0);
        aligned = __fadd_rn(aligned, __fmul_rn(level[bin], magnitude));
        const bool negative = y[j] < 0;
        id |= negative ? 0 : 1u << j;
        code |= (bin | (negative ? 8u : 0u)) << (4 * j);
      }
      index.ids[place * kParts + pair] = static_cast<uint8_t>(id);
      index.weights[place * kParts + pair] =
          __float2bfloat16_rn(energy > 0 ? __fdiv_rn(energy, aligned) : 0.0f);
      if constexpr (kSub == 8) {
        reinterpret_cast<uint32_t*>(index.codes)[place * kParts + pair] = code;
      } else {
        reinterpret_cast<uint16_t*>(index.codes)[place * kParts + pair] =
            static_cast<uint16_t>(code);
      }
      atomicAdd(counts + pair % kParts * kClusters + id, 1);
    }
  }
  __syncthreads();
  for (int i = thread; i < kParts * kClusters; i += kThreads) {
    if (counts[i] != 0) atomicAdd(index.counts + int64_t{row} * kParts * kClusters + i, counts[i]);
  }
}

struct Limits {
  int32_t tier[methods::kTiers];
};

// A CTA a row and subspace. A sign pattern's place among all is found by comparing with each, four
// threads a pattern.
template <int kDim, int kSub>
__global__ void __launch_bounds__(kTableThreads)
    CollisionTableKernel(const __grid_constant__ CodeTables tables,
                         const __nv_bfloat16* __restrict__ query, int group, int share,
                         const int32_t* __restrict__ counts, const Limits limits,
                         float* __restrict__ rotated_out, uint8_t* __restrict__ table) {
  constexpr int kParts = kDim / kSub, kClusters = 1 << kSub, kEach = kDim / 32;
  constexpr int kQuarters = 4;
  __shared__ float rotated[kDim];
  __shared__ float2 scored[kClusters];  // score, and count as an integer's bits
  const int part = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t cluster_at = (int64_t{row / share} * kParts + part) * kClusters;
  const int own_count = thread < kClusters ? counts[cluster_at + thread] : 0;
  if (thread < 32) {
    float x[kEach] = {};
#pragma unroll 4
    for (int g = 0; g < group; ++g) {
      const __nv_bfloat16* q = query + (int64_t{row} * group + g) * kDim + thread * kEach;
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] += __bfloat162float(q[i]);
    }
    const float factor = __fdiv_rn(1.0f, static_cast<float>(group));
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = __fmul_rn(x[i], factor);
    RotateInWarp(tables, x);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      rotated[thread * kEach + i] = x[i];
      if (part == 0) rotated_out[int64_t{row} * kDim + thread * kEach + i] = x[i];
    }
  }
  __syncthreads();
  if (thread < kClusters) {
    float score = 0;
#pragma unroll
    for (int j = 0; j < kSub; ++j) {
      const float q = rotated[part * kSub + j];
      score += (thread >> j & 1) != 0 ? q : -q;
    }
    scored[thread] = make_float2(score, __int_as_float(own_count));
  }
  __syncthreads();
  const int own = thread / kQuarters;
  if (own >= kClusters) return;
  const float score = scored[own].x;
  int before = 0;
#pragma unroll 16
  for (int i = 0; i < kClusters / kQuarters; ++i) {
    const int c = i * kQuarters + thread % kQuarters;
    const float2 other = scored[c];
    const bool better = (other.x > score) | ((other.x == score) & (c < own));
    before += better ? __float_as_int(other.y) : 0;
  }
  before += __shfl_xor_sync(0xffffffffu, before, 1);
  before += __shfl_xor_sync(0xffffffffu, before, 2);
  int bonus = 0;
#pragma unroll
  for (int t = 0; t < methods::kTiers; ++t) bonus += before < limits.tier[t] ? 1 : 0;
  if (thread % kQuarters == 0) {
    table[(int64_t{row} * kParts + part) * kClusters + own] = static_cast<uint8_t>(bonus);
  }
}

}  // namespace

CodeTables::CodeTables(const methods::CodeBook& book)
    : head_dim(book.dim), subspaces(book.subspaces), rotation(book.hadamard > 1), negative{} {
  if ((head_dim != 64 && head_dim != 128) || (book.sub_dim != 4 && book.sub_dim != 8)) {
    throw Error(
        std::to_string(subspaces) + " subspaces of a head dimension of " + std::to_string(head_dim),
        "pariskv", "use head dimensions of 64 or 128 and subspaces of 4 or 8");
  }
  for (int i = 0; i < 8; ++i) level[i] = book.level[static_cast<size_t>(i)];
  for (int i = 0; i < 7; ++i) threshold[i] = book.threshold[static_cast<size_t>(i)];
  for (int i = 0; i < head_dim; ++i) {
    if (book.sign[static_cast<size_t>(i)] < 0) negative[i / 32] |= 1u << (i % 32);
  }
}

void EncodeKeys(const CodeTables& tables, const TokenView& keys, int32_t rows, int32_t tokens,
                int32_t at, const KeyIndex& index, cudaStream_t stream) {
  if (at < 0 || tokens < 0 || int64_t{at} + tokens > index.capacity) {
    throw Error("keys " + std::to_string(at) + " to " + std::to_string(int64_t{at} + tokens) +
                    " of an index for " + std::to_string(index.capacity),
                "EncodeKeys", "make the index larger");
  }
  if (rows <= 0 || tokens == 0) return;
  const int sub = tables.head_dim / tables.subspaces;
  const int tiles = (tokens + kKeys - 1) / kKeys;
  const int block_tiles =
      std::clamp(static_cast<int>(int64_t{tiles} * rows / kFewestBlocks), 1, kMostTiles);
  const dim3 grid(static_cast<unsigned>((tiles + block_tiles - 1) / block_tiles),
                  static_cast<unsigned>(rows));
  const int bytes = 4 * (kKeys * tables.subspaces * (sub + 1) + tables.subspaces * (1 << sub));
  const auto kernel = tables.head_dim == 128
                          ? (sub == 8 ? EncodeKernel<128, 8> : EncodeKernel<128, 4>)
                          : (sub == 8 ? EncodeKernel<64, 8> : EncodeKernel<64, 4>);
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "cudaFuncSetAttribute");
  kernel<<<grid, kThreads, static_cast<size_t>(bytes), stream>>>(tables, keys, tokens,
                                                                 block_tiles * kKeys, at, index);
  CheckLaunch("EncodeKeys");
}

void CollisionTable(const CodeTables& tables, const __nv_bfloat16* query, int32_t rows,
                    int32_t group, int32_t share, const KeyIndex& index,
                    const std::array<int32_t, methods::kTiers>& limits, float* rotated,
                    uint8_t* table, cudaStream_t stream) {
  if (rows <= 0) return;
  Limits by_value;
  std::copy(limits.begin(), limits.end(), by_value.tier);
  const int sub = tables.head_dim / tables.subspaces;
  const auto kernel = tables.head_dim == 128
                          ? (sub == 8 ? CollisionTableKernel<128, 8> : CollisionTableKernel<128, 4>)
                          : (sub == 8 ? CollisionTableKernel<64, 8> : CollisionTableKernel<64, 4>);
  const dim3 grid(static_cast<unsigned>(tables.subspaces), static_cast<unsigned>(rows));
  kernel<<<grid, sub == 8 ? kTableThreads : 64, 0, stream>>>(
      tables, query, group, share, index.counts, by_value, rotated, table);
  CheckLaunch("CollisionTable");
}

}  // namespace stallcast::kernels
