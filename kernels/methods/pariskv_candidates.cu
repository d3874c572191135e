// ParisKV, stage 1: sums of bonuses with histograms of parts, and the best by histogram. A part is
// what one block scores; with the histograms of all parts a block of the second kernel knows where
// its own part's candidates go, so that their order does not depend on the blocks' order.
#include <algorithm>
#include <string>

#include "kernels/device/block_scan.cuh"
#include "kernels/methods/pariskv.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 16 * kThreads;  // scores that a block of the second kernel takes at once
constexpr int kMostParts = 64;        // of a row
constexpr int kPartsAtOnce = 384;     // three CTAs on each of an H200's multiprocessors
constexpr int kFewestTokens = 2048;   // of a part
constexpr int kBins = 256;
constexpr int kScoreThreads = 512;
constexpr int kScoreTokens = 2;  // of a thread, in flight together
// Each table is kept 16 times, so that a lane shares its banks with one other.
constexpr int kCopies = 16;

/// About as many parts over all rows as the device scores at once; tokens of a part are a multiple
/// of 16.
int PartTokens(int rows, int tokens) {
  const int parts = std::clamp(kPartsAtOnce / rows, 1, kMostParts);
  return (std::max((tokens + parts - 1) / parts, kFewestTokens) + 15) / 16 * 16;
}
int Parts(int rows, int tokens) {
  const int part = PartTokens(rows, tokens);
  return (tokens + part - 1) / part;
}

template <int kParts>
struct Ids {
  uint32_t words[kParts / 4];
};

template <int kParts>
__device__ Ids<kParts> LoadIds(const uint8_t* from) {
  Ids<kParts> ids;
  if constexpr (kParts == 8) {
    const uint2 x = __ldcs(reinterpret_cast<const uint2*>(from));
    ids.words[0] = x.x, ids.words[1] = x.y;
  } else {
#pragma unroll
    for (int i = 0; i < kParts / 16; ++i) {
      const uint4 x = __ldcs(reinterpret_cast<const uint4*>(from) + i);
      ids.words[4 * i] = x.x, ids.words[4 * i + 1] = x.y;
      ids.words[4 * i + 2] = x.z, ids.words[4 * i + 3] = x.w;
    }
  }
  return ids;
}

template <int kParts, int kClusters>
__global__ void __launch_bounds__(kScoreThreads)
    CollisionScoresKernel(const uint8_t* __restrict__ table, const uint8_t* __restrict__ ids,
                          int capacity, int share, int tokens, int part_tokens,
                          uint8_t* __restrict__ scores, int stride,
                          int32_t* __restrict__ histograms) {
  constexpr int kWords = kParts * kClusters / 4;
  extern __shared__ __align__(16) uint32_t shared[];  // [word][copy], then bins
  uint32_t* bins = shared + kWords * kCopies;
  const int row = static_cast<int>(blockIdx.y);
  const int part = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const auto* words = reinterpret_cast<const uint32_t*>(table + int64_t{row} * kParts * kClusters);
  for (int i = thread; i < kWords * kCopies / 4; i += kScoreThreads) {
    const uint32_t word = words[i / (kCopies / 4)];
    reinterpret_cast<uint4*>(shared)[i] = make_uint4(word, word, word, word);
  }
  if (thread < kBins) bins[thread] = 0;
  __syncthreads();
  const auto* lane_table = reinterpret_cast<const uint8_t*>(shared + thread % kCopies);
  const uint8_t* row_ids = ids + int64_t{row / share} * capacity * kParts;
  uint8_t* row_scores = scores + int64_t{row} * stride;
  const int begin = part * part_tokens;
  const int end = min(tokens, begin + part_tokens);
  for (int first = begin + thread; first < end; first += kScoreThreads * kScoreTokens) {
    Ids<kParts> keys[kScoreTokens];
#pragma unroll
    for (int t = 0; t < kScoreTokens; ++t) {
      const int token = first + t * kScoreThreads;
      if (token < end) keys[t] = LoadIds<kParts>(row_ids + int64_t{token} * kParts);
    }
#pragma unroll
    for (int t = 0; t < kScoreTokens; ++t) {
      const int token = first + t * kScoreThreads;
      if (token >= end) break;
      uint32_t sum = 0;
#pragma unroll
      for (int b = 0; b < kParts; ++b) {
        const uint32_t id = keys[t].words[b / 4] >> (b % 4 * 8) & 0xff;
        // Byte id % 4 of word id / 4 of this lane's copy.
        sum += lane_table[b * kClusters * kCopies + (id >> 2) * (4 * kCopies) + (id & 3)];
      }
      row_scores[token] = static_cast<uint8_t>(sum);
      atomicAdd(bins + sum, 1);
    }
  }
  __syncthreads();
  if (thread < kBins) {
    histograms[(int64_t{row} * gridDim.x + part) * kBins + thread] =
        static_cast<int32_t>(bins[thread]);
  }
}

