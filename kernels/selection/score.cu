// Page scores. max(q lo, q hi) is max(q, 0) hi + min(q, 0) lo, so scores are a matrix product of
// the summaries with the group's queries, made by the tensor cores from exact bf16 with float sums:
// each summary is read once for the whole group.
#include <algorithm>
#include <string>

#include "kernels/device/tensor_core.cuh"
#include "kernels/runtime/cuda_error.h"
#include "kernels/selection/selection.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kWarps = 4;
constexpr int kTilePages = 16;                    // rows of a matrix instruction, a warp
constexpr int kBlockPages = kWarps * kTilePages;  // that a block scores at once
constexpr int kTileHeads = 8;                     // columns of a matrix instruction
constexpr int kMaxGroup = 16;
constexpr int kMaxChunks = 512;  // blocks a row, bounds the partial sums that pooling reads
constexpr int kPoolThreads = 256;

// Far below every logit, far above where arithmetic on it could overflow.
constexpr float kNever = -1e30f;

// Part of a softmax: the largest logit and the sum of exp(logit - max). What stands for no logit at
// all, kNever, vanishes once a logit joins it.
struct Partial {
  float max, sum;
};
__device__ Partial None() { return {kNever, 0}; }
__device__ void Add(Partial& partial, float a, float b) {
  const float max = fmaxf(partial.max, fmaxf(a, b));
  partial.sum = partial.sum * __expf(partial.max - max) + __expf(a - max) + __expf(b - max);
  partial.max = max;
}
// Over the lanes that differ in bits from `offset` up.
__device__ Partial WarpSum(Partial partial, int offset) {
  float max = partial.max;
#pragma unroll
  for (int o = 16; o >= offset; o /= 2) max = fmaxf(max, __shfl_xor_sync(kAll, max, o));
  float sum = partial.sum * __expf(partial.max - max);
#pragma unroll
  for (int o = 16; o >= offset; o /= 2) sum += __shfl_xor_sync(kAll, sum, o);
  return {max, sum};
}

struct Args {
  const __nv_bfloat16* query;      // [rows][group][dim]
  const __nv_bfloat16* summaries;  // [rows][summary_pages][vectors][dim]
  int group, first_page, pages, summary_pages;
  int chunk_pages;    // of a block
  Pooling pooling;    // of those that need no sum over pages
  float scale;        // of softmax logits
  float* scores;      // [rows][pages], or [rows][group][pages] where they are pooled later or never
  Partial* partials;  // [rows][group][chunks]; null without softmax
  const int32_t* pages_of;  // [rows], at most `pages`; null: all have `pages`
};

// For pages that a row does not have.
__device__ void NoScores(float* scores, int begin, int end) {
  for (int page = begin + static_cast<int>(threadIdx.x); page < end;
       page += static_cast<int>(blockDim.x)) {
    scores[page] = -INFINITY;
  }
}

// The negative or the non-negative ones of two bf16, the other zero.
__device__ uint32_t OfSign(uint32_t pair, bool negative) {
  const uint32_t minus = (pair >> 15 & 0x00010001u) * 0xffffu;
  return pair & (negative ? minus : ~minus);
}

// 16 bytes (8 channels) a load feed two products: lane 4 g + t holds channels 8 t .. 8 t + 7 of
// page g and of query g. Which of an instruction's 16 inner places a channel takes does not matter,
// as it takes the same one in both factors.
// Four blocks a multiprocessor have enough bytes in flight; more channels or heads need registers.
template <int kDim, int kVectors, int kTiles>
__global__ void __launch_bounds__(kWarps * 32, kDim > 128 || kTiles > 1 ? 2 : 4)
    ScoreKernel(const Args args) {
  constexpr int kLoads = kDim / 32;
  const int row = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int g = lane / 4;
  const int t = lane % 4;

  uint4 query[kTiles][kLoads];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int head = tile * kTileHeads + g;
    const auto* from = reinterpret_cast<const uint4*>(
        args.query + (int64_t{row} * args.group + min(head, args.group - 1)) * kDim);
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      query[tile][j] = head < args.group ? __ldg(from + 4 * j + t) : uint4{};
    }
  }

  const int begin = static_cast<int>(blockIdx.x) * args.chunk_pages;
  const int present = args.pages_of == nullptr ? args.pages : args.pages_of[row];
  const int end = min(begin + args.chunk_pages, present);
  if (present < args.pages) {
    const bool pooled = args.pooling == Pooling::kRawMean || args.pooling == Pooling::kMax;
    const int rows = pooled ? 1 : args.group;
    for (int i = 0; i < rows; ++i) {
      NoScores(args.scores + (int64_t{row} * rows + i) * args.pages, max(begin, present),
               min(begin + args.chunk_pages, args.pages));
    }
  }
  const __nv_bfloat16* summaries =
      args.summaries + (int64_t{row} * args.summary_pages + args.first_page) * (kVectors * kDim);
  Partial partial[kTiles][2];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) partial[tile][0] = partial[tile][1] = None();

  for (int tile_page = begin + warp * kTilePages; tile_page < end; tile_page += kBlockPages) {
    const int page[2] = {tile_page + g, tile_page + g + 8};
    uint4 summary[kVectors][kLoads][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Pages past the end repeat the last one; their scores are dropped. Summaries are read once a
      // layer: unmarked they would push out of the cache what starts the next kernels.
      const auto* from = reinterpret_cast<const uint4*>(summaries + int64_t{min(page[i], end - 1)} *
                                                                        (kVectors * kDim));
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int j = 0; j < kLoads; ++j) {
          summary[v][j][i] = __ldcs(from + v * (kDim / 8) + 4 * j + t);
        }
      }
    }
    float score[kTiles][4] = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const uint4 a = summary[v][j][0];
        const uint4 b = summary[v][j][1];
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          uint4 q = query[tile][j];
          if (kVectors == 2) {
            const bool low = v == 0;
            q = {OfSign(q.x, low), OfSign(q.y, low), OfSign(q.z, low), OfSign(q.w, low)};
          }
          MultiplyAdd(score[tile], {a.x, b.x, a.y, b.y}, q.x, q.y);
          MultiplyAdd(score[tile], {a.z, b.z, a.w, b.w}, q.z, q.w);
        }
      }
    }

    // score[tile][2 i + c] is that of page[i] and head 8 tile + 2 t + c.
    if (args.pooling == Pooling::kRawMean || args.pooling == Pooling::kMax) {
      const bool mean = args.pooling == Pooling::kRawMean;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float pooled = mean ? 0.0f : -INFINITY;
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            if (tile * kTileHeads + 2 * t + c >= args.group) continue;
            const float value = score[tile][2 * i + c];
            pooled = mean ? pooled + value : fmaxf(pooled, value);
          }
        }
