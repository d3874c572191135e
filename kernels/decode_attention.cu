// Split-KV attention of one new token a sequence. A CTA takes one split of one row; within it every
// warp is a split of its own: it streams 16 tokens at a time through a private ring in shared
// memory and keeps its own running softmax, so the main loop has no barrier. Products run
// transposed (tokens or channels x heads), so that a group of up to 8 query heads fills one
// tensor-core tile and keys and values are read once for the whole group. The last CTA of a row to
// finish merges the splits, in the order of the splits: the result does not depend on which CTA
// that was.
#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "kernels/cuda_error.h"
#include "kernels/decode_attention.h"
#include "kernels/device/tensor_core.cuh"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr unsigned kFullWarp = 0xffffffff;
constexpr int kStepTokens = 16;
/// Many warps with short rings: a warp is bound by its instructions' latency before the memory is.
constexpr int kStages = 2;
constexpr int kManyWarps = 12;  ///< 192 KiB of rings at head_dim 128, 96 KiB at 64
constexpr int kFewWarps = 5;  ///< 80 KiB: where a CTA gets less (two on A100, one on GeForce cards)
/// Rows that may be split have an arrival counter each; more rows fill any machine unsplit.
constexpr int kCounters = 4096;
constexpr int kMaxWaves = 4;

struct Params {
  const __nv_bfloat16* query;
  PagedKv cache;
  PageTable pages;
  __nv_bfloat16* output;
  unsigned* arrived;  ///< [row], zero between launches
  float* partial;     ///< [row][split][group][head_dim]
  float* maximum;     ///< [row][split][group], of scores in base 2
  float* sum;         ///< [row][split][group]
  int32_t rows_a_head;
  int32_t group;
  float scale;  ///< with log2(e), for Exp2
};

/// Two floats to bf16, then the warp's 8 x 8 matrix of them transposed.
__device__ uint32_t PackTransposed(float low, float high) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(PackBf16(low, high)));
  return result;
}

__device__ void Store4(__nv_bfloat16* to, float4 value, float factor) {
  const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(value.x * factor, value.y * factor),
                                   __floats2bfloat162_rn(value.z * factor, value.w * factor)};
  *reinterpret_cast<uint2*>(to) = reinterpret_cast<const uint2&>(pairs);
}

__device__ void AddScaled(float4& to, float factor, float4 value) {
  to.x += factor * value.x;
  to.y += factor * value.y;
  to.z += factor * value.z;
  to.w += factor * value.w;
}

__device__ float WarpMax(float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, lanes));
  }
  return value;
}

__device__ float WarpSum(float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kFullWarp, value, lanes);
  return value;
}

/// Shared memory of a warp: a ring of steps, each 16 keys and then 16 values. The 16-byte pieces of
/// a token lie permuted by its number, so that reading one column of 8 tokens meets every bank
/// once.
template <int kHeadDim>
struct Ring {
  static constexpr int kTokenBytes = kHeadDim * 2;
  static constexpr int kPlaneBytes = kStepTokens * kTokenBytes;
  static constexpr int kStageBytes = 2 * kPlaneBytes;
  static constexpr int kBytes = kStages * kStageBytes;

  __device__ static uint32_t At(int token, int piece) {
    return token * kTokenBytes + ((piece ^ (token & 7)) * 16);
  }
};

struct Spot {
  int slot, place;  ///< of a token: its page's slot, and its number in the page
};

/// Looks up tokens an equal stride apart, without a division each. Past `end` spots are harmless:
/// slot 0, not to be read.
class PageCursor {
 public:
  __device__ PageCursor(const int32_t* table, int page_tokens, int token, int stride, int end)
      : table_(table),
        page_tokens_(page_tokens),
        stride_(stride),
        end_(end),
        token_(token),
        page_(token / page_tokens),
        place_(token % page_tokens),
        stride_pages_(stride / page_tokens),
        stride_places_(stride % page_tokens) {}

