// Prefill attention on warpgroup products: a block takes 128 queries of one head. One warpgroup
// loads keys and values, 128 tokens at a time, into a ring; two others each hold 64 queries. A
// tile's scores are computed while the values of the tile before are added.
#ifdef STALLCAST_SM90A

#include "kernels/attention/prefill_params.cuh"
#include "kernels/device/tensor_core.cuh"
#include "kernels/device/warpgroup.cuh"
#include "kernels/runtime/cuda_error.h"

namespace stallcast::kernels {
namespace {

constexpr int kGroupThreads = 128, kGroupQueries = 64, kGroups = 2;
constexpr int kThreads = (1 + kGroups) * kGroupThreads;
constexpr int kBlockQueries = kGroups * kGroupQueries;
constexpr int kKeys = 128;  ///< of a tile
constexpr int kStages = 6;  ///< of the ring; keys and values of a tile take one each

/// A tile in shared memory: columns of 64 channels, as products take them.
template <int kHeadDim>
struct Place {
  static constexpr int kRows = 128;
  static constexpr int kColumnBytes = kRows * 128;
  static constexpr int kBytes = kHeadDim / 64 * kColumnBytes;
  static_assert(kBlockQueries == kRows && kKeys == kRows);

  __device__ static uint32_t At(int row, int piece) {
    return piece / 8 * kColumnBytes + row * 128 + SwizzledPiece(row, piece % 8) * 16;
  }

  /// Begins to copy 128 rows of 16-byte pieces: lane i of a warp knows where the warp's row i
  /// begins.
  __device__ static void Load(uint32_t to, const __nv_bfloat16* base, uint32_t first_piece) {
    constexpr int kPieces = kHeadDim / 8, kRowsAtOnce = 32 / kPieces;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int piece = lane % kPieces;
    const int warp_row = static_cast<int>(threadIdx.x) / 32 * 32;
    const auto* from = reinterpret_cast<const uint4*>(base) + piece;
#pragma unroll 8
    for (int i = 0; i < 32; i += kRowsAtOnce) {
      const int row = i + lane / kPieces;
      const uint32_t at = __shfl_sync(0xffffffffu, first_piece, row);
      CopyAsync(to + At(warp_row + row, piece), from + at, 16);
    }
  }
};

template <int kHeadDim>
constexpr int kSharedBytes = (1 + kStages) * Place<kHeadDim>::kBytes;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// The ring's barriers: of a stage, "full" ends a phase when all loaders have copied their part,
/// "empty" when all warps that work have read it. Unit 2 t is tile t's keys, 2 t + 1 its values.
struct Ring {
  uint32_t full, empty, data;
  int stage_bytes;

  __device__ uint32_t Data(int unit) const { return data + unit % kStages * stage_bytes; }
  __device__ uint32_t Full(int unit) const { return full + unit % kStages * 8; }
  __device__ uint32_t Empty(int unit) const { return empty + unit % kStages * 8; }
  __device__ static uint32_t Parity(int unit) { return unit / kStages % 2; }
};

template <int kHeadDim>
__device__ void LoadAll(const PrefillParams& p, const PrefillBlock& block, const Ring& ring,
                        uint32_t queries, int tiles) {
  using Tiles = Place<kHeadDim>;
  const int thread = static_cast<int>(threadIdx.x);
  // Past the end the last row is repeated: what comes of it is masked, or not stored.
  const auto first_piece = [&](int tile) {
    const int token = min(tile * kKeys + thread, block.end - 1);
    return static_cast<uint32_t>(p.KeyOffset(block.sequence, token, block.end) / 8);
  };
  const int query = min(thread, p.args.tokens - 1 - block.first);
  Tiles::Load(queries, p.args.query + block.query_at,
              static_cast<uint32_t>(query * block.query_stride / 8));
  uint32_t next = first_piece(0);
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t rows = next;
    next = first_piece(tile + 1);
    for (int unit = 2 * tile; unit < 2 * tile + 2; ++unit) {
      if (unit >= kStages) Await(ring.Empty(unit), ring.Parity(unit - kStages));
      Tiles::Load(ring.Data(unit), block.keys + (unit % 2 == 0 ? 0 : p.args.cache.kv_stride), rows);
      ArriveWithCopies(ring.Full(unit));
    }
  }
  WaitForCopies<0>();  // shared memory goes with the block
}

/// A warpgroup's 64 queries; a thread's parts are those of mma.sync's tiles.
template <int kHeadDim>
class Worker {
  using Tiles = Place<kHeadDim>;

