// Units of different sizes under a budget of tokens: one block a row pools the scores, finds the
// score at which the budget ends by weighing ever finer bins, and lists the tokens.
#include <algorithm>
#include <string>

#include "kernels/clusters.h"
#include "kernels/cuda_error.h"
#include "kernels/device/block_scan.cuh"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kBinBits = 11;
constexpr int kBins = 1 << kBinBits;
static_assert(kBins == 2 * kThreads);
constexpr int kMaxGroup = 16;
constexpr float kNever = -1e30f;

// Orders like the float; that of no score at all is 0.
__device__ uint32_t KeyOf(float score) {
  const uint32_t bits = __float_as_uint(score);
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

struct Shared {
  float max[kWarps], sum[kWarps];
  float log_sum[kMaxGroup];
  uint32_t bins[kBins];
  uint32_t scratch[3][32];
  uint32_t bin, left;
};

// Log of the sum of exp(scale * score) of each head, over the units that have tokens.
__device__ void LogSums(const SelectUnitsArgs& args, const float* scores, const int32_t* offsets,
                        Shared& shared) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int warps = kWarps / args.group;  // of a head
  const int head = warp / warps;
  float max = kNever, sum = 0;
  if (head < args.group) {
    const float* row = scores + int64_t{head} * args.units;
    for (int u = warp % warps * 32 + lane; u < args.units; u += warps * 32) {
      if (offsets[u] == offsets[u + 1]) continue;
      const float logit = row[u] * args.scale;
      const float more = fmaxf(max, logit);
      sum = sum * __expf(max - more) + __expf(logit - more);
      max = more;
    }
  }
  float most = max;
#pragma unroll
  for (int o = 16; o > 0; o /= 2) most = fmaxf(most, __shfl_xor_sync(kAll, most, o));
  sum *= __expf(max - most);
#pragma unroll
  for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(kAll, sum, o);
  if (lane == 0) {
    shared.max[warp] = most;
    shared.sum[warp] = sum;
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < args.group) {
    const int first = static_cast<int>(threadIdx.x) * warps;
    float all_max = kNever, all_sum = 0;
    for (int w = first; w < first + warps; ++w) all_max = fmaxf(all_max, shared.max[w]);
    for (int w = first; w < first + warps; ++w) {
      all_sum += shared.sum[w] * __expf(shared.max[w] - all_max);
    }
    shared.log_sum[threadIdx.x] = all_max + logf(all_sum);
  }
  __syncthreads();
}

// The key at which the budget ends, and in shared.left the tokens left for the units that have it.
// Needs more tokens than the budget.
__device__ uint32_t Threshold(const SelectUnitsArgs& args, const uint32_t* keys,
                              const int32_t* offsets, Shared& shared) {
  uint32_t prefix = 0, left = static_cast<uint32_t>(args.budget);
  for (int shift = 32 - kBinBits, bits = kBinBits;; shift -= kBinBits) {
    bits = shift < 0 ? kBinBits + shift : kBinBits;
    shift = max(shift, 0);
    const uint32_t mask = (1u << bits) - 1;
    shared.bins[threadIdx.x] = shared.bins[threadIdx.x + kThreads] = 0;
    __syncthreads();
    for (int u = static_cast<int>(threadIdx.x); u < args.units; u += kThreads) {
      const uint32_t key = keys[u];
      if ((static_cast<uint64_t>(key) >> (shift + bits)) != prefix) continue;
      atomicAdd(&shared.bins[key >> shift & mask], static_cast<uint32_t>(offsets[u + 1] - offsets[u]));
    }
    __syncthreads();
    // From the highest bin down: thread i weighs bins 2 i and 2 i + 1 from the top.
    const uint32_t top = static_cast<uint32_t>(kBins - 1) - 2 * threadIdx.x;
    const uint32_t high = shared.bins[top], low = shared.bins[top - 1];
    uint32_t total;
    const uint32_t before = BlockExclusiveSum(high + low, shared.scratch[0], total);
    if (before < left && left <= before + high) {
      shared.bin = top;
      shared.left = left - before;
    } else if (before + high < left && left <= before + high + low) {
      shared.bin = top - 1;
      shared.left = left - before - high;
    }
    __syncthreads();
    prefix = prefix << bits | shared.bin;
    left = shared.left;
    if (shift == 0) return prefix;
  }
}