__global__ void __launch_bounds__(kThreads)
    BucketTopKKernel(const uint8_t* __restrict__ scores, int stride,
                     const int32_t* __restrict__ histograms, int tokens, int part_tokens, int k,
                     int32_t* __restrict__ candidates) {
  static_assert(kThreads == kBins);
  __shared__ uint32_t scratch[32];
  __shared__ int last_bin, ties, above_before, equal_before;
  const int row = static_cast<int>(blockIdx.y);
  const int part = static_cast<int>(blockIdx.x);
  const int parts = static_cast<int>(gridDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  // A thread has a bin, from the best down: how many keys it has in all parts and in those before.
  const int bin = kBins - 1 - thread;
  const int32_t* histogram = histograms + int64_t{row} * parts * kBins + bin;
  int all = 0, before = 0;
#pragma unroll 8
  for (int p = 0; p < parts; ++p) {
    const int in_part = histogram[p * kBins];
    all += in_part;
    before += p < part ? in_part : 0;
  }
  uint32_t total;
  const auto better =
      static_cast<int>(BlockExclusiveSum(static_cast<uint32_t>(all), scratch, total));
  if (better < k && k <= better + all) {
    last_bin = bin;
    ties = k - better;
    equal_before = before;
  }
  __syncthreads();
  const uint32_t before_better =
      BlockExclusiveSum(static_cast<uint32_t>(bin > last_bin ? before : 0), scratch, total);
  if (thread == kThreads - 1) {
    above_before = static_cast<int>(before_better) + (bin > last_bin ? before : 0);
  }
  __syncthreads();

  const auto last = static_cast<uint32_t>(last_bin);
  const auto cut = static_cast<uint32_t>(ties);
  auto above = static_cast<uint32_t>(above_before);
  auto equal = static_cast<uint32_t>(equal_before);
  const uint8_t* row_scores = scores + int64_t{row} * stride;
  int32_t* to = candidates + int64_t{row} * k;
  const int end = min(tokens, (part + 1) * part_tokens);
  for (int tile = part * part_tokens; tile < end; tile += kTile) {
    const int first = tile + thread * 16;
    const int valid = max(0, min(16, end - first));
    uint32_t words[4] = {};
    if (valid > 0) {
      const uint4 x = *reinterpret_cast<const uint4*>(row_scores + first);
      words[0] = x.x, words[1] = x.y, words[2] = x.z, words[3] = x.w;
    }
    uint32_t taken = 0, tied = 0;  // a bit a score
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const uint32_t score = words[i / 4] >> (i % 4 * 8) & 0xff;
      taken |= score > last && i < valid ? 1u << i : 0;
      tied |= score == last && i < valid ? 1u << i : 0;
    }
    uint32_t in_tile;
    const uint32_t counts = (__popc(taken) << 16) + __popc(tied);
    const uint32_t earlier = BlockExclusiveSum(counts, scratch, in_tile);
    const uint32_t above_here = above + (earlier >> 16);
    const uint32_t equal_here = equal + (earlier & 0xffffu);
    // Of those that tie, the first ones are taken until the cut.
    const uint32_t free = cut > equal_here ? cut - equal_here : 0;
    for (uint32_t i = __popc(tied); i > free; --i) tied &= ~(0x80000000u >> __clz(tied));
    uint32_t place = above_here + min(equal_here, cut);
    for (uint32_t bits = taken | tied; bits != 0; bits &= bits - 1) {
      to[place++] = first + __ffs(static_cast<int>(bits)) - 1;
    }
    above += in_tile >> 16;
    equal += in_tile & 0xffffu;
    __syncthreads();  // scratch is used again
  }
}

}  // namespace

int32_t ScoreStride(int32_t tokens) { return (tokens + 15) / 16 * 16; }

int64_t HistogramSize(int32_t rows, int32_t tokens) {
  return rows <= 0 || tokens <= 0 ? 0 : int64_t{rows} * Parts(rows, tokens) * kBins;
}

void CollisionScores(const CodeTables& tables, const uint8_t* table, const KeyIndex& index,
                     int32_t rows, int32_t share, int32_t tokens, uint8_t* scores,
                     int32_t* histograms, cudaStream_t stream) {
  if (tokens > index.capacity) {
    throw Error(std::to_string(tokens) + " keys of an index for " + std::to_string(index.capacity),
                "CollisionScores", "score what was encoded");
  }
  if (rows <= 0 || tokens <= 0) return;
  const dim3 grid(static_cast<unsigned>(Parts(rows, tokens)), static_cast<unsigned>(rows));
  const int sub = tables.head_dim / tables.subspaces;
  const auto kernel = tables.subspaces == 32  ? CollisionScoresKernel<32, 16>
                      : tables.subspaces == 8 ? CollisionScoresKernel<8, 256>
                      : sub == 8              ? CollisionScoresKernel<16, 256>
                                              : CollisionScoresKernel<16, 16>;
  const int bytes = tables.subspaces * (1 << sub) * kCopies + kBins * 4;
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "cudaFuncSetAttribute");
  kernel<<<grid, kScoreThreads, static_cast<size_t>(bytes), stream>>>(
      table, index.ids, index.capacity, share, tokens, PartTokens(rows, tokens), scores,
      ScoreStride(tokens), histograms);
  CheckLaunch("CollisionScores");
}

void BucketTopK(const uint8_t* scores, const int32_t* histograms, int32_t rows, int32_t tokens,
                int32_t k, int32_t* candidates, cudaStream_t stream) {
  if (k < 0 || k > tokens) {
    throw Error("the " + std::to_string(k) + " best of " + std::to_string(tokens), "BucketTopK",
                "choose no more than there are");
  }
  if (rows <= 0 || k == 0) return;
  const dim3 grid(static_cast<unsigned>(Parts(rows, tokens)), static_cast<unsigned>(rows));
  BucketTopKKernel<<<grid, kThreads, 0, stream>>>(scores, ScoreStride(tokens), histograms, tokens,
                                                  PartTokens(rows, tokens), k, candidates);
  CheckLaunch("BucketTopK");
}

}  // namespace stallcast::kernels
