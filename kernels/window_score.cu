// SnapKV-like importance (WG-KV, appendix K.1). One kernel finds every query head's softmax over
// all keys; the second multiplies again, a CTA a tile of keys, so that what it sums over queries
// stays in one place and in order; the third pools.
#include <algorithm>
#include <string>

#include "kernels/cuda_error.h"
#include "kernels/device/tensor_core.cuh"
#include "kernels/wgkv.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kHeadDim = 128;
constexpr int kTile = 64;  // of keys, and of query heads
constexpr int kThreads = 128;
constexpr int kRowBytes = kHeadDim * 2;
constexpr int kTileBytes = kTile * kRowBytes;
constexpr int kPadded = kTile + 1;

/// 16 bytes of a tile, permuted by the row so that a column of 8 rows meets every bank.
__device__ uint32_t At(int row, int piece) {
  return row * kRowBytes + ((piece & 8) + ((piece ^ row) & 7)) * 16;
}

/// Query heads first, first + 1, ... of a row, in the order of queries and then of the group.
__device__ void LoadQueries(const WindowScoreArgs& args, int row, int first, uint32_t to) {
  const int heads = args.queries * args.group;
  const __nv_bfloat16* from = args.query + row * args.query_stride;
  for (int i = threadIdx.x; i < kTile * 16; i += kThreads) {
    const int head = min(first + i / 16, heads - 1);
    CopyAsync(to + At(i / 16, i % 16), from + int64_t{head} * kHeadDim + i % 16 * 8);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

__device__ void LoadKeys(const WindowScoreArgs& args, int row, int first, uint32_t to) {
  const int32_t* places = args.places + int64_t{row} * args.stride;
  const int last = args.counts[row] - 1;
  for (int i = threadIdx.x; i < kTile * 16; i += kThreads) {
    const int place = places[min(first + i / 16, last)];
    const int64_t slot = place / args.cache.page_tokens;
    CopyAsync(to + At(i / 16, i % 16),
              args.cache.data + slot * args.cache.slot_stride +
                  place % args.cache.page_tokens * args.cache.token_stride + i % 16 * 8);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

__device__ void WaitForAll() {
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
}

/// Products of the warp's 16 query heads with 64 keys.
__device__ void Products(float (&s)[kTile / 8][4], uint32_t queries, uint32_t keys) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (auto& four : s) {
    for (float& x : four) x = 0;
  }
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    uint32_t a[4];
    LoadMatrices(a, queries + At(warp * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
    for (int n = 0; n < kTile / 16; ++n) {
      uint32_t b[4];
      LoadMatrices(b, keys + At(n * 16 + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
      MultiplyAdd(s[2 * n], a, b[0], b[1]);
      MultiplyAdd(s[2 * n + 1], a, b[2], b[3]);
    }
  }
}

/// -infinity where query head `head` does not see key `key`.
struct Mask {
  const int32_t* positions;
  int count, first_position, group;
  __device__ float operator()(float score, int head, int key) const {
    const bool seen = key < count && positions[key] <= first_position + head / group;
    return seen ? score : -INFINITY;
  }
};

__device__ Mask MaskOf(const WindowScoreArgs& args, int row) {
  return {args.positions + int64_t{row} * args.stride, args.counts[row], args.first_position,
          args.group};
}

/// logs[row][head] = log2 of the sum of 2^score.
__global__ void __launch_bounds__(kThreads)
    SumsKernel(const WindowScoreArgs args, float scale, float* __restrict__ logs) {
  __shared__ __align__(128) unsigned char shared[2 * kTileBytes];
  const auto queries = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t keys = queries + kTileBytes;
  const int row = static_cast<int>(blockIdx.y), first = static_cast<int>(blockIdx.x) * kTile;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const Mask mask = MaskOf(args, row);
  LoadQueries(args, row, first, queries);
  const int own = first + warp * 16 + lane / 4;
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  for (int begin = 0; begin < mask.count; begin += kTile) {
    LoadKeys(args, row, begin, keys);
    WaitForAll();
    float s[kTile / 8][4];
    Products(s, queries, keys);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = maximum[r];
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
        for (int c = 0; c < 2; ++c) {
          float& x = s[n][2 * r + c];
          x = mask(x * scale, own + 8 * r, begin + n * 8 + lane % 4 * 2 + c);
          largest = fmaxf(largest, x);
        }
      }
      if (largest == -INFINITY) continue;
      sum[r] *= Exp2(maximum[r] - largest);
      maximum[r] = largest;
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
        sum[r] += Exp2(s[n][2 * r] - largest) + Exp2(s[n][2 * r + 1] - largest);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float largest = maximum[r];
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    float part = maximum[r] == -INFINITY ? 0 : sum[r] * Exp2(maximum[r] - largest);
    part += __shfl_xor_sync(0xffffffffu, part, 1);
    part += __shfl_xor_sync(0xffffffffu, part, 2);
    const int head = own + 8 * r;
    const int heads = args.queries * args.group;
    if (lane % 4 == 0 && head < heads) {
      logs[int64_t{row} * heads + head] = part > 0 ? largest + log2f(part) : INFINITY;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    WeightsKernel(const WindowScoreArgs args, float scale, const float* __restrict__ logs,
                  float* __restrict__ raw) {
  __shared__ __align__(128) unsigned char shared[2 * kTileBytes];
  extern __shared__ float weights[];  // [query head][key]
  const auto queries = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t keys = queries + kTileBytes;
  const int row = static_cast<int>(blockIdx.y), begin = static_cast<int>(blockIdx.x) * kTile;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const Mask mask = MaskOf(args, row);
  if (begin >= mask.count) return;
  const int heads = args.queries * args.group;
  const int whole = kTile / args.group * args.group;  // whole groups of a tile
  LoadKeys(args, row, begin, keys);
  float total = 0;
  for (int first = 0; first < heads; first += whole) {
    LoadQueries(args, row, first, queries);
    WaitForAll();
    float s[kTile / 8][4];
    Products(s, queries, keys);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int in_tile = warp * 16 + lane / 4 + 8 * r;
      const int head = min(first + in_tile, heads - 1);
      const float log = logs[int64_t{row} * heads + head];
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
        for (int c = 0; c < 2; ++c) {
          const int key = n * 8 + lane % 4 * 2 + c;
          weights[in_tile * kPadded + key] =
              Exp2(mask(s[n][2 * r + c] * scale, head, begin + key) - log);
        }
      }
    }
    __syncthreads();
    const int used = min(whole, heads - first);
    for (int head = 0; thread < kTile && head < used; head += args.group) {
      float largest = 0;
      for (int g = 0; g < args.group; ++g) {
        largest = fmaxf(largest, weights[(head + g) * kPadded + thread]);
      }
      total += largest;
    }
    __syncthreads();
  }
  if (thread < kTile && begin + thread < mask.count) {
    raw[int64_t{row} * args.stride + begin + thread] = total;
  }
}

__global__ void PoolKernel(const WindowScoreArgs args, const float* __restrict__ raw) {
  const int row = static_cast<int>(blockIdx.y);
  const int key = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int count = args.counts[row];
  if (key >= args.scored_stride) return;
  float& score = args.scores[int64_t{row} * args.scored_stride + key];
  if (args.scored != nullptr && key >= args.scored[row]) {
    score = INFINITY;
    return;
  }
  if (key >= count) return;
  const int reach = args.smooth / 2;
  float largest = 0;
  for (int i = max(0, key - reach); i <= min(count - 1, key + reach); ++i) {
    largest = fmaxf(largest, raw[int64_t{row} * args.stride + i]);
  }
  score = largest;
}

}  // namespace

int64_t WindowScoreWorkspace(const WindowScoreArgs& args) {
  return int64_t{args.rows} * (int64_t{args.queries} * args.group + args.stride);
}

void WindowScore(const WindowScoreArgs& given, cudaStream_t stream) {
  WindowScoreArgs args = given;
  if (args.query_stride == 0) args.query_stride = int64_t{args.queries} * args.group * kHeadDim;
  if (args.scored_stride == 0) args.scored_stride = args.stride;
  if (args.cache.head_dim != kHeadDim || args.group < 1 || args.group > kTile) {
    throw Error("heads of " + std::to_string(args.cache.head_dim) + " in groups of " +
                    std::to_string(args.group),
                "WindowScore", "use a head dimension of 128 and groups of up to 64");
  }
  if (args.rows <= 0 || args.queries <= 0 || args.stride <= 0) return;
  const float scale = args.scale * 1.44269504f;
  const int heads = args.queries * args.group;
  const auto rows = static_cast<unsigned>(args.rows);
  float* logs = args.workspace;
  float* raw = logs + int64_t{args.rows} * heads;
  const auto tiles = [](int count) { return static_cast<unsigned>((count + kTile - 1) / kTile); };
  SumsKernel<<<dim3(tiles(heads), rows), kThreads, 0, stream>>>(args, scale, logs);
  CheckLaunch("WindowScore");
  constexpr int kBytes = kTile * kPadded * 4;
  Check(cudaFuncSetAttribute(WeightsKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
        "cudaFuncSetAttribute");
  WeightsKernel<<<dim3(tiles(args.stride), rows), kThreads, kBytes, stream>>>(args, scale, logs,
                                                                              raw);
  CheckLaunch("WindowScore");
  const auto blocks = static_cast<unsigned>((args.scored_stride + 127) / 128);
  PoolKernel<<<dim3(blocks, rows), 128, 0, stream>>>(args, raw);
  CheckLaunch("WindowScore");
}

}  // namespace stallcast::kernels
