// Units of different sizes under a budget of tokens: one block a row pools the scores, finds the
// score at which the budget ends by weighing ever finer bins, and lists the tokens. What a block
// needs again and again is in shared memory where it fits.
#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <string>

#include "kernels/device/block_scan.cuh"
#include "kernels/runtime/cuda_error.h"
#include "kernels/selection/clusters.h"
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
constexpr int kListed = 2048;  // chosen units whose places are kept in shared memory
constexpr float kNever = -1e30f;

// Orders like the float; that of no score at all is 0.
__device__ uint32_t KeyOf(float score) {
  const uint32_t bits = __float_as_uint(score);
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

// Part of a softmax; kNever, which stands for no logit, vanishes once a logit joins it.
struct Partial {
  float max, sum;
};

struct Shared {
  Partial of_warp[kMaxGroup][kWarps];
  float log_sum[kMaxGroup];
  uint32_t bins[kBins];
  uint32_t scratch[3][32];
  uint32_t highest, lowest, bin, left;
  int32_t ids[kListed], starts[kListed];
};

// Heads that a thread reads at once.
constexpr int kHeadsAtOnce = 4;

// Log of the sum of exp(scale * score) of each head, over the units that have tokens.
__device__ void LogSums(const SelectUnitsArgs& args, const float* scores, const int32_t* offsets,
                        int units, Shared& shared) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  for (int first = 0; first < args.group; first += kHeadsAtOnce) {
    Partial partial[kHeadsAtOnce];
#pragma unroll
    for (Partial& p : partial) p = {kNever, 0};
#pragma unroll 2
    for (int u = static_cast<int>(threadIdx.x); u < units; u += kThreads) {
      const bool holds = __ldg(offsets + u) < __ldg(offsets + u + 1);
#pragma unroll
      for (int i = 0; i < kHeadsAtOnce; ++i) {
        // Heads past the last repeat it; what they give is not used.
        const int h = min(first + i, args.group - 1);
        const float score = __ldg(scores + int64_t{h} * args.units + u);
        const float logit = holds ? score * args.scale : kNever;
        const float max = fmaxf(partial[i].max, logit);
        partial[i].sum = partial[i].sum * __expf(partial[i].max - max) + __expf(logit - max);
        partial[i].max = max;
      }
    }
    float max[kHeadsAtOnce], sum[kHeadsAtOnce];
#pragma unroll
    for (int i = 0; i < kHeadsAtOnce; ++i) max[i] = partial[i].max;
#pragma unroll
    for (int o = 16; o > 0; o /= 2) {
#pragma unroll
      for (float& m : max) m = fmaxf(m, __shfl_xor_sync(kAll, m, o));
    }
#pragma unroll
    for (int i = 0; i < kHeadsAtOnce; ++i) {
      sum[i] = partial[i].sum * __expf(partial[i].max - max[i]);
    }
#pragma unroll
    for (int o = 16; o > 0; o /= 2) {
#pragma unroll
      for (float& s : sum) s += __shfl_xor_sync(kAll, s, o);
    }
#pragma unroll
    for (int i = 0; i < kHeadsAtOnce; ++i) {
      if (lane == i && first + i < args.group) shared.of_warp[first + i][warp] = {max[i], sum[i]};
    }
  }
  __pipeline_wait_prior(0);  // for the offsets' copy
  __syncthreads();
  if (warp < args.group) {
    const Partial partial = shared.of_warp[warp][lane];
    float max = partial.max;
#pragma unroll
    for (int o = 16; o > 0; o /= 2) max = fmaxf(max, __shfl_xor_sync(kAll, max, o));
    float sum = partial.sum * __expf(partial.max - max);
#pragma unroll
    for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(kAll, sum, o);
    if (lane == 0) shared.log_sum[warp] = max + logf(sum);
  }
  __syncthreads();
}