  __device__ Spot Next() {
    const Spot spot{token_ < end_ ? table_[page_] : 0, place_};
    token_ += stride_;
    page_ += stride_pages_;
    place_ += stride_places_;
    if (place_ >= page_tokens_) {
      place_ -= page_tokens_;
      ++page_;
    }
    return spot;
  }

 private:
  const int32_t* table_;
  int page_tokens_, stride_, end_, token_, page_, place_, stride_pages_, stride_places_;
};

/// The running softmax and output of one warp, for 8 * kTiles heads. In score and output tiles a
/// thread has the columns (heads) 2 * (lane % 4) and the next, at rows lane / 4 and 8 further.
template <int kHeadDim, int kTiles>
struct WarpState {
  using Place = Ring<kHeadDim>;
  static constexpr int kDepth = kHeadDim / 16;

  uint32_t query[kTiles][kDepth][2];
  float output[kTiles][kDepth][4];
  float maximum[kTiles][2];
  float sum[kTiles][2];

  __device__ WarpState(const __nv_bfloat16* queries, int group, int lane) {
    for (int tile = 0; tile < kTiles; ++tile) {
      const int head = tile * 8 + lane / 4;
      const auto* from = reinterpret_cast<const uint32_t*>(queries + int64_t{head} * kHeadDim);
      for (int k = 0; k < kDepth; ++k) {
        query[tile][k][0] = head < group ? from[k * 8 + lane % 4] : 0;
        query[tile][k][1] = head < group ? from[k * 8 + lane % 4 + 4] : 0;
        for (float& value : output[tile][k]) value = 0;
      }
      maximum[tile][0] = maximum[tile][1] = -INFINITY;
      sum[tile][0] = sum[tile][1] = 0;
    }
  }