 public:
  __device__ Worker(const PrefillParams& p, const PrefillBlock& block, const Ring& ring,
                    uint32_t queries)
      : ring_(ring), scale_(p.scale) {
    const int thread = static_cast<int>(threadIdx.x) - kGroupThreads;
    group_ = thread / kGroupThreads;
    lane_ = thread % 32;
    query_ = thread / 32 * 16 + lane_ / 4;
    queries_ = queries + group_ * kGroupQueries * 128;
    position_ = p.args.past + block.first + query_;
  }

  __device__ void Walk(int tiles) {
    float factor[2];
    if (group_ == 1 && tiles > 1) PassTurn();
    BeginScores(0);
    AwaitProducts<0>();
    Pin(score_);
    Leave(0);
    Mask(0);
    Weigh(factor);
    Pack();
    for (int tile = 1; tile < tiles; ++tile) {
      AwaitTurn();
      BeginScores(2 * tile);
      BeginValues(2 * tile - 1);
      if (group_ == 0 || tile + 1 < tiles) PassTurn();
      AwaitProducts<1>();
      Pin(score_);
      Mask(tile);
      Weigh(factor);
      // Sums are never negative, but the compiler does not know: it would put the weights off until
      // the values are added, and leave nothing to do meanwhile.
      if (!(sum_[0] + sum_[1] < 0)) Leave(2 * tile);
      AwaitProducts<0>();
      Pin(output_);
      Pin(weight_);
      Leave(2 * tile - 1);
      Rescale(factor);
      Pack();
    }
    BeginValues(2 * tiles - 1);
    AwaitProducts<0>();
    Pin(output_);
  }

