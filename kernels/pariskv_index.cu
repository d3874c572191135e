// ParisKV: the index of keys, and a query's table of bonuses.
#include <string>

#include "kernels/cuda_error.h"
#include "kernels/device/hadamard.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/pariskv.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kKeys = 32;  // of a block

// A warp rotates a key into shared memory; then a thread takes one subspace of one key, adding in
// the policy's order and without fused multiplies.
template <int kDim, int kSub>
__global__ void __launch_bounds__(kThreads)
    EncodeKernel(const CodeTables tables, const TokenView keys, int tokens, int at,
                 const KeyIndex index) {
  constexpr int kParts = kDim / kSub;
  constexpr int kPadded = kSub + 1;  // so that subspaces of a key start in different banks
  __shared__ float rotated[kKeys][kParts * kPadded];
  const int row = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * kKeys;
  const int count = min(kKeys, tokens - first);
  const int lane = static_cast<int>(threadIdx.x % 32);
  constexpr int kEach = kDim / 32;
  const __nv_bfloat16* from = keys.data + row * keys.row_stride;
#pragma unroll
  for (int round = 0; round < kKeys / kWarps; ++round) {
    const int key = round * kWarps + static_cast<int>(threadIdx.x / 32);
    if (key >= count) break;
    float x[kEach];
    const __nv_bfloat16* element = from + (first + key) * keys.token_stride + lane * kEach;
#pragma unroll
    for (int i = 0; i < kEach; i += 2) {
      const float2 pair = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(element + i));
      x[i] = pair.x;
      x[i + 1] = pair.y;
    }
    RotateInWarp(tables, x);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = lane * kEach + i;
      rotated[key][e / kSub * kPadded + e % kSub] = x[i];
    }
  }
  __syncthreads();
  const int64_t place = int64_t{row} * index.capacity + at + first;
  for (int pair = static_cast<int>(threadIdx.x); pair < count * kParts; pair += kThreads) {
    const int key = pair / kParts, part = pair % kParts;
    const float* y = &rotated[key][part * kPadded];
    float energy = 0;
#pragma unroll
    for (int j = 0; j < kSub; ++j) energy = __fadd_rn(energy, __fmul_rn(y[j], y[j]));
    const float radius = __fsqrt_rn(energy);
    uint32_t id = 0, code = 0;
    float aligned = 0;
#pragma unroll
    for (int j = 0; j < kSub; ++j) {
      const float magnitude = fabsf(y[j]);
      uint32_t bin = 0;
      float level = tables.level[0];
#pragma unroll
      for (int t = 0; t < 7; ++t) {
        const bool above = magnitude >= __fmul_rn(tables.threshold[t], radius) && energy > 0;
        bin += above ? 1 : 0;
        level = above ? tables.level[t + 1] : level;
      }
      aligned = __fadd_rn(aligned, __fmul_rn(level, magnitude));
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
      reinterpret_cast<uint16_t*>(index.codes)[place * kParts + pair] = static_cast<uint16_t>(code);
    }
    atomicAdd(index.counts + (int64_t{row} * kParts + part) * (1 << kSub) + id, 1);
  }
}

struct Limits {
  int32_t tier[methods::kTiers];
};

// A block a row and subspace, a thread a sign pattern: its place among all is found by comparing
// with each.
template <int kDim, int kSub>
__global__ void __launch_bounds__(256)
    CollisionTableKernel(const CodeTables tables, const __nv_bfloat16* __restrict__ query,
                         int group, int share, const int32_t* __restrict__ counts,
                         const Limits limits, float* __restrict__ rotated_out,
                         uint8_t* __restrict__ table) {
  constexpr int kParts = kDim / kSub, kClusters = 1 << kSub, kEach = kDim / 32;
  __shared__ float rotated[kDim];
  __shared__ float2 scored[kClusters];  // score, and count as an integer's bits
  const int part = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t cluster_at = (int64_t{row / share} * kParts + part) * kClusters;
  const int own_count = thread < kClusters ? counts[cluster_at + thread] : 0;
  if (thread < 32) {
    float x[kEach] = {};
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
  float score = 0;
#pragma unroll
  for (int j = 0; j < kSub; ++j) {
    const float q = rotated[part * kSub + j];
    score += (thread >> j & 1) != 0 ? q : -q;
  }
  if (thread < kClusters) scored[thread] = make_float2(score, __int_as_float(own_count));
  __syncthreads();
  if (thread >= kClusters) return;
  int before = 0;
#pragma unroll 16
  for (int c = 0; c < kClusters; ++c) {
    const float2 other = scored[c];
    const bool better = other.x > score || (other.x == score && c < thread);
    before += better ? __float_as_int(other.y) : 0;
  }
  int bonus = 0;
#pragma unroll
  for (int t = 0; t < methods::kTiers; ++t) bonus += before < limits.tier[t] ? 1 : 0;
  table[(int64_t{row} * kParts + part) * kClusters + thread] = static_cast<uint8_t>(bonus);
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
  const dim3 grid(static_cast<unsigned>((tokens + kKeys - 1) / kKeys), static_cast<unsigned>(rows));
  const int sub = tables.head_dim / tables.subspaces;
  const auto kernel = tables.head_dim == 128
                          ? (sub == 8 ? EncodeKernel<128, 8> : EncodeKernel<128, 4>)
                          : (sub == 8 ? EncodeKernel<64, 8> : EncodeKernel<64, 4>);
  kernel<<<grid, kThreads, 0, stream>>>(tables, keys, tokens, at, index);
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
  kernel<<<grid, sub == 8 ? 256 : 32, 0, stream>>>(tables, query, group, share, index.counts,
                                                   by_value, rotated, table);
  CheckLaunch("CollisionTable");
}

}  // namespace stallcast::kernels
