// A block takes 128 queries of one head and walks the keys before them, 64 at a time: the values of
// a tile arrive while its scores are computed, the keys of the next while its values are added.
#include <algorithm>
#include <string>

#include "kernels/cuda_error.h"
#include "kernels/device/attention_tile.cuh"
#include "kernels/device/divide.cuh"
#include "kernels/prefill_attention.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kBlockQueries = kWarps * kWarpQueries;
constexpr int64_t kNowhere = -1;

struct Params {
  PrefillAttentionArgs args;
  Divider by_page;
  float scale;  // with log2(e), for Exp2
};

template <int kHeadDim>
constexpr int kSharedBytes = (kBlockQueries + 2 * kTileKeys) * TileRows<kHeadDim>::kRowBytes;

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 2) PrefillAttentionKernel(const Params p) {
  using Rows = TileRows<kHeadDim>;
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ int64_t key_offset[2][kTileKeys];  // of the tokens of this tile and the next
  const auto queries = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t keys = queries + kBlockQueries * Rows::kRowBytes;
  const uint32_t values = keys + kTileKeys * Rows::kRowBytes;

  // Longest walks first, so that short ones fill the end.
  const auto& a = p.args;
  const int query_heads = a.cache.kv_heads * a.group;
  const int head = static_cast<int>(blockIdx.x) % query_heads;
  const int sequence = static_cast<int>(blockIdx.x) / query_heads;
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kBlockQueries;
  const int64_t query_stride = int64_t{query_heads} * kHeadDim;
  const int64_t block_at = (int64_t{sequence} * a.tokens + first) * query_stride + head * kHeadDim;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;

  const int end = a.past + min(first + kBlockQueries, a.tokens);  // of the keys attended
  const int tiles = (end + kTileKeys - 1) / kTileKeys;
  const __nv_bfloat16* const key_base =
      a.cache.data + int64_t{head / a.group} * a.cache.head_stride;
  const auto locate = [&](int tile) {
    if (thread >= kTileKeys) return;
    const int token = tile * kTileKeys + thread;
    int64_t offset = kNowhere;
    if (token < end) {
      const auto page = static_cast<int>(p.by_page.Quotient(token));
      const int64_t entry = int64_t{sequence} * a.max_pages + page;
      offset = (a.slots != nullptr ? a.slots[entry] : entry) * a.cache.slot_stride +
               (token - page * a.cache.page_tokens) * a.cache.token_stride;
    }
    key_offset[tile % 2][thread] = offset;
  };
  const auto load = [&](uint32_t to, const __nv_bfloat16* base, int tile) {
    Rows::template Load<kThreads, kTileKeys>(to, base,
                                             [&](int row) { return key_offset[tile % 2][row]; });
    CommitCopies();
  };

  Rows::template Load<kThreads, kBlockQueries>(queries, a.query + block_at, [&](int row) {
    return first + row < a.tokens ? row * query_stride : kNowhere;
  });
  locate(0);
  __syncthreads();
  load(keys, key_base, 0);

  WarpQueries<kHeadDim> state;
  const int position = a.past + first + warp * kWarpQueries;  // of the warp's first query
  for (int tile = 0; tile < tiles; ++tile) {
    const int first_key = tile * kTileKeys;
    const bool attends = first_key < position + kWarpQueries;
    WaitForCopies<0>();
    __syncthreads();  // the keys are there, the values before are done with
    load(values, key_base + a.cache.kv_stride, tile);
    locate(tile + 1);
    if (attends) state.Score(queries + warp * kWarpQueries * Rows::kRowBytes, keys);
    WaitForCopies<0>();
    __syncthreads();  // the values are there, the keys are done with
    if (tile + 1 < tiles) load(keys, key_base, tile + 1);
    if (!attends) continue;
    if (first_key + kTileKeys > position + 1) {
      state.Mask([&](int query, int key) { return first_key + key <= position + query; });
    }
    state.Weigh(p.scale);
    state.AddValues(values);
  }
  state.Store(a.output + block_at + warp * kWarpQueries * query_stride, query_stride,
              a.tokens - first - warp * kWarpQueries);
}

template <int kHeadDim>
void Launch(const Params& params, dim3 grid, cudaStream_t stream) {
  Check(cudaFuncSetAttribute(PrefillAttentionKernel<kHeadDim>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<kHeadDim>),
        "cudaFuncSetAttribute(PrefillAttention)");
  PrefillAttentionKernel<kHeadDim><<<grid, kThreads, kSharedBytes<kHeadDim>, stream>>>(params);
  CheckLaunch("PrefillAttention");
}

void CheckArguments(const PrefillAttentionArgs& args) {
  const PagedKv& cache = args.cache;
  const auto fail = [](const std::string& what, const char* remedy) {
    throw Error(what, "PrefillAttention", remedy);
  };
  if (cache.head_dim != 64 && cache.head_dim != 128) {
    fail("head dimension " + std::to_string(cache.head_dim) + " is not supported", "use 64 or 128");
  }
  if (args.group < 1 || cache.kv_heads < 1 || cache.page_tokens < 1) {
    fail(std::to_string(cache.kv_heads) + " KV heads of " + std::to_string(args.group) +
             " query heads, in pages of " + std::to_string(cache.page_tokens) + " tokens",
         "give at least one of each");
  }
  if ((cache.slot_stride | cache.kv_stride | cache.token_stride | cache.head_stride) % 8 != 0) {
    fail("a stride of the cache is not a multiple of 8 elements", "align rows to 16 bytes");
  }
  if (args.sequences < 0 || args.tokens < 0 || args.past < 0) {
    fail("a negative number of sequences or tokens", "give at least zero");
  }
  const int64_t context = int64_t{args.past} + args.tokens;
  constexpr int64_t kContextMax = int64_t{1} << 22;
  if (context > kContextMax || context > int64_t{args.max_pages} * cache.page_tokens) {
    fail(std::to_string(context) + " tokens in " + std::to_string(args.max_pages) + " pages of " +
             std::to_string(cache.page_tokens),
         "give each sequence pages for all its tokens, at most 2^22");
  }
  if (!(args.scale > 0)) fail("a scale that is not above 0", "use 1/sqrt(head_dim)");
}

}  // namespace

void PrefillAttention(const PrefillAttentionArgs& args, cudaStream_t stream) {
  CheckArguments(args);
  if (args.sequences == 0 || args.tokens == 0) return;
  constexpr float kLog2E = 1.44269504088896341f;
  const Params params{args, Divider(static_cast<uint32_t>(args.cache.page_tokens)),
                      args.scale * kLog2E};
  const dim3 grid(static_cast<unsigned>(args.sequences * args.cache.kv_heads * args.group),
                  static_cast<unsigned>((args.tokens + kBlockQueries - 1) / kBlockQueries));
  if (args.cache.head_dim == 64) {
    Launch<64>(params, grid, stream);
  } else {
    Launch<128>(params, grid, stream);
  }
}

}  // namespace stallcast::kernels