  /// Attends the `valid` (at least 1) first tokens of the stage at `keys`.
  __device__ void Step(uint32_t keys, int valid, float scale, int lane) {
    float score[2][kTiles][4] = {};  // even and odd depths apart: half as long a chain
    for (int k = 0; k < kDepth; ++k) {
      uint32_t key[4];
      LoadMatrices(key, keys + Place::At(lane % 16, 2 * k + lane / 16));
      for (int tile = 0; tile < kTiles; ++tile) {
        MultiplyAdd(score[k % 2][tile], key, query[tile][k][0], query[tile][k][1]);
      }
    }
    uint32_t weight[kTiles][2];
    for (int tile = 0; tile < kTiles; ++tile) {
      float(&s)[4] = score[0][tile];
      for (int i = 0; i < 4; ++i) {
        const bool attended = lane / 4 + i / 2 * 8 < valid;
        s[i] = attended ? (s[i] + score[1][tile][i]) * scale : -INFINITY;
      }
      Rescale(tile, fmaxf(s[0], s[2]), fmaxf(s[1], s[3]));
      for (int i = 0; i < 4; ++i) {
        s[i] = Exp2(s[i] - maximum[tile][i % 2]);
        sum[tile][i % 2] += s[i];
      }
      weight[tile][0] = PackTransposed(s[0], s[1]);
      weight[tile][1] = PackTransposed(s[2], s[3]);
    }
    const uint32_t values = keys + Place::kPlaneBytes;
    for (int k = 0; k < kDepth; ++k) {
      uint32_t value[4];
      LoadTransposed(value, values + Place::At(lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
      for (int tile = 0; tile < kTiles; ++tile) {
        MultiplyAdd(output[tile][k], value, weight[tile][0], weight[tile][1]);
      }
    }
  }

  /// Takes in the thread's largest new scores of its two heads.
  __device__ void Rescale(int tile, float even, float odd) {
    for (int lanes = 4; lanes <= 16; lanes *= 2) {
      even = fmaxf(even, __shfl_xor_sync(kFullWarp, even, lanes));
      odd = fmaxf(odd, __shfl_xor_sync(kFullWarp, odd, lanes));
    }
    float(&old)[2] = maximum[tile];
    if (!__any_sync(kFullWarp, even > old[0] || odd > old[1])) return;
    const float largest[2] = {fmaxf(even, old[0]), fmaxf(odd, old[1])};
    const float factor[2] = {Exp2(old[0] - largest[0]), Exp2(old[1] - largest[1])};
    for (int k = 0; k < kDepth; ++k) {
      for (int i = 0; i < 4; ++i) output[tile][k][i] *= factor[i % 2];
    }
    for (int i = 0; i < 2; ++i) {
      sum[tile][i] *= factor[i];
      old[i] = largest[i];
    }
  }
};

/// Merges the partial results of a row's splits, a warp a head.
template <int kHeadDim, int kWarps>
__device__ void MergeSplits(const Params& p, int64_t row, int splits, int used) {
  const int lane = threadIdx.x % 32;
  const int64_t first = row * splits * p.group;
  const bool has_piece = lane < kHeadDim / 4;
  for (int head = threadIdx.x / 32; head < p.group; head += kWarps) {
    float maximum = -INFINITY;
    for (int split = lane; split < used; split += 32) {
      maximum = fmaxf(maximum, __ldcg(p.maximum + first + int64_t{split} * p.group + head));
    }
    maximum = WarpMax(maximum);
    float sum = 0;
    float4 total{};
    for (int begin = 0; begin < used; begin += 32) {
      float weight = 0;
      if (begin + lane < used) {
        const int64_t at = first + int64_t{begin + lane} * p.group + head;
        weight = Exp2(__ldcg(p.maximum + at) - maximum);
        sum += weight * __ldcg(p.sum + at);
      }
      const int count = min(32, used - begin);
#pragma unroll 8
      for (int i = 0; i < count; ++i) {
        const float factor = __shfl_sync(kFullWarp, weight, i);
        const int64_t at = (first + int64_t{begin + i} * p.group + head) * kHeadDim + lane * 4;
        if (has_piece) {
          AddScaled(total, factor, __ldcg(reinterpret_cast<const float4*>(p.partial + at)));
        }
      }
    }
    sum = WarpSum(sum);
    if (has_piece) {
      Store4(p.output + (row * p.group + head) * kHeadDim + lane * 4, total, 1 / sum);
    }
  }
}

template <int kHeadDim, int kTiles, int kWarps, bool kWholeSteps>
__global__ void __launch_bounds__(kWarps * 32) DecodeAttentionKernel(const Params p) {
  using Place = Ring<kHeadDim>;
  constexpr int kPieces = kHeadDim / 8;  // of 16 bytes, in a token
  constexpr int kPadded = kHeadDim + 4;  // floats, to spread the heads over the banks
  constexpr int kThreads = kWarps * 32;
  static_assert(kTiles * 8 * kPadded * 4 <= Place::kBytes);
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float warp_maximum[kWarps][kTiles * 8];
  __shared__ float warp_sum[kWarps][kTiles * 8];
  __shared__ bool last;

  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int64_t row = blockIdx.x;
  const int split = blockIdx.y;
  const int splits = gridDim.y;

  // Every used split has a token; the others leave.
  const int tokens = p.pages.tokens[row];
  const int share = ((tokens + splits - 1) / splits + kStepTokens - 1) / kStepTokens * kStepTokens;
  const int used = tokens > 0 ? (tokens + share - 1) / share : 1;
  if (split >= used) return;
  const int first = split * share;
  const int end = min(tokens, first + share);
  __nv_bfloat16* const output = p.output + row * p.group * kHeadDim;
  if (tokens <= 0) {
    for (int i = threadIdx.x; i < p.group * kHeadDim; i += kThreads) output[i] = 0;
    return;
  }

  // The warp's step s holds the 16 tokens from TokenOf(s). Where pages hold whole steps, a lane
  // needs only the slot of its step; elsewhere lane i looks token i % 16 up for all.
  const auto token_of = [&](int step) { return first + (step * kWarps + warp) * kStepTokens; };
  const int steps = max(0, (end - token_of(0) + kWarps * kStepTokens - 1) / (kWarps * kStepTokens));
  PageCursor cursor(p.pages.table + row * p.pages.max_pages, p.cache.page_tokens,
                    token_of(0) + (kWholeSteps ? lane / kPieces : lane % kStepTokens),
                    kWarps * kStepTokens, kWholeSteps ? end + lane / kPieces : end);
  const uint32_t ring =
      static_cast<uint32_t>(__cvta_generic_to_shared(shared)) + warp * Place::kBytes;
  const __nv_bfloat16* const lane_data =
      p.cache.data +
      int64_t{row / (p.rows_a_head * p.cache.kv_heads)} * p.pages.slots_a_sequence *
          p.cache.slot_stride +
      row / p.rows_a_head % p.cache.kv_heads * p.cache.head_stride + lane % kPieces * 8;
  const auto fetch = [&](int step, Spot spot) {
    const int64_t mine = spot.slot * p.cache.slot_stride + spot.place * p.cache.token_stride;
    const int present = end - token_of(step);
    const uint32_t to = ring + step % kStages * Place::kStageBytes;
#pragma unroll
    for (int i = 0; i < kStepTokens * kPieces / 32; ++i) {
      const int token = (i * 32 + lane) / kPieces;
      const __nv_bfloat16* key = lane_data;
      if constexpr (kWholeSteps) {
        key += mine + i * (32 / kPieces) * p.cache.token_stride;
      } else {
        key += __shfl_sync(kFullWarp, mine, token);
      }
      const int bytes = token < present ? 16 : 0;
      const uint32_t place = to + Place::At(token, lane % kPieces);
      CopyAsync(place, key, bytes);
      CopyAsync(place + Place::kPlaneBytes, key + p.cache.kv_stride, bytes);
    }
  };

  Spot spots[kStages];
#pragma unroll
  for (int i = 0; i < kStages; ++i) spots[i] = cursor.Next();
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < steps) fetch(i, spots[i]);
    CommitCopies();
  }
  Spot next = spots[kStages - 1];  // looked up a step ahead of its use
  WarpState<kHeadDim, kTiles> state(p.query + row * p.group * kHeadDim, p.group, lane);
  for (int step = 0; step < steps; ++step) {
    WaitForCopies<kStages - 2>();
    __syncwarp();  // the step's copies of all lanes are in, and its predecessor's stage is free
    const int ahead = step + kStages - 1;
    if (ahead < steps) fetch(ahead, next);
    CommitCopies();
    next = cursor.Next();
    state.Step(ring + step % kStages * Place::kStageBytes, min(kStepTokens, end - token_of(step)),
               p.scale, lane);
  }

