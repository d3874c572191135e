// What an observation window attends: query-key products by the tensor cores, made twice, first for
// each query's sum of weights, then for the weights of each token.
#include <algorithm>
#include <string>

#include "kernels/device/page_runs.cuh"
#include "kernels/device/softmax_part.cuh"
#include "kernels/device/tile_product.cuh"
#include "kernels/methods/restructure.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kBlockQueries = kWarps * 32;
constexpr int kTileTokens = 64;
constexpr int kChunkTokens = 8 * kTileTokens;  // of a block
constexpr float kLog2E = 1.4426950408889634f;

struct Args {
  RunAddress keys;
  const __nv_bfloat16* query;
  int tokens, queries, group, kv_heads;
  int all;                // queries of a row: queries * group
  float scale;            // to powers of two
  SoftmaxPart* partials;  // [rows][all][chunks]
  float* log_sums;        // [rows][all]
  float* scores;          // [rows][tokens]

  // Query i of a row: i / group of the window, head i % group.
  template <int kDim>
  __device__ const __nv_bfloat16* Query(int row, int i) const {
    if (i >= all) return nullptr;
    const int sequence = row / kv_heads, head = row % kv_heads;
    const int64_t at = (int64_t{sequence} * queries + i / group) * kv_heads * group + head * group;
    return query + (at + i % group) * kDim;
  }
};

// Calls use(tile of the chunk, n, sums) for the products of 256 queries with a chunk's tokens;
// after(tile) when all warps are done with a tile.
template <int kDim, class Use, class After>
__device__ void Products(const Args& args, SharedTile<2 * kDim, kTileTokens> (&tiles)[2],
                         int first_query, const Use& use, const After& after) {
  const int row = static_cast<int>(blockIdx.y);
  const int begin = static_cast<int>(blockIdx.x) * kChunkTokens;
  const int count = (min(kChunkTokens, args.tokens - begin) + kTileTokens - 1) / kTileTokens;
  const auto fetch = [&](int tile) {
    tiles[tile % 2].template Fetch<kThreads>([&](int r) {
      // Tokens past the end repeat the last one; what they give is dropped.
      const int token = min(begin + tile * kTileTokens + r, args.tokens - 1);
      return reinterpret_cast<const char*>(args.keys.Key(row, token));
    });
  };
  WarpRows<2 * kDim> rows;
  const int first = first_query + static_cast<int>(threadIdx.x / 32) * 32;
  StreamTiles(
      count, fetch, [&] { rows.Load([&](int i) { return args.Query<kDim>(row, first + i); }); },
      [&](int tile) {
        MultiplyTile<Bf16Product>(rows, tiles[tile % 2],
                                  [&](int n, const float(&dots)[2][4]) { use(tile, n, dots); });
        __syncthreads();
        after(tile);
      });
}

template <int kDim>
__global__ void __launch_bounds__(kThreads, 2) SumsKernel(const Args args) {
  __shared__ SharedTile<2 * kDim, kTileTokens> tiles[2];
  const int row = static_cast<int>(blockIdx.y);
  const int begin = static_cast<int>(blockIdx.x) * kChunkTokens;
  const int g = static_cast<int>(threadIdx.x % 32) / 4, t = static_cast<int>(threadIdx.x % 4);
  for (int query = 0; query < args.all; query += kBlockQueries) {
    SoftmaxPart partial[2][2];
    Products<kDim>(
        args, tiles, query,
        [&](int tile, int n, const float(&dots)[2][4]) {
          const int token = begin + tile * kTileTokens + n + 2 * t;
#pragma unroll
          for (int m = 0; m < 2; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const float a = token < args.tokens ? dots[m][2 * half] * args.scale : kNever;
              const float b = token + 1 < args.tokens ? dots[m][2 * half + 1] * args.scale : kNever;
              partial[m][half].Add(a, b);
            }
          }
        },
        [](int) {});
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const SoftmaxPart part = SumOfRow(partial[m][half]);
        const int i = query + static_cast<int>(threadIdx.x / 32) * 32 + m * 16 + half * 8 + g;
        if (t == 0 && i < args.all) {
          args.partials[(int64_t{row} * args.all + i) * gridDim.x + blockIdx.x] = part;
        }
      }
    }
  }
}

// A warp a query.
__global__ void __launch_bounds__(kThreads)
    CombineKernel(const SoftmaxPart* partials, int64_t queries, int chunks, float* log_sums) {
  const int64_t query = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (query >= queries) return;
  partials += query * chunks;
  float max = kNever, sum = 0;
  for (int i = lane; i < chunks; i += 32) max = fmaxf(max, partials[i].max);
#pragma unroll
  for (int o = 16; o > 0; o /= 2) max = fmaxf(max, __shfl_xor_sync(kAll, max, o));
  for (int i = lane; i < chunks; i += 32) sum += partials[i].sum * Exp2(partials[i].max - max);
#pragma unroll
  for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(kAll, sum, o);
  if (lane == 0) log_sums[query] = max + log2f(sum);
}

