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
#include <cuda/atomic>
#include <string>

#include "kernels/attention/decode_attention.h"
#include "kernels/device/divide.cuh"
#include "kernels/device/tensor_core.cuh"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr unsigned kFullWarp = 0xffffffff;
constexpr int kStepTokens = 16;
/// Many warps with short rings: a warp is bound by its instructions' latency before the memory is.
constexpr int kStages = 2;
constexpr int kManyWarps = 10;  ///< 160 KiB of rings at head_dim 128, 80 KiB at 64
constexpr int kFewWarps = 5;  ///< 80 KiB: where a CTA gets less (two on A100, one on GeForce cards)
/// Rows that may be split have an arrival counter each; more rows fill any machine unsplit.
constexpr int kCounters = 4096;
constexpr int kMaxWaves = 4;
constexpr int kMergeBatch = 16;  ///< splits of a row: as many as there are for 8 rows

/// What some of a row's tokens come to for four channels of a head.
struct alignas(16) Part {
  float4 output{};            ///< sum of weight * value
  float maximum = -INFINITY;  ///< of the scores, in base 2
  float sum = 0;              ///< of weight = 2^(score - maximum)

  template <int kCount>
  __device__ void Add(const Part (&others)[kCount]) {
    const float old = maximum;
    for (const Part& other : others) maximum = fmaxf(maximum, other.maximum);
    const float base = maximum == -INFINITY ? 0 : maximum;  // no tokens yet
    Scale(Exp2(old - base));
    for (const Part& other : others) {
      const float weight = Exp2(other.maximum - base);
      sum += weight * other.sum;
      output.x += weight * other.output.x;
      output.y += weight * other.output.y;
      output.z += weight * other.output.z;
      output.w += weight * other.output.w;
    }
  }

  __device__ void Scale(float factor) {
    sum *= factor;
    output.x *= factor;
    output.y *= factor;
    output.z *= factor;
    output.w *= factor;
  }

  __device__ void StoreAverage(__nv_bfloat16* to) {
    Scale(1 / sum);
    const uint2 packed = {PackBf16(output.x, output.y), PackBf16(output.z, output.w)};
    *reinterpret_cast<uint2*>(to) = packed;
  }
};

struct Params {
  const __nv_bfloat16* query;
  PagedKv cache;
  PageTable pages;
  __nv_bfloat16* output;
  unsigned* arrived;  ///< [row], zero between launches
  Part* parts;        ///< [row][split][group][head_dim / 4]
  int32_t share;      ///< tokens a split, whole steps
  int32_t group;
  float scale;  ///< with log2(e), for Exp2
  Divider by_page, by_share;
  Divider by_head, by_sequence;  ///< row -> KV head of all sequences' -> sequence
};

/// Two floats to bf16, then the warp's 8 x 8 matrix of them transposed.
__device__ uint32_t PackTransposed(float low, float high) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(PackBf16(low, high)));
  return result;
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
  __device__ PageCursor(const int32_t* table, const PagedKv& cache, const Divider& by_page,
                        int token, int stride, int end)
      : table_(table),
        page_tokens_(cache.page_tokens),
        stride_(stride),
        end_(end),
        token_(token),
        page_(by_page.Quotient(token)),
        place_(by_page.Remainder(token, page_)),
        stride_pages_(by_page.Quotient(stride)),
        stride_places_(by_page.Remainder(stride, stride_pages_)) {}

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

/// Merges parts get(0) to get(count - 1), the loads of kBatch of them in flight together.
template <int kBatch, class Get>
__device__ Part Merged(int count, const Get& get) {
  Part merged;
  for (int first = 0; first < count; first += kBatch) {
    Part some[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i < count) some[i] = get(first + i);
    }
    merged.Add(some);
  }
  return merged;
}