__global__ void __launch_bounds__(kThreads)
    SelectUnitsKernel(const SelectUnitsArgs args, uint32_t* all_keys, int32_t* all_starts) {
  __shared__ Shared shared;
  const int row = static_cast<int>(blockIdx.x);
  const float* scores = args.scores + int64_t{row} * args.group * args.units;
  const int64_t list = row / (args.heads / args.kv_heads);
  const int32_t* offsets = args.lists.offsets + list * args.lists.offsets_stride;
  uint32_t* keys = all_keys + int64_t{row} * args.units;
  LogSums(args, scores, offsets, shared);
  for (int u = static_cast<int>(threadIdx.x); u < args.units; u += kThreads) {
    float most = kNever, sum = 0;
    for (int h = 0; h < args.group; ++h) {
      most = fmaxf(most, scores[int64_t{h} * args.units + u] * args.scale - shared.log_sum[h]);
    }
    for (int h = 0; h < args.group; ++h) {
      sum += __expf(scores[int64_t{h} * args.units + u] * args.scale - shared.log_sum[h] - most);
    }
    keys[u] = offsets[u] == offsets[u + 1] ? 0 : KeyOf(most + logf(sum));
  }
  __syncthreads();
  const auto all = static_cast<uint32_t>(offsets[args.units] - offsets[0]);
  const bool fits = all <= static_cast<uint32_t>(args.budget);
  const uint32_t threshold = fits ? 0 : Threshold(args, keys, offsets, shared);
  const uint32_t left = fits ? 0 : shared.left;

  // Each thread has a run of units, so that one sum over the threads before gives its places.
  const int run = (args.units + kThreads - 1) / kThreads;
  const int begin = min(static_cast<int>(threadIdx.x) * run, args.units);
  const int end = min(begin + run, args.units);
  uint32_t tied = 0, total;
  for (int u = begin; u < end; ++u) {
    if (keys[u] == threshold) tied += static_cast<uint32_t>(offsets[u + 1] - offsets[u]);
  }
  const uint32_t tied_before = BlockExclusiveSum(tied, shared.scratch[0], total);
  const auto taken = [&](int u, uint32_t& ties) {
    const auto size = static_cast<uint32_t>(offsets[u + 1] - offsets[u]);
    if (keys[u] != threshold) return keys[u] > threshold ? size : 0u;
    const uint32_t take = ties < left ? min(size, left - ties) : 0u;
    ties += size;
    return take;
  };
  uint32_t tokens = 0, units = 0, ties = tied_before;
  for (int u = begin; u < end; ++u) {
    const uint32_t take = taken(u, ties);
    tokens += take;
    units += take > 0 ? 1 : 0;
  }
  uint32_t all_tokens, all_units;
  uint32_t at = BlockExclusiveSum(tokens, shared.scratch[1], all_tokens);
  uint32_t unit_at = BlockExclusiveSum(units, shared.scratch[2], all_units);
  int32_t* ids = args.unit_ids + int64_t{row} * args.budget;
  int32_t* starts = all_starts + int64_t{row} * args.budget;
  ties = tied_before;
  for (int u = begin; u < end; ++u) {
    const uint32_t take = taken(u, ties);
    if (take == 0) continue;
    ids[unit_at] = u;
    starts[unit_at++] = static_cast<int32_t>(at);
    at += take;
  }
  if (threadIdx.x == 0) {
    args.unit_count[row] = static_cast<int32_t>(all_units);
    args.token_count[row] = static_cast<int32_t>(all_tokens);
  }
  __syncthreads();

  const int sequence = row / args.heads;
  const int head = row % args.heads * args.kv_heads / args.heads;
  const int64_t base = sequence * args.pool_tokens;
  const int32_t* members = args.lists.members + list * args.lists.members_stride;
  int64_t* source = args.source + int64_t{row} * args.budget;
  for (int i = static_cast<int>(threadIdx.x / 32); i < static_cast<int>(all_units); i += kWarps) {
    const int start = starts[i];
    const int stop =
        i + 1 < static_cast<int>(all_units) ? starts[i + 1] : static_cast<int>(all_tokens);
    const int32_t* of_unit = members + offsets[ids[i]];
    for (int j = static_cast<int>(threadIdx.x % 32); j < stop - start; j += 32) {
      source[start + j] = (base + of_unit[j]) * args.kv_heads + head;
    }
  }
}

}  // namespace

int64_t SelectUnitsWorkspace(const SelectUnitsArgs& args) {
  return int64_t{args.rows} * (args.units + args.budget) * int64_t{sizeof(int32_t)};
}

void SelectUnits(const SelectUnitsArgs& args, void* workspace, cudaStream_t stream) {
  if (args.group < 1 || args.group > kMaxGroup) {
    throw Error("groups of " + std::to_string(args.group) + " query heads", "SelectUnits",
                "use a model with 1 to " + std::to_string(kMaxGroup) + " query heads a KV head");
  }
  if (args.kv_heads < 1 || args.heads % args.kv_heads != 0 || args.budget < 1) {
    throw Error("a budget of " + std::to_string(args.budget) + " tokens for " +
                    std::to_string(args.heads) + " heads of " + std::to_string(args.kv_heads),
                "SelectUnits", "give a budget and a multiple of the KV heads");
  }
  if (args.rows <= 0) return;
  auto* keys = static_cast<uint32_t*>(workspace);
  auto* starts = reinterpret_cast<int32_t*>(keys + int64_t{args.rows} * args.units);
  SelectUnitsKernel<<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(args, keys, starts);
  CheckLaunch("SelectUnits");
}

}  // namespace stallcast::kernels