  __device__ void Store(__nv_bfloat16* block_output, int64_t stride, int queries) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = sum_[i];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const float factor = 1 / sum;
      const int query = query_ + i * 8;
      if (query >= queries) continue;
      auto* row = reinterpret_cast<uint32_t*>(block_output + query * stride) + lane_ % 4;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        row[n * 4] = PackBf16(output_[n][2 * i] * factor, output_[n][2 * i + 1] * factor);
      }
    }
  }

 private:
  // The warpgroups begin products in turn, so that one computes weights while the other's run.
  __device__ void AwaitTurn() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group_), "n"(kGroups * kGroupThreads) : "memory");
  }
  __device__ void PassTurn() const {
    asm volatile("bar.arrive %0, %1;" ::"r"(2 - group_), "n"(kGroups * kGroupThreads) : "memory");
  }

  __device__ void BeginScores(int unit) {
    AwaitFull(unit);
    const uint32_t keys = ring_.Data(unit);
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const uint32_t at = k / 4 * Tiles::kColumnBytes + k % 4 * 32;
      MultiplyRows(score_, Tile(queries_ + at), Tile(keys + at), k > 0);
    }
    CommitProducts();
  }

  __device__ void BeginValues(int unit) {
    Pin(output_);
    Pin(weight_);
    AwaitFull(unit);
    const uint32_t values = ring_.Data(unit);
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      AddProduct(output_, weight_[k], Tile(values + k * 16 * 128, Tiles::kColumnBytes));
    }
    CommitProducts();
  }

  __device__ void AwaitFull(int unit) {
    Await(ring_.Full(unit), ring_.Parity(unit));
    PublishToProducts();
  }

  __device__ void Leave(int unit) {
    if (lane_ == 0) Arrive(ring_.Empty(unit));
  }

  __device__ void Mask(int tile) {
    const int first_key = tile * kKeys + lane_ % 4 * 2;
    if (tile * kKeys + kKeys <= position_ - lane_ / 4 + 1) return;  // the same for all lanes
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (first_key + n * 8 + i % 2 > position_ + i / 2 * 8) score_[n][i] = -INFINITY;
      }
    }
  }

  /// Scores to weights; `factor` is for what was summed before.
  __device__ void Weigh(float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float largest = maximum_[i];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        largest = fmaxf(largest, fmaxf(score_[n][2 * i], score_[n][2 * i + 1]));
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      factor[i] = Exp2((maximum_[i] - largest) * scale_);
      maximum_[i] = largest;
      const float shift = largest * scale_;
      float sum[2] = {};
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = score_[n][2 * i + j];
          score = Exp2(score * scale_ - shift);
          sum[j] += score;
        }
      }
      sum_[i] = sum_[i] * factor[i] + (sum[0] + sum[1]);
    }
  }

  __device__ void Rescale(const float (&factor)[2]) {
    if (!__any_sync(0xffffffffu, factor[0] != 1 || factor[1] != 1)) return;  // mostly
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) output_[n][i] *= factor[i / 2];
    }
  }

  __device__ void Pack() {
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&pair)[4] = score_[2 * k + i / 2];
        weight_[k][i] = PackBf16(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
      }
    }
  }

  /// In place of -infinity before the first key, so that differences are numbers.
  static constexpr float kNone = -1e30f;

  const Ring ring_;
  const float scale_;
  int group_, lane_;
  int query_, position_;  // the thread's first query, in the block and in the sequence
  uint32_t queries_;
  float score_[kKeys / 8][4];
  uint32_t weight_[kKeys / 16][4];
  float output_[kHeadDim / 8][4] = {};
  float maximum_[2] = {kNone, kNone};
  float sum_[2] = {};
};

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1) PrefillAttentionHopper(const PrefillParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ uint64_t barriers[2 * kStages];
  const auto queries = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const auto full = static_cast<uint32_t>(__cvta_generic_to_shared(barriers));
  const Ring ring{full, full + kStages * 8, queries + Place<kHeadDim>::kBytes,
                  Place<kHeadDim>::kBytes};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(ring.Full(stage), kGroupThreads);
      InitBarrier(ring.Empty(stage), kGroups * kGroupThreads / 32);
    }
  }
  __syncthreads();
  const PrefillBlock block(p, kBlockQueries);
  const int tiles = (block.end + kKeys - 1) / kKeys;
  if (threadIdx.x < kGroupThreads) {
    ShrinkRegisters<40>();
    LoadAll<kHeadDim>(p, block, ring, queries, tiles);
  } else {
    GrowRegisters<232>();
    Worker<kHeadDim> worker(p, block, ring, queries);
    worker.Walk(tiles);
    worker.Store(p.args.output + block.query_at, block.query_stride, p.args.tokens - block.first);
  }
#endif
}

template <int kHeadDim>
void Launch(const PrefillParams& params, cudaStream_t stream) {
  Check(cudaFuncSetAttribute(PrefillAttentionHopper<kHeadDim>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<kHeadDim>),
        "cudaFuncSetAttribute(PrefillAttention)");
  PrefillAttentionHopper<kHeadDim>
      <<<PrefillBlocks(params, kBlockQueries), kThreads, kSharedBytes<kHeadDim>, stream>>>(params);
  CheckLaunch("PrefillAttention");
}

}  // namespace

void LaunchPrefillAttentionHopper(const PrefillParams& params, cudaStream_t stream) {
  params.args.cache.head_dim == 64 ? Launch<64>(params, stream) : Launch<128>(params, stream);
}

}  // namespace stallcast::kernels

#endif  // STALLCAST_SM90A