#pragma unroll
        for (int offset = 1; offset < 4; offset *= 2) {
          const float other = __shfl_xor_sync(kAll, pooled, offset);
          pooled = mean ? pooled + other : fmaxf(pooled, other);
        }
        if (mean) pooled /= static_cast<float>(args.group);
        if (t == i && page[i] < end) args.scores[int64_t{row} * args.pages + page[i]] = pooled;
      }
      continue;
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int head = tile * kTileHeads + 2 * t + c;
        if (head >= args.group) continue;
        float* to = args.scores + (int64_t{row} * args.group + head) * args.pages;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (page[i] < end) to[page[i]] = score[tile][2 * i + c];
        }
        if (args.partials == nullptr) continue;
        Add(partial[tile][c], page[0] < end ? score[tile][c] * args.scale : kNever,
            page[1] < end ? score[tile][2 + c] * args.scale : kNever);
      }
    }
  }
  if (args.partials == nullptr) return;

  __shared__ Partial of_warp[kWarps][kMaxGroup];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const Partial sum = WarpSum(partial[tile][c], 4);
      if (g == 0) of_warp[warp][tile * kTileHeads + 2 * t + c] = sum;
    }
  }
  __syncthreads();
  const int head = static_cast<int>(threadIdx.x);
  if (head < args.group) {
    float max = kNever;
#pragma unroll
    for (const auto& of : of_warp) max = fmaxf(max, of[head].max);
    float sum = 0;
#pragma unroll
    for (const auto& of : of_warp) sum += of[head].sum * __expf(of[head].max - max);
    args.partials[(int64_t{row} * args.group + head) * gridDim.x + blockIdx.x] = {max, sum};
  }
}

// scores[page] = log of the mean over heads of softmax(scale * raw)[page], or of the largest.
__global__ void __launch_bounds__(kPoolThreads)
    PoolKernel(const float* __restrict__ raw, const Partial* __restrict__ partials, int group,
               int chunks, int pages, const int32_t* __restrict__ pages_of, float scale,
               bool largest, float* __restrict__ scores) {
  __shared__ float log_sums[kMaxGroup];
  const int row = static_cast<int>(blockIdx.y);
  raw += int64_t{row} * group * pages;
  partials += int64_t{row} * group * chunks;
  for (int head = static_cast<int>(threadIdx.x / 32); head < group; head += kPoolThreads / 32) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    float max = kNever;
    for (int i = lane; i < chunks; i += 32) max = fmaxf(max, partials[head * chunks + i].max);
    float sum = 0;
    for (int i = lane; i < chunks; i += 32) {
      const Partial partial = partials[head * chunks + i];
      sum += partial.sum * __expf(partial.max - max);
    }
    const Partial all = WarpSum({max, sum}, 1);
    if (lane == 0) log_sums[head] = all.max + logf(all.sum);
  }
  __syncthreads();
  const float log_group = logf(static_cast<float>(group));
  const int stride = static_cast<int>(gridDim.x) * kPoolThreads;
  for (int page = static_cast<int>(blockIdx.x * kPoolThreads + threadIdx.x); page < pages;
       page += stride) {
    if (pages_of != nullptr && page >= pages_of[row]) {
      scores[int64_t{row} * pages + page] = -INFINITY;
      continue;
    }
    float most = kNever;
#pragma unroll 4
    for (int head = 0; head < group; ++head) {
      most = fmaxf(most, raw[int64_t{head} * pages + page] * scale - log_sums[head]);
    }
    if (largest) {
      scores[int64_t{row} * pages + page] = most;
      continue;
    }
    float sum = 0;
#pragma unroll 4
    for (int head = 0; head < group; ++head) {
      sum += __expf(raw[int64_t{head} * pages + page] * scale - log_sums[head] - most);
    }
    scores[int64_t{row} * pages + page] = most + logf(sum) - log_group;
  }
}

