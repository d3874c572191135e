// Exact top-k. A block keeps a segment's scores in registers, finds the k-th largest by counting in
// ever finer bins, and writes what ranks above it in order. More candidates than a block holds are
// reduced in rounds: the k best of all are among the k best of each segment, and as segments and
// what they keep are in order, ties still go to the smaller id.
#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "kernels/device/block_scan.cuh"
#include "kernels/runtime/cuda_error.h"
#include "kernels/selection/selection.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kSegment = 16384;      // scores that a block holds at most
constexpr int kMaxK = kSegment / 2;  // so that a round at least halves
constexpr int kMaxCandidates = 1 << 20;

// Orders like the float.
__device__ uint32_t KeyOf(float score) {
  const uint32_t bits = __float_as_uint(score + 0.0f);  // both zeros are one
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

struct Round {
  const float* scores;  // [rows][candidates]
  const int32_t* ids;   // likewise; null: a candidate's id is its place
  int candidates;
  int k;
  int kept;             // of a row, by all segments: k each, or all of a shorter one; and `last`
  float* kept_scores;   // [rows][kept]; null in the last round
  int32_t* kept_ids;    // likewise
  const int32_t* last;  // [rows], ends a row's ids in the last round; null: nothing does
  const int32_t* k_of;  // [rows], of at most k each; null: k
  uint32_t flip;        // turns the order of keys round where the lowest are wanted
};

// Of a block of so many threads.
template <int kThreads>
struct Shared {
  static constexpr int kBins = 2 * kThreads;
  uint32_t bins[kBins];
  uint32_t scratch[32];
  uint32_t low[kThreads / 32], high[kThreads / 32];
  uint32_t bin, rank, in_bin;
};

// Which keys are taken: those above `key`, and the first `equal` of those that equal it.
struct Threshold {
  uint32_t key, equal;
};

// The threshold of the k largest of the keys, of which a thread holds `valid`.
template <int kThreads, int kItems>
__device__ Threshold FindThreshold(const uint32_t (&keys)[kItems], int valid, uint32_t k,
                                   Shared<kThreads>& shared) {
  constexpr int kBins = Shared<kThreads>::kBins;
  constexpr int kBinBits = std::bit_width(static_cast<unsigned>(kBins)) - 1;
  static_assert(kBins == 1 << kBinBits);
  constexpr int kWarps = kThreads / 32;
  const uint32_t thread = threadIdx.x;
  uint32_t low = 0xffffffffu, high = 0;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    if (i >= valid) continue;
    low = min(low, keys[i]);
    high = max(high, keys[i]);
  }
  low = __reduce_min_sync(kAll, low);
  high = __reduce_max_sync(kAll, high);
  if (thread % 32 == 0) {
    shared.low[thread / 32] = low;
    shared.high[thread / 32] = high;
  }
  shared.bins[thread] = 0;
  shared.bins[thread + kThreads] = 0;
  __syncthreads();
  low = __reduce_min_sync(kAll, shared.low[thread % kWarps]);
  high = __reduce_max_sync(kAll, shared.high[thread % kWarps]);

  // Bins cover just the keys there are, so that scores that lie close together spread over them.
  int shift = max(0, 32 - __clz(static_cast<int>(high - low)) - kBinBits);
  uint32_t bins = kBins;
  while (true) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const uint32_t bin = (keys[i] - low) >> shift;
      const bool counted = i < valid && keys[i] >= low && bin < bins;
      // Where a whole warp falls into one bin, one addition instead of 32 that wait for each other.
      int together;
      __match_all_sync(kAll, counted ? bin : kBins, &together);
      if (counted && (!together || thread % 32 == 0)) {
        atomicAdd(shared.bins + bin, together ? 32u : 1u);
      }
    }
    __syncthreads();
    // From the largest bin down, two a thread.
    const uint32_t upper = kBins - 1 - 2 * thread;
    const uint32_t in_upper = shared.bins[upper];
    const uint32_t in_lower = shared.bins[upper - 1];
    shared.bins[upper] = shared.bins[upper - 1] = 0;
    uint32_t total;
    const uint32_t above = BlockExclusiveSum(in_upper + in_lower, shared.scratch, total);
    if (above < k && k <= above + in_upper + in_lower) {
      const bool in_first = k <= above + in_upper;
      shared.bin = in_first ? upper : upper - 1;
      shared.in_bin = in_first ? in_upper : in_lower;
      shared.rank = k - above - (in_first ? 0 : in_upper);
    }
    __syncthreads();
    low += shared.bin << shift;
    k = shared.rank;
    if (shift == 0) return {low, k};
    // All of the bin: everything not below it is taken.
    if (k == shared.in_bin) return {low, kSegment};
    const int finer = max(0, shift - kBinBits);
    bins = 1u << (shift - finer);
    shift = finer;
  }
}