  // Merge the warps, over their rings, which nobody needs any more.
  WaitForCopies<0>();
  __syncwarp();
  auto* const warp_output = reinterpret_cast<float*>(shared + warp * Place::kBytes);
  for (int tile = 0; tile < kTiles; ++tile) {
    for (int i = 0; i < 2; ++i) {
      const int head = tile * 8 + lane % 4 * 2 + i;
      float sum = state.sum[tile][i];
      for (int lanes = 4; lanes <= 16; lanes *= 2) {
        sum += __shfl_xor_sync(kFullWarp, sum, lanes);
      }
      if (lane < 4) {
        warp_maximum[warp][head] = state.maximum[tile][i];
        warp_sum[warp][head] = sum;
      }
      for (int k = 0; k < kHeadDim / 16; ++k) {
        float* const to = warp_output + head * kPadded + k * 16 + lane / 4;
        to[0] = state.output[tile][k][i];
        to[8] = state.output[tile][k][i + 2];
      }
    }
  }
  __syncthreads();
  const int64_t part = (row * splits + split) * p.group;
  for (int i = threadIdx.x; i < p.group * (kHeadDim / 4); i += kThreads) {
    const int head = i / (kHeadDim / 4);
    const int channel = i % (kHeadDim / 4) * 4;
    float maximum = -INFINITY;
    for (int w = 0; w < kWarps; ++w) maximum = fmaxf(maximum, warp_maximum[w][head]);
    float sum = 0;
    float4 total{};
    for (int w = 0; w < kWarps; ++w) {
      const float weight = Exp2(warp_maximum[w][head] - maximum);
      const auto* from = reinterpret_cast<const float*>(shared + w * Place::kBytes);
      sum += weight * warp_sum[w][head];
      AddScaled(total, weight, *reinterpret_cast<const float4*>(from + head * kPadded + channel));
    }
    if (used == 1) {
      Store4(output + head * kHeadDim + channel, total, 1 / sum);
    } else {
      *reinterpret_cast<float4*>(p.partial + (part + head) * kHeadDim + channel) = total;
      if (channel == 0) {
        p.maximum[part + head] = maximum;
        p.sum[part + head] = sum;
      }
    }
  }
  if (used == 1) return;

  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(p.arrived + row, 1) == static_cast<unsigned>(used - 1);
    if (last) p.arrived[row] = 0;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  MergeSplits<kHeadDim, kWarps>(p, row, splits, used);
}