template <int kHeadDim, int kTiles, int kWarps, bool kWholeSteps>
__global__ void __launch_bounds__(kWarps * 32) DecodeAttentionKernel(const Params p) {
  using Place = Ring<kHeadDim>;
  constexpr int kPieces = kHeadDim / 8;  // of 16 bytes, in a token
  constexpr int kQuads = kHeadDim / 4;   // of channels
  constexpr int kPadded = kHeadDim + 4;  // floats, to spread the heads over the banks
  constexpr int kThreads = kWarps * 32;
  static_assert(kTiles * 8 * kPadded * 4 <= Place::kBytes);
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float warp_maximum[kWarps][kTiles * 8];
  __shared__ float warp_sum[kWarps][kTiles * 8];

  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int row = static_cast<int>(blockIdx.x);
  const int split = static_cast<int>(blockIdx.y);
  const int splits = static_cast<int>(gridDim.y);
  const int tokens = min(p.pages.tokens[row], p.pages.max_tokens);

  // The warp's step s holds the 16 tokens from token_of(s). Where pages hold whole steps, a lane
  // needs only the slot of its step; elsewhere lane i looks token i % 16 up for all. The first look
  // does not wait for the row's length: what it finds past that is not followed.
  const int first = split * p.share;
  const auto token_of = [&](int step) { return first + (step * kWarps + warp) * kStepTokens; };
  PageCursor cursor(p.pages.table + int64_t{row} * p.pages.max_pages, p.cache, p.by_page,
                    token_of(0) + (kWholeSteps ? lane / kPieces : lane % kStepTokens),
                    kWarps * kStepTokens, p.pages.max_tokens);
  Spot spots[kStages];
#pragma unroll
  for (int i = 0; i < kStages; ++i) spots[i] = cursor.Next();

  const int end = min(tokens, first + p.share);
  const int items = p.group * kQuads;
  __nv_bfloat16* const output = p.output + int64_t{row} * p.group * kHeadDim;
  if (first >= end) {  // every used split has a token; the others leave
    for (int i = threadIdx.x; split == 0 && i < items * 4; i += kThreads) output[i] = 0;
    return;
  }
  const int steps = max(0, (end - token_of(0) + kWarps * kStepTokens - 1) / (kWarps * kStepTokens));
  const uint32_t ring =
      static_cast<uint32_t>(__cvta_generic_to_shared(shared)) + warp * Place::kBytes;
  const uint32_t kv_head = p.by_head.Quotient(row);
  const uint32_t sequence = p.by_sequence.Quotient(kv_head);
  const __nv_bfloat16* const lane_data =
      p.cache.data + int64_t{sequence} * p.pages.slots_a_sequence * p.cache.slot_stride +
      p.by_sequence.Remainder(kv_head, sequence) * p.cache.head_stride + lane % kPieces * 8;
  // What is small and read again, tables and parts, stays in L2.
  const uint64_t read_once = EvictFirst();
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
      CopyAsync(place, key, bytes, read_once);
      CopyAsync(place + Place::kPlaneBytes, key + p.cache.kv_stride, bytes, read_once);
    }
  };

#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < steps) fetch(i, spots[i]);
    CommitCopies();
  }
  Spot next = spots[kStages - 1];  // looked up a step ahead of its use
  WarpState<kHeadDim, kTiles> state(p.query + int64_t{row} * p.group * kHeadDim, p.group, lane);
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
  const int used = static_cast<int>(p.by_share.Quotient(tokens - 1)) + 1;
  Part* const row_parts = p.parts + int64_t{row} * splits * items;
  for (int item = threadIdx.x; item < items; item += kThreads) {
    const int of_head = item / kQuads;
    const int at = of_head * kPadded + item % kQuads * 4;
    Part merged = Merged<kWarps>(kWarps, [&](int w) {
      const auto* from = reinterpret_cast<const float*>(shared + w * Place::kBytes);
      return Part{*reinterpret_cast<const float4*>(from + at), warp_maximum[w][of_head],
                  warp_sum[w][of_head]};
    });
    if (used == 1) {
      merged.StoreAverage(output + item * 4);
    } else {
      row_parts[split * items + item] = merged;
    }
  }
  if (used == 1) return;

  // The last to arrive sees what the others stored before they did.
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    const cuda::atomic_ref<unsigned, cuda::thread_scope_device> arrived(p.arrived[row]);
    last = arrived.fetch_add(1, cuda::memory_order_acq_rel) == static_cast<unsigned>(used - 1);
    if (last) arrived.store(0, cuda::memory_order_relaxed);
  }
  if (!__syncthreads_or(last)) return;
  for (int item = threadIdx.x; item < items; item += kThreads) {
    Part merged = Merged<kMergeBatch>(used, [&](int i) {
      const Part* const from = row_parts + i * items + item;
      return Part{__ldcg(&from->output), __ldcg(&from->maximum), __ldcg(&from->sum)};
    });
    merged.StoreAverage(output + item * 4);
  }
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