// The first `valid` keys, the others zero.
template <int kItems>
__device__ void LoadKeys(const float* scores, int valid, uint32_t flip, uint32_t (&keys)[kItems]) {
  if (valid == kItems && reinterpret_cast<uintptr_t>(scores) % sizeof(float4) == 0) {
#pragma unroll
    for (int i = 0; i < kItems; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(scores + i);
      keys[i] = KeyOf(four.x) ^ flip;
      keys[i + 1] = KeyOf(four.y) ^ flip;
      keys[i + 2] = KeyOf(four.z) ^ flip;
      keys[i + 3] = KeyOf(four.w) ^ flip;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kItems; ++i) keys[i] = i < valid ? KeyOf(scores[i]) ^ flip : 0;
  }
}

template <int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads) TopKKernel(const Round round) {
  __shared__ Shared<kThreads> shared;
  const int row = static_cast<int>(blockIdx.y);
  if (round.last != nullptr && threadIdx.x == 0) {
    round.kept_ids[int64_t{row} * round.kept + round.k] = round.last[row];
  }
  const int begin = static_cast<int>(blockIdx.x) * kSegment;
  const int count = min(round.candidates - begin, kSegment);
  const int places = min(round.k, count);  // for what the segment keeps
  const int k = round.k_of == nullptr ? places : min(round.k_of[row], places);
  const int64_t first_place = int64_t{row} * round.kept + int64_t{blockIdx.x} * round.k;
  if (round.kept_scores != nullptr) {
    // Places left over hold what no later round takes.
    const auto thread = static_cast<int>(threadIdx.x);
    for (int i = k + thread; i < places; i += kThreads) {
      round.kept_scores[first_place + i] = round.flip != 0 ? INFINITY : -INFINITY;
    }
  }
  if (k == 0) return;
  const int first = static_cast<int>(threadIdx.x) * kItems;
  const int valid = max(0, min(kItems, count - first));
  const int64_t at = int64_t{row} * round.candidates + begin + first;
  uint32_t keys[kItems];
  LoadKeys(round.scores + at, valid, round.flip, keys);

  const Threshold threshold = FindThreshold(keys, valid, static_cast<uint32_t>(k), shared);

  // Taken before this thread: two counts in one sum, each at most kSegment.
  uint32_t counts = 0;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    if (i >= valid) continue;
    counts += (keys[i] > threshold.key ? 1u << 16 : 0u) + (keys[i] == threshold.key ? 1u : 0u);
  }
  uint32_t total;
  const uint32_t before = BlockExclusiveSum(counts, shared.scratch, total);
  uint32_t equal = before & 0xffffu;
  int64_t to = first_place + (before >> 16) + min(equal, threshold.equal);
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    if (i >= valid || keys[i] < threshold.key) continue;
    if (keys[i] == threshold.key && equal++ >= threshold.equal) continue;
    round.kept_ids[to] = round.ids != nullptr ? round.ids[at + i] : begin + first + i;
    if (round.kept_scores != nullptr) round.kept_scores[to] = round.scores[at + i];
    ++to;
  }
}