/// One compiled shape of the kernel, and what the current device makes of it.
template <int kHeadDim, int kTiles, int kWarps, bool kWholeSteps>
struct Variant {
  static constexpr auto kKernel = DecodeAttentionKernel<kHeadDim, kTiles, kWarps, kWholeSteps>;
  static constexpr int kSharedBytes = kWarps * Ring<kHeadDim>::kBytes;

  /// How many CTAs the device holds at once. Makes the kernel ready to launch on first use.
  static int Resident(int device) {
    static std::array<std::atomic<int>, 64> known{};
    std::atomic<int>& resident = known.at(device);
    if (resident == 0) {
      int processors = 0, each = 0;
      Check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
            "cudaDeviceGetAttribute");
      Check(
          cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
          "cudaFuncSetAttribute(DecodeAttention)");
      Check(
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kKernel, kWarps * 32, kSharedBytes),
          "cudaOccupancyMaxActiveBlocksPerMultiprocessor(DecodeAttention)");
      resident = processors * std::max(each, 1);
    }
    return resident;
  }

  static void Launch(const Params& params, dim3 grid, cudaStream_t stream) {
    kKernel<<<grid, kWarps * 32, kSharedBytes, stream>>>(params);
  }
};

int CurrentDevice() {
  int device = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

/// Whether a CTA gets `bytes` of shared memory, and 2 KiB for what the kernel declares.
bool HasRoomFor(int device, int bytes) {
  static std::array<std::atomic<int>, 64> known{};
  std::atomic<int>& room = known.at(device);
  if (room == 0) {
    int value = 0;
    Check(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "cudaDeviceGetAttribute");
    room = value;
  }
  return room >= bytes + 2048;
}

/// Calls use(Variant) with the shape that serves `args` on `device`.
template <class Use>
auto WithVariant(const DecodeAttentionArgs& args, int device, Use use) {
  const bool whole_steps = args.cache.page_tokens % kStepTokens == 0;
  const auto with_warps = [&]<int kHeadDim, int kTiles, int kWarps>() {
    return whole_steps ? use(Variant<kHeadDim, kTiles, kWarps, true>{})
                       : use(Variant<kHeadDim, kTiles, kWarps, false>{});
  };
  const auto with_tiles = [&]<int kHeadDim, int kWarps>() {
    return args.group <= 8 ? with_warps.template operator()<kHeadDim, 1, kWarps>()
                           : with_warps.template operator()<kHeadDim, 2, kWarps>();
  };
  if (args.cache.head_dim == 64) return with_tiles.template operator()<64, kManyWarps>();
  return HasRoomFor(device, kManyWarps * Ring<128>::kBytes)
             ? with_tiles.template operator()<128, kManyWarps>()
             : with_tiles.template operator()<128, kFewWarps>();
}

/// The number of splits with the least time: waves of CTAs, each as long as its tokens and a fixed
/// cost, counted in tokens too.
int ChooseSplits(int64_t rows, int max_tokens, int resident) {
  constexpr int64_t kFixedTokens = 512;
  if (rows > kCounters) return 1;
  const int64_t steps = (max_tokens + kStepTokens - 1) / kStepTokens;
  const int64_t most =
      std::clamp<int64_t>(kMaxWaves * int64_t{resident} / rows, 1, std::max<int64_t>(steps, 1));
  int best = 1;
  int64_t best_cost = INT64_MAX;
  for (int64_t splits = 1; splits <= most; ++splits) {
    const int64_t waves = (rows * splits + resident - 1) / resident;
    const int64_t share = (steps + splits - 1) / splits * kStepTokens;
    const int64_t cost = waves * (share + kFixedTokens);
    if (cost < best_cost) {
      best_cost = cost;
      best = static_cast<int>(splits);
    }
  }
  return best;
}

void CheckArguments(const DecodeAttentionArgs& args) {
  const PagedKv& cache = args.cache;
  const auto fail = [](const std::string& what, const char* remedy) {
    throw Error(what, "DecodeAttention", remedy);
  };
  if (cache.head_dim != 64 && cache.head_dim != 128) {
    fail("head dimension " + std::to_string(cache.head_dim) + " is not supported", "use 64 or 128");
  }
  if (args.group < 1 || args.group > 16) {
    fail(std::to_string(args.group) + " query heads a KV head are not supported", "use 1 to 16");
  }
  if (cache.page_tokens < 1 || cache.kv_heads < 1) {
    fail("a cache of " + std::to_string(cache.kv_heads) + " KV heads in pages of " +
             std::to_string(cache.page_tokens) + " tokens",
         "give at least one of each");
  }
  if ((cache.slot_stride | cache.kv_stride | cache.token_stride | cache.head_stride) % 8 != 0) {
    fail("a stride of the cache is not a multiple of 8 elements", "align rows to 16 bytes");
  }
  if (args.sequences < 0 || args.pages.max_tokens < 0) {
    fail("a negative number of sequences or tokens", "give at least zero");
  }
  if (args.rows_a_head < 1) {
    fail(std::to_string(args.rows_a_head) + " rows a KV head", "give at least one");
  }
}

int64_t MaxPartials(const DecodeAttentionArgs& args, int device) {
  return WithVariant(args, device, [&](auto variant) {
    return int64_t{kMaxWaves} * variant.Resident(device) * args.group;
  });
}

}  // namespace

