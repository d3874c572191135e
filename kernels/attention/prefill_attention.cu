// A block takes 128 queries of one head and walks the keys before them, 64 at a time: the values of
// a tile arrive while its scores are computed, the keys of the next while its values are added.
#include <algorithm>
#include <string>

#include "kernels/attention/attention_tile.cuh"
#include "kernels/attention/prefill_params.cuh"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/device_attribute.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kBlockQueries = kWarps * kWarpQueries;

template <int kHeadDim>
constexpr int kSharedBytes = (kBlockQueries + 2 * kTileKeys) * TileRows<kHeadDim>::kRowBytes;

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 2) PrefillAttentionKernel(const PrefillParams p) {
  using Rows = TileRows<kHeadDim>;
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ int64_t key_offset[2][kTileKeys];  // of the tokens of this tile and the next
  const auto queries = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t keys = queries + kBlockQueries * Rows::kRowBytes;
  const uint32_t values = keys + kTileKeys * Rows::kRowBytes;

  const auto& a = p.args;
  const PrefillBlock block(p, kBlockQueries);
  const int tiles = (block.end + kTileKeys - 1) / kTileKeys;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const auto locate = [&](int tile) {
    if (thread >= kTileKeys) return;
    key_offset[tile % 2][thread] =
        p.KeyOffset(block.sequence, tile * kTileKeys + thread, block.end);
  };
  const auto load = [&](uint32_t to, const __nv_bfloat16* base, int tile) {
    Rows::template Load<kThreads, kTileKeys>(to, base,
                                             [&](int row) { return key_offset[tile % 2][row]; });
    CommitCopies();
  };

  Rows::template Load<kThreads, kBlockQueries>(queries, a.query + block.query_at, [&](int row) {
    return block.first + row < a.tokens ? row * block.query_stride : kNowhere;
  });
  locate(0);
  __syncthreads();
  load(keys, block.keys, 0);

  WarpQueries<kHeadDim> state;
  const int position = a.past + block.first + warp * kWarpQueries;  // of the warp's first query
  for (int tile = 0; tile < tiles; ++tile) {
    const int first_key = tile * kTileKeys;
    const bool attends = first_key < position + kWarpQueries;
    WaitForCopies<0>();
    __syncthreads();  // the keys are there, the values before are done with
    load(values, block.keys + a.cache.kv_stride, tile);
    locate(tile + 1);
    if (attends) state.Score(queries + warp * kWarpQueries * Rows::kRowBytes, keys);
    WaitForCopies<0>();
    __syncthreads();  // the values are there, the keys are done with
    if (tile + 1 < tiles) load(keys, block.keys, tile + 1);
    if (!attends) continue;
    if (first_key + kTileKeys > position + 1) {
      state.Mask([&](int query, int key) { return first_key + key <= position + query; });
    }
    state.Weigh(p.scale);
    state.AddValues(values);
  }
  const int64_t warp_at = block.query_at + warp * kWarpQueries * block.query_stride;
  state.Store(a.output + warp_at, block.query_stride, a.tokens - block.first - warp * kWarpQueries);
}

template <int kHeadDim>
void Launch(const PrefillParams& params, cudaStream_t stream) {
  Check(cudaFuncSetAttribute(PrefillAttentionKernel<kHeadDim>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<kHeadDim>),
        "cudaFuncSetAttribute(PrefillAttention)");
  PrefillAttentionKernel<kHeadDim>
      <<<PrefillBlocks(params, kBlockQueries), kThreads, kSharedBytes<kHeadDim>, stream>>>(params);
  CheckLaunch("PrefillAttention");
}

#ifdef STALLCAST_SM90A
bool IsHopper() { return DeviceAttribute(cudaDevAttrComputeCapabilityMajor) == 9; }
#endif

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
  // Of a cache with a page table the last slot is not known here.
  if (constexpr int64_t kCacheMax = int64_t{64} << 30;
      args.slots == nullptr && args.sequences * int64_t{args.max_pages} * cache.slot_stride *
                                       int64_t{sizeof(__nv_bfloat16)} >
                                   kCacheMax) {
    fail(std::to_string(args.sequences) + " sequences of " + std::to_string(args.max_pages) +
             " pages are more than 64 GiB",
         "attend fewer sequences at once");
  }
  if (!(args.scale > 0)) fail("a scale that is not above 0", "use 1/sqrt(head_dim)");
}

int HeadsAtOnce(const PrefillAttentionArgs& args) {
  const int cache_bytes = DeviceAttribute(cudaDevAttrL2CacheSize);
  const int64_t head_bytes = 4 * (int64_t{args.past} + args.tokens) * args.cache.head_dim;
  return args.group * static_cast<int>(std::max<int64_t>(1, cache_bytes / 2 / head_bytes));
}

}  // namespace

void PrefillAttention(const PrefillAttentionArgs& args, cudaStream_t stream) {
  CheckArguments(args);
  if (args.sequences == 0 || args.tokens == 0) return;
  constexpr float kLog2E = 1.44269504088896341f;
  const PrefillParams params{args, Divider(static_cast<uint32_t>(args.cache.page_tokens)),
                             args.scale * kLog2E, args.sequences * args.cache.kv_heads * args.group,
                             HeadsAtOnce(args)};
#ifdef STALLCAST_SM90A
  if (!args.portable && IsHopper()) return LaunchPrefillAttentionHopper(params, stream);
#endif
  args.cache.head_dim == 64 ? Launch<64>(params, stream) : Launch<128>(params, stream);
}

}  // namespace stallcast::kernels