template <int kDim>
__global__ void __launch_bounds__(kThreads, 2) WeightsKernel(const Args args) {
  __shared__ SharedTile<2 * kDim, kTileTokens> tiles[2];
  __shared__ float of_warp[kWarps][kTileTokens];
  __shared__ float sums[kChunkTokens];
  const int row = static_cast<int>(blockIdx.y);
  const int begin = static_cast<int>(blockIdx.x) * kChunkTokens;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int g = static_cast<int>(threadIdx.x % 32) / 4, t = static_cast<int>(threadIdx.x % 4);
  for (int i = static_cast<int>(threadIdx.x); i < kChunkTokens; i += kThreads) sums[i] = 0;
  for (int query = 0; query < args.all; query += kBlockQueries) {
    float log_sum[2][2];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = query + warp * 32 + m * 16 + half * 8 + g;
        // A query that is not there weighs nothing.
        log_sum[m][half] = i < args.all ? args.log_sums[int64_t{row} * args.all + i] : INFINITY;
      }
    }
    Products<kDim>(
        args, tiles, query,
        [&](int /*tile*/, int n, const float(&dots)[2][4]) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            float sum = 0;
#pragma unroll
            for (int m = 0; m < 2; ++m) {
#pragma unroll
              for (int half = 0; half < 2; ++half) {
                sum += Exp2(dots[m][2 * half + c] * args.scale - log_sum[m][half]);
              }
            }
#pragma unroll
            for (int o = 4; o < 32; o *= 2) sum += __shfl_xor_sync(kAll, sum, o);
            if (g == 0) of_warp[warp][n + 2 * t + c] = sum;
          }
        },
        [&](int tile) {
          if (threadIdx.x < kTileTokens) {
            float sum = sums[tile * kTileTokens + threadIdx.x];
            for (const auto& of : of_warp) sum += of[threadIdx.x];
            sums[tile * kTileTokens + threadIdx.x] = sum;
          }
        });
    __syncthreads();
  }
  __syncthreads();
  const float share = 1.0f / static_cast<float>(args.all);
  for (int i = static_cast<int>(threadIdx.x); i < min(kChunkTokens, args.tokens - begin);
       i += kThreads) {
    args.scores[int64_t{row} * args.tokens + begin + i] = sums[i] * share;
  }
}

int Chunks(int tokens) { return (tokens + kChunkTokens - 1) / kChunkTokens; }

int64_t Partials(const ObservationScoreArgs& args) {
  return int64_t{args.rows} * args.queries * args.group * Chunks(args.tokens);
}

template <int kDim>
void Launch(const Args& args, int rows, cudaStream_t stream) {
  const int chunks = Chunks(args.tokens);
  const dim3 grid(static_cast<unsigned>(chunks), static_cast<unsigned>(rows));
  const int64_t queries = int64_t{rows} * args.all;
  SumsKernel<kDim><<<grid, kThreads, 0, stream>>>(args);
  CombineKernel<<<static_cast<unsigned>((queries + kWarps - 1) / kWarps), kThreads, 0, stream>>>(
      args.partials, queries, chunks, args.log_sums);
  WeightsKernel<kDim><<<grid, kThreads, 0, stream>>>(args);
  CheckLaunch("ObservationScore");
}

}  // namespace

int64_t ObservationScoreWorkspace(const ObservationScoreArgs& args) {
  return Partials(args) * static_cast<int64_t>(sizeof(SoftmaxPart)) +
         int64_t{args.rows} * args.queries * args.group * static_cast<int64_t>(sizeof(float));
}

void ObservationScore(const ObservationScoreArgs& args, void* workspace, cudaStream_t stream) {
  if (args.queries < 1 || args.group < 1) {
    throw Error("no query observes", "ObservationScore", "give a window of at least one token");
  }
  if (args.rows <= 0 || args.tokens <= 0) return;
  auto* partials = static_cast<SoftmaxPart*>(workspace);
  const Args device{RunAddress(args.keys),
                    args.query,
                    args.tokens,
                    args.queries,
                    args.group,
                    args.keys.cache.kv_heads,
                    args.queries * args.group,
                    args.scale * kLog2E,
                    partials,
                    reinterpret_cast<float*>(partials + Partials(args)),
                    args.scores};
  switch (args.keys.cache.head_dim) {
    case 64:
      return Launch<64>(device, args.rows, stream);
    case 128:
      return Launch<128>(device, args.rows, stream);
    default:
      throw Error("heads of " + std::to_string(args.keys.cache.head_dim) + " channels",
                  "ObservationScore", "use a model whose heads have 64 or 128");
  }
}

}  // namespace stallcast::kernels