struct Kernel {
  void (*function)(Round);
  int threads;
};
// Blocks of up to 4,096 candidates find room beside those of SkinnyGemm(), which leave 24,576
// registers of a multiprocessor: what chooses for a recall need not wait for what a decoder
// computes meanwhile.
Kernel KernelFor(int candidates) {
  if (candidates <= 4 * 512) return {TopKKernel<512, 4>, 512};
  if (candidates <= 8 * 512) return {TopKKernel<512, 8>, 512};
  if (candidates <= 8 * 1024) return {TopKKernel<1024, 8>, 1024};
  return {TopKKernel<1024, 16>, 1024};
}

int Segments(int candidates) { return std::max(1, (candidates + kSegment - 1) / kSegment); }

// Of a row, after a round over more than one segment.
int Kept(int candidates, int k) {
  const int segments = Segments(candidates);
  return (segments - 1) * k + std::min(k, candidates - (segments - 1) * kSegment);
}

}  // namespace

int64_t TopKWorkspace(int32_t rows, int32_t candidates, int32_t k) {
  // A score and an id for what the first round keeps, and for the second, which keeps less.
  if (candidates <= kSegment) return 0;
  return int64_t{2} * rows * Kept(candidates, k) *
         static_cast<int64_t>(sizeof(float) + sizeof(int32_t));
}

namespace {

// All but the first arguments as in Round.
void Choose(const float* scores, int32_t rows, int32_t candidates, int32_t k, int32_t* ids,
            void* workspace, cudaStream_t stream, const int32_t* last, const int32_t* k_of,
            uint32_t flip) {
  if (k < 0 || k > candidates || candidates > kMaxCandidates ||
      (candidates > kSegment && k > kMaxK)) {
    throw Error("the " + std::to_string(k) + " best of " + std::to_string(candidates), "TopK",
                "choose at most " + std::to_string(kMaxK) +
                    ", and no more than there are, of at most " + std::to_string(kMaxCandidates));
  }
  if (rows <= 0 || (k == 0 && last == nullptr)) return;
  if (k == 0) candidates = 0;  // none is looked at
  Round round{scores, nullptr, candidates, k, 0, nullptr, nullptr, nullptr, k_of, flip};
  auto* free = static_cast<float*>(workspace);
  float* busy = free + 2 * int64_t{rows} * (candidates > kSegment ? Kept(candidates, k) : 0);
  while (true) {
    const int segments = Segments(round.candidates);
    const bool ends = segments == 1;
    if (ends) {
      round.kept = k + (last != nullptr ? 1 : 0);
      round.kept_ids = ids;
      round.last = last;
    } else {
      round.kept = Kept(round.candidates, k);
      round.kept_scores = free;
      round.kept_ids = reinterpret_cast<int32_t*>(free + int64_t{rows} * round.kept);
    }
    const dim3 grid(static_cast<unsigned>(segments), static_cast<unsigned>(rows));
    const auto [kernel, threads] = KernelFor(round.candidates);
    kernel<<<grid, threads, 0, stream>>>(round);
    CheckLaunch("TopK");
    if (ends) return;
    round = {round.kept_scores, round.kept_ids, round.kept, k,    0,
             nullptr,           nullptr,        nullptr,    k_of, flip};
    std::swap(free, busy);
  }
}

}  // namespace

void TopK(const float* scores, int32_t rows, int32_t candidates, int32_t k, int32_t* ids,
          void* workspace, cudaStream_t stream, const int32_t* last) {
  Choose(scores, rows, candidates, k, ids, workspace, stream, last, nullptr, 0);
}

void LowestK(const float* scores, int32_t rows, int32_t candidates, int32_t k, const int32_t* k_of,
             int32_t* ids, void* workspace, cudaStream_t stream) {
  Choose(scores, rows, candidates, k, ids, workspace, stream, nullptr, k_of, 0xffffffffU);
}

}  // namespace stallcast::kernels