int64_t DecodeAttentionWorkspace(const DecodeAttentionArgs& args) {
  CheckArguments(args);
  return kCounters + MaxPartials(args, CurrentDevice()) * (args.cache.head_dim + 2);
}

void DecodeAttention(const DecodeAttentionArgs& args, cudaStream_t stream) {
  CheckArguments(args);
  const int64_t rows = int64_t{args.sequences} * args.cache.kv_heads * args.rows_a_head;
  if (rows == 0) return;
  const int device = CurrentDevice();
  const int64_t partials = MaxPartials(args, device);
  constexpr float kLog2E = 1.44269504088896341f;
  Params params{.query = args.query,
                .cache = args.cache,
                .pages = args.pages,
                .output = args.output,
                .arrived = reinterpret_cast<unsigned*>(args.workspace),
                .partial = args.workspace + kCounters,
                .maximum = args.workspace + kCounters + partials * args.cache.head_dim,
                .sum = args.workspace + kCounters + partials * (args.cache.head_dim + 1),
                .rows_a_head = args.rows_a_head,
                .group = args.group,
                .scale = args.scale * kLog2E};
  WithVariant(args, device, [&](auto variant) {
    const int splits = ChooseSplits(rows, args.pages.max_tokens, variant.Resident(device));
    variant.Launch(params, dim3(static_cast<unsigned>(rows), splits), stream);
  });
  CheckLaunch("DecodeAttention");
}

}  // namespace stallcast::kernels