__global__ void __launch_bounds__(kPoolThreads)
    MeanOverRowsKernel(const float* __restrict__ scores, int rows_a_set, int pages,
                       float* __restrict__ mean) {
  const int page = static_cast<int>(blockIdx.x * kPoolThreads + threadIdx.x);
  if (page >= pages) return;
  const float* of_set = scores + int64_t{blockIdx.y} * rows_a_set * pages + page;
  float sum = 0;
#pragma unroll 8
  for (int row = 0; row < rows_a_set; ++row) sum += of_set[int64_t{row} * pages];
  mean[int64_t{blockIdx.y} * pages + page] = sum / static_cast<float>(rows_a_set);
}

int ChunkPages(int pages) {
  const int blocks = (pages + kBlockPages - 1) / kBlockPages;
  return (blocks + kMaxChunks - 1) / kMaxChunks * kBlockPages;
}
int Chunks(int pages) { return (pages + ChunkPages(pages) - 1) / ChunkPages(pages); }

template <int kDim, int kVectors>
void Launch(const Args& args, int rows, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(Chunks(args.pages)), static_cast<unsigned>(rows));
  if (args.group <= kTileHeads) {
    ScoreKernel<kDim, kVectors, 1><<<grid, kWarps * 32, 0, stream>>>(args);
  } else {
    ScoreKernel<kDim, kVectors, 2><<<grid, kWarps * 32, 0, stream>>>(args);
  }
  CheckLaunch("Score");
}

template <int kDim>
void Launch(const Args& args, int rows, int vectors, cudaStream_t stream) {
  vectors == 1 ? Launch<kDim, 1>(args, rows, stream) : Launch<kDim, 2>(args, rows, stream);
}

}  // namespace

int64_t ScoreWorkspace(int32_t rows, int32_t group, int32_t pages) {
  if (pages <= 0) return 0;
  return int64_t{rows} * group * (int64_t{pages} + 2 * Chunks(pages)) + 1;
}

void Score(const __nv_bfloat16* query, const __nv_bfloat16* summaries, int32_t rows, int32_t group,
           int32_t head_dim, int32_t vectors, int32_t first_page, int32_t pages,
           int32_t summary_pages, Pooling pooling, float scale, float* scores, float* workspace,
           cudaStream_t stream, const int32_t* pages_of) {
  if (group < 1 || group > kMaxGroup) {
    throw Error("groups of " + std::to_string(group) + " query heads", "Score",
                "use a model with 1 to " + std::to_string(kMaxGroup) + " query heads a KV head");
  }
  if (pages <= 0 || rows <= 0) return;
  const bool softmax = IsSoftmax(pooling);
  Args args{query,
            summaries,
            group,
            first_page,
            pages,
            summary_pages,
            ChunkPages(pages),
            pooling,
            pooling == Pooling::kSoftmaxMeanUnscaled ? 1.0f : scale,
            scores,
            nullptr,
            pages_of};
  if (softmax) {
    args.scores = workspace;
    // At an even place: a Partial is two floats.
    const int64_t raw = int64_t{rows} * group * pages;
    args.partials = reinterpret_cast<Partial*>(workspace + raw + raw % 2);
  }
  switch (head_dim) {
    case 64:
      Launch<64>(args, rows, vectors, stream);
      break;
    case 128:
      Launch<128>(args, rows, vectors, stream);
      break;
    case 256:
      Launch<256>(args, rows, vectors, stream);
      break;
    default:
      throw Error("heads of " + std::to_string(head_dim) + " channels", "Score",
                  "use a model whose heads have 64, 128 or 256");
  }
  if (!softmax) return;
  const int blocks = std::min((pages + kPoolThreads - 1) / kPoolThreads, 256);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(rows));
  PoolKernel<<<grid, kPoolThreads, 0, stream>>>(workspace, args.partials, group, Chunks(pages),
                                                pages, pages_of, args.scale,
                                                pooling == Pooling::kSoftmaxMax, scores);
  CheckLaunch("Score (pooling)");
}

void MeanOverRows(const float* scores, int32_t sets, int32_t rows_a_set, int32_t pages, float* mean,
                  cudaStream_t stream) {
  if (sets <= 0 || pages <= 0) return;
  const dim3 grid(static_cast<unsigned>((pages + kPoolThreads - 1) / kPoolThreads),
                  static_cast<unsigned>(sets));
  MeanOverRowsKernel<<<grid, kPoolThreads, 0, stream>>>(scores, rows_a_set, pages, mean);
  CheckLaunch("MeanOverRows");
}

}  // namespace stallcast::kernels