// The key at which the budget ends, and in shared.left the tokens left for the units that have it.
// Needs more tokens than the budget. Bins divide the range that the keys span.
__device__ uint32_t Threshold(const SelectUnitsArgs& args, const uint32_t* keys,
                              const int32_t* offsets, int units, Shared& shared) {
  const uint32_t span = shared.highest ^ shared.lowest;
  int shift = 32 - __clz(static_cast<int>(span));  // bits still to find
  uint32_t prefix = shift < 32 ? shared.highest >> shift : 0;
  uint32_t left = static_cast<uint32_t>(args.budget);
  if (shift == 0) {
    if (threadIdx.x == 0) shared.left = left;
    __syncthreads();
  }
  while (shift > 0) {
    const int bits = min(shift, kBinBits);
    shift -= bits;
    shared.bins[threadIdx.x] = shared.bins[threadIdx.x + kThreads] = 0;
    __syncthreads();
    for (int u = static_cast<int>(threadIdx.x); u < units; u += kThreads) {
      const uint32_t key = keys[u];
      if ((static_cast<uint64_t>(key) >> (shift + bits)) != prefix) continue;
      const auto size = static_cast<uint32_t>(offsets[u + 1] - offsets[u]);
      if (size > 0) atomicAdd(&shared.bins[key >> shift & ((1u << bits) - 1)], size);
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
  }
  return prefix;
}

template <bool kInShared>
__global__ void __launch_bounds__(kThreads)
    SelectUnitsKernel(const SelectUnitsArgs args, uint32_t* all_keys, int32_t* all_starts) {
  __shared__ Shared shared;
  extern __shared__ uint32_t here[];  // keys and offsets
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x);
  const float* scores = args.scores + int64_t{row} * args.group * args.units;
  const int64_t list = row / (args.heads / args.kv_heads);
  const int32_t* offsets = args.lists.offsets + list * args.lists.offsets_stride;
  const int units = args.units_of == nullptr ? args.units : min(args.units_of[list], args.units);
  if (units <= 0) {
    if (thread == 0) args.unit_count[row] = args.token_count[row] = 0;
    return;
  }
  uint32_t* keys = all_keys + int64_t{row} * args.units;
  const int32_t* far = offsets;
  if (kInShared) {
    keys = here;
    auto* copy = reinterpret_cast<int32_t*>(here + args.units);
    for (int u = thread; u <= units; u += kThreads) {
      __pipeline_memcpy_async(copy + u, offsets + u, sizeof(int32_t));
    }
    __pipeline_commit();
    offsets = copy;
  }
  if (thread == 0) {
    shared.highest = 0;
    shared.lowest = 0xffffffffu;
  }
  // Reads the offsets from where they are: what it reads is on its way together with their copy.
  LogSums(args, scores, far, units, shared);
  uint32_t highest = 0, lowest = 0xffffffffu;
  for (int u = thread; u < units; u += kThreads) {
    if (offsets[u] == offsets[u + 1]) {
      keys[u] = 0;
      continue;
    }
    float most = kNever, sum = 0;
#pragma unroll 4
    for (int h = 0; h < args.group; ++h) {
      most =
          fmaxf(most, __ldg(scores + int64_t{h} * args.units + u) * args.scale - shared.log_sum[h]);
    }
#pragma unroll 4
    for (int h = 0; h < args.group; ++h) {
      sum += __expf(__ldg(scores + int64_t{h} * args.units + u) * args.scale - shared.log_sum[h] -
                    most);
    }
    const uint32_t key = KeyOf(most + logf(sum));
    keys[u] = key;
    highest = max(highest, key);
    lowest = min(lowest, key);
  }
  highest = __reduce_max_sync(kAll, highest);
  lowest = __reduce_min_sync(kAll, lowest);
  if (thread % 32 == 0) {
    atomicMax(&shared.highest, highest);
    atomicMin(&shared.lowest, lowest);
  }
  __syncthreads();
  const auto all = static_cast<uint32_t>(offsets[units] - offsets[0]);
  const bool fits = all <= static_cast<uint32_t>(args.budget);
  const uint32_t threshold = fits ? 0 : Threshold(args, keys, offsets, units, shared);
  const uint32_t left = fits ? 0 : shared.left;

  // Each thread has a run of units, so that one sum over the threads before gives its places.
  const int run = (units + kThreads - 1) / kThreads;
  const int begin = min(thread * run, units), end = min(begin + run, units);
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
  uint32_t tokens = 0, chosen = 0, ties = tied_before;
  for (int u = begin; u < end; ++u) {
    const uint32_t take = taken(u, ties);
    tokens += take;
    chosen += take > 0 ? 1 : 0;
  }
  uint32_t all_tokens, all_units;
  uint32_t at = BlockExclusiveSum(tokens, shared.scratch[1], all_tokens);
  uint32_t unit_at = BlockExclusiveSum(chosen, shared.scratch[2], all_units);
  int32_t* ids = args.unit_ids + int64_t{row} * args.budget;
  int32_t* starts = all_starts + int64_t{row} * args.budget;
  ties = tied_before;
  for (int u = begin; u < end; ++u) {
    const uint32_t take = taken(u, ties);
    if (take == 0) continue;
    if (unit_at < kListed) {
      shared.ids[unit_at] = u;
      shared.starts[unit_at] = static_cast<int32_t>(at);
    }
    ids[unit_at] = u;
    starts[unit_at++] = static_cast<int32_t>(at);
    at += take;
  }
  if (thread == 0) {
    args.unit_count[row] = static_cast<int32_t>(all_units);
    args.token_count[row] = static_cast<int32_t>(all_tokens);
  }
  __syncthreads();

  // Half a warp a unit.
  const int sequence = row / args.heads;
  const int head = row % args.heads * args.kv_heads / args.heads;
  const int64_t base = sequence * args.pool_tokens;
  const int32_t* members = args.lists.members + list * args.lists.members_stride;
  int64_t* source = args.source + int64_t{row} * args.budget;
  const auto count = static_cast<int>(all_units);
  const auto start_of = [&](int i) {
    return i >= count ? static_cast<int>(all_tokens) : i < kListed ? shared.starts[i] : starts[i];
  };
  for (int i = thread / 16; i < count; i += kThreads / 16) {
    const int start = start_of(i), stop = start_of(i + 1);
    const int32_t* of_unit = members + offsets[i < kListed ? shared.ids[i] : ids[i]];
    for (int j = thread % 16; j < stop - start; j += 16) {
      source[start + j] = (base + __ldg(of_unit + j)) * args.kv_heads + head;
    }
  }
}

int64_t SharedBytes(const SelectUnitsArgs& args) {
  return (int64_t{2} * args.units + 1) * int64_t{sizeof(uint32_t)};
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
  const auto rows = static_cast<unsigned>(args.rows);
  // 99 KiB, less what is declared above, is what every device that we build for has.
  constexpr int kMostShared = 64 * 1024;
  if (SharedBytes(args) <= kMostShared) {
    Check(cudaFuncSetAttribute(SelectUnitsKernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               kMostShared),
          "cudaFuncSetAttribute");
    SelectUnitsKernel<true>
        <<<rows, kThreads, static_cast<size_t>(SharedBytes(args)), stream>>>(args, keys, starts);
  } else {
    SelectUnitsKernel<false><<<rows, kThreads, 0, stream>>>(args, keys, starts);
  }
  CheckLaunch("SelectUnits");
}

}  // namespace stallcast::kernels