/// Tokens a split for the least time: waves of CTAs, each as long as its tokens and a fixed cost,
/// counted in tokens too.
int ChooseShare(int64_t rows, int max_tokens, int resident) {
  constexpr int64_t kFixedTokens = 512;
  const int64_t steps = (max_tokens + kStepTokens - 1) / kStepTokens;
  const int64_t most = rows > kCounters ? 1
                                        : std::clamp<int64_t>(kMaxWaves * int64_t{resident} / rows,
                                                              1, std::max<int64_t>(steps, 1));
  int64_t best = 0;
  int64_t best_cost = INT64_MAX;
  for (int64_t splits = 1; splits <= most; ++splits) {
    const int64_t waves = (rows * splits + resident - 1) / resident;
    const int64_t share = std::max<int64_t>((steps + splits - 1) / splits, 1) * kStepTokens;
    const int64_t cost = waves * (share + kFixedTokens);
    if (cost < best_cost) {
      best_cost = cost;
      best = share;
    }
  }
  return static_cast<int>(best);
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

// With pages of any size: a workspace serves caches of several.
int64_t MaxParts(DecodeAttentionArgs args, int device) {
  int64_t parts = 0;
  for (const int32_t page_tokens : {1, kStepTokens}) {
    args.cache.page_tokens = page_tokens;
    parts = std::max(parts, WithVariant(args, device, [&](auto variant) {
                       return int64_t{kMaxWaves} * variant.Resident(device) * args.group *
                              (args.cache.head_dim / 4);
                     }));
  }
  return parts;
}

}  // namespace

int64_t DecodeAttentionWorkspace(const DecodeAttentionArgs& args) {
  CheckArguments(args);
  constexpr int64_t kPartFloats = sizeof(Part) / sizeof(float);
  return kCounters + MaxParts(args, CurrentDevice()) * kPartFloats;
}

void DecodeAttention(const DecodeAttentionArgs& args, cudaStream_t stream) {
  CheckArguments(args);
  const int64_t rows = int64_t{args.sequences} * args.cache.kv_heads * args.rows_a_head;
  if (rows == 0) return;
  const int device = CurrentDevice();
  PageTable pages = args.pages;
  pages.max_tokens = static_cast<int32_t>(
      std::min<int64_t>(pages.max_tokens, int64_t{pages.max_pages} * args.cache.page_tokens));
  constexpr float kLog2E = 1.44269504088896341f;
  WithVariant(args, device, [&](auto variant) {
    const int share = ChooseShare(rows, pages.max_tokens, variant.Resident(device));
    const int splits = std::max(1, (pages.max_tokens + share - 1) / share);
    const Params params{.query = args.query,
                        .cache = args.cache,
                        .pages = pages,
                        .output = args.output,
                        .arrived = reinterpret_cast<unsigned*>(args.workspace),
                        .parts = reinterpret_cast<Part*>(args.workspace + kCounters),
                        .share = share,
                        .group = args.group,
                        .scale = args.scale * kLog2E,
                        .by_page = Divider(args.cache.page_tokens),
                        .by_share = Divider(share),
                        .by_head = Divider(args.rows_a_head),
                        .by_sequence = Divider(args.cache.kv_heads)};
    variant.Launch(params, dim3(static_cast<unsigned>(rows), splits), stream);
  });
  CheckLaunch("DecodeAttention");
}

}  // namespace stallcast::kernels
