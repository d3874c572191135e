// k-means' search on warpgroup products. Four warpgroups hold 128 keys each and walk all centroids
// of their row, 64 at a time, which come through a ring in shared memory. Centroids are the rows of
// a product and keys its columns: a thread then meets few centroids and many keys, so that a
// centroid's bias stays in a register and a word has room for all places, and a key's best word is
// all there is to keep. The warpgroups multiply in turn, two at a time, and the others meanwhile
// look for the best of theirs.
#ifdef STALLCAST_SM90A

#include <algorithm>

#include "kernels/cuda_error.h"
#include "kernels/device/divide.cuh"
#include "kernels/device/k_means_params.cuh"
#include "kernels/device/tensor_core.cuh"
#include "kernels/device_attribute.h"

namespace stallcast::kernels {
namespace {

constexpr int kGroupThreads = 128, kGroupKeys = 128, kGroups = 4;
constexpr int kThreads = kGroups * kGroupThreads;
constexpr int kBlockKeys = kGroups * kGroupKeys;
constexpr int kStages = 8;     ///< of the ring, each a tile of centroids
constexpr int kPartials = 32;  ///< best words of a key before they are compared: (warp, g)

struct SearchParams {
  NearestParams search;
  Divider by_tiles;       ///< a row's
  Divider by_row_blocks;  ///< blocks of keys of a row
  int tiles, row_blocks;
};

template <int kDim>
struct Shared {
  static constexpr int kTile = SwizzledCentroids<kDim>::kTile;
  /// A warpgroup's keys, and its best words when it is done with them.
  static constexpr int kKeyBytes = kGroupKeys * std::max(kDim, kPartials * 4);

  alignas(1024) int8_t centroids[kStages][kTile * kDim];
  alignas(1024) int8_t keys[kGroups][2][kKeyBytes];  ///< in use, and the next
  alignas(16) int32_t bias[kStages][kTile];
  uint64_t full[kStages];   ///< ends a phase when a tile is there
  uint64_t empty[kStages];  ///< ends a phase when all warps are done with it
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ uint32_t Address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/// The tiles that a block of the grid reads, one after the other: unit u is tile u % tiles for its
/// block of keys number u / tiles.
template <int kDim>
class Ring {
  static constexpr int kTile = SwizzledCentroids<kDim>::kTile;

 public:
  __device__ Ring(const SearchParams& p, Shared<kDim>& shared, int units)
      : p_(p), shared_(shared), units_(units) {}

  /// By one thread, before any other member is called.
  __device__ void Begin() {
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(Address(&shared_.full[stage]), 1);
      InitBarrier(Address(&shared_.empty[stage]), kThreads / 32);
    }
    PublishBarriers();
    for (int unit = 0; unit < min(units_, kStages); ++unit) Fill(unit);
  }
  __device__ void AwaitFull(int unit) { Await(Address(&shared_.full[Stage(unit)]), Parity(unit)); }
  __device__ const int8_t* Centroids(int unit) const { return shared_.centroids[Stage(unit)]; }
  __device__ const int32_t* Bias(int unit) const { return shared_.bias[Stage(unit)]; }
  /// By one thread of each warp.
  __device__ void Leave(int unit) { Arrive(Address(&shared_.empty[Stage(unit)])); }
  /// By one thread: fills the stage again once it is empty.
  __device__ void Refill(int unit) {
    if (unit + kStages >= units_) return;
    Await(Address(&shared_.empty[Stage(unit)]), Parity(unit));
    Fill(unit + kStages);
  }

 private:
  __device__ static int Stage(uint32_t unit) { return unit % kStages; }
  __device__ static uint32_t Parity(uint32_t unit) { return unit / kStages % 2; }

  __device__ void Fill(int unit) {
    const auto pass = p_.by_tiles.Quotient(unit);
    const auto tile = p_.by_tiles.Remainder(unit, pass);
    const auto row = p_.by_row_blocks.Quotient(blockIdx.x + pass * gridDim.x);
    const int64_t first = int64_t{row} * p_.search.padded + tile * kTile;
    const int stage = Stage(unit);
    const uint32_t full = Address(&shared_.full[stage]);
    constexpr int kBytes = kTile * kDim, kBiasBytes = kTile * sizeof(int32_t);
    ArriveAndExpect(full, kBytes + kBiasBytes);
    CopyBulk(Address(shared_.centroids[stage]), p_.search.centroids + first * kDim, kBytes, full);
    CopyBulk(Address(shared_.bias[stage]), p_.search.bias + first, kBiasBytes, full);
  }

  const SearchParams& p_;
  Shared<kDim>& shared_;
  const int units_;
};

/// A warpgroup.
template <int kDim>
class Searcher {
  using Layout = SwizzledCentroids<kDim>;

 public:
  __device__ Searcher(const SearchParams& p, Shared<kDim>& shared, Ring<kDim>& ring, int passes)
      : p_(p),
        shared_(shared),
        ring_(ring),
        passes_(passes),
        group_(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroupThreads, 0)),
        thread_(static_cast<int>(threadIdx.x) % kGroupThreads) {}

  __device__ void Walk() {
    // As if there had been a tile before.
    if (group_ + 1 >= kGroups) Admit(1);
    if (group_ + 2 >= kGroups) Admit(2);
    RequestKeys(0);
    int unit = 0;
    for (int pass = 0; pass < passes_; ++pass) {
      WaitForCopies<0>();
      PublishToProducts();
      AwaitGroup();
      if (pass + 1 < passes_) RequestKeys(pass + 1);
#pragma unroll
      for (int n = 0; n < kGroupKeys / 8; ++n) best_[n][0] = best_[n][1] = INT32_MIN;
      const uint64_t keys = Tile<kDim>(Address(shared_.keys[group_][pass % 2]));
      for (const int end = unit + p_.tiles; unit < end; ++unit) SearchTile(unit, keys);
      Label(pass);
    }
  }

 private:
  // A group's turn comes when the one before it has begun its products and the one before that has
  // ended its own. So there are always some to run, and never more than two groups' to end at once.
  static constexpr int kTurnThreads = (1 + 2) * kGroupThreads;
  __device__ void AwaitTurn() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group_), "n"(kTurnThreads) : "memory");
  }
  __device__ void Admit(int ahead) const {
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + (group_ + ahead) % kGroups), "n"(kTurnThreads)
                 : "memory");
  }
  /// The same where there may be no such turn.
  __device__ void AdmitAfter(int unit, int ahead) const {
    if (unit + 1 < passes_ * p_.tiles || group_ + ahead < kGroups) Admit(ahead);
  }

  /// All warps of the group get here.
  __device__ void AwaitGroup() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + kGroups + group_), "n"(kGroupThreads) : "memory");
  }

  /// The row of the block's keys, and the group's first.
  __device__ int Row(int pass) const {
    return static_cast<int>(p_.by_row_blocks.Quotient(blockIdx.x + pass * gridDim.x));
  }
  __device__ int FirstKey(int pass) const {
    const auto block = static_cast<int>(blockIdx.x + pass * gridDim.x);
    return (block - Row(pass) * p_.row_blocks) * kBlockKeys + group_ * kGroupKeys;
  }

  /// Begins to copy the group's keys; past the end the last one is repeated.
  __device__ void RequestKeys(int pass) {
    constexpr int kPieces = kDim / 16, kRowsAtOnce = kGroupThreads / kPieces;
    const int piece = thread_ % kPieces, first = FirstKey(pass), last = p_.search.tokens - 1;
    const int8_t* from = p_.search.keys + int64_t{Row(pass)} * p_.search.tokens * kDim + piece * 16;
    const uint32_t to = Address(shared_.keys[group_][pass % 2]);
#pragma unroll
    for (int row = thread_ / kPieces; row < kGroupKeys; row += kRowsAtOnce) {
      CopyAsync(to + row * kDim + SwizzledPiece<kDim>(row, piece) * 16,
                from + int64_t{min(first + row, last)} * kDim);
    }
    CommitCopies();
  }

  __device__ void SearchTile(int unit, uint64_t keys) {
    const int lane = thread_ % 32, row = thread_ / 32 * Layout::kWarpRows + lane / 4;
    ring_.AwaitFull(unit);
    const uint64_t centroids = Tile<kDim>(Address(ring_.Centroids(unit)));
    const int32_t low = ring_.Bias(unit)[row], high = ring_.Bias(unit)[row + 8];
    AwaitTurn();
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kDim; k += 32) {
      MultiplyRows(dots_, FurtherInRows(centroids, k), FurtherInRows(keys, k), k > 0);
    }
    CommitProducts();
    AdmitAfter(unit, 1);
    AwaitProducts<0>();
    Pin(dots_);
    AdmitAfter(unit, 2);
    __syncwarp();  // all lanes have their biases
    if (lane == 0) ring_.Leave(unit);
    // The last in turn waits the least for the others.
    if (group_ == kGroups - 1 && thread_ == 0) ring_.Refill(unit);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kGroupKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        best_[n][i] = max(best_[n][i], max(dots_[n][i] * Layout::kFactor + low,
                                           dots_[n][2 + i] * Layout::kFactor + high));
      }
    }
  }

  /// Compares what the threads have found, in the place of the keys, and writes a label a thread.
  __device__ void Label(int pass) {
    int8_t* words = shared_.keys[group_][pass % 2];
    const auto piece_of = [words](int key, int piece) {
      return words + (key * (kPartials / 4) + SwizzledPiece(key, piece)) * 16;
    };
    AwaitGroup();  // no warp's products read keys any more
    const int g = thread_ % 32 / 4, t = thread_ % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      auto* to = reinterpret_cast<int32_t*>(piece_of(2 * t + i, thread_ / 32 * 2 + g / 4)) + g % 4;
#pragma unroll
      for (int n = 0; n < kGroupKeys / 8; ++n) to[n * 8 * kPartials] = best_[n][i];
    }
    AwaitGroup();
    int32_t nearest = INT32_MIN;
    int nearest_warp = 0, nearest_g = 0;
#pragma unroll
    for (int warp = 0; warp < kGroupThreads / 32; ++warp) {
      int32_t most = INT32_MIN;
      int at = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int4 four = *reinterpret_cast<const int4*>(piece_of(thread_, warp * 2 + half));
        const int32_t found[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (found[j] > most) {
            most = found[j];
            at = half * 4 + j;
          }
        }
      }
      // Clusters are numbered by tile, warp, half of the warp's rows, and g; a word's last bit is
      // the half.
      if (most >> 1 > nearest >> 1) {
        nearest = most;
        nearest_warp = warp;
        nearest_g = at;
      }
    }
    const int row = Row(pass), token = FirstKey(pass) + thread_;
    if (token < p_.search.tokens) {
      p_.search.labels[int64_t{row} * p_.search.tokens + token] = static_cast<uint32_t>(
          row * p_.search.clusters + Layout::Cluster(nearest, nearest_warp, nearest_g));
    }
  }

  const SearchParams& p_;
  Shared<kDim>& shared_;
  Ring<kDim>& ring_;
  const int passes_, group_, thread_;
  int32_t dots_[kGroupKeys / 8][4];
  int32_t best_[kGroupKeys / 8][2];
};

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <int kDim>
__global__ void __launch_bounds__(kThreads, 1) FindNearestKernel(const SearchParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<kDim>*>(memory);
  const int blocks = p.search.rows * p.row_blocks;
  const int passes = (blocks - 1 - static_cast<int>(blockIdx.x)) / static_cast<int>(gridDim.x) + 1;
  Ring<kDim> ring(p, shared, passes * p.tiles);
  if (threadIdx.x == 0) ring.Begin();
  __syncthreads();
  Searcher<kDim>(p, shared, ring, passes).Walk();
#endif
}

template <int kDim>
void Launch(const NearestParams& search, cudaStream_t stream) {
  constexpr int kTile = SwizzledCentroids<kDim>::kTile;
  const int tiles = (search.clusters + kTile - 1) / kTile;
  const int row_blocks = (search.tokens + kBlockKeys - 1) / kBlockKeys;
  const SearchParams params{search, Divider(static_cast<uint32_t>(tiles)),
                            Divider(static_cast<uint32_t>(row_blocks)), tiles, row_blocks};
  Check(cudaFuncSetAttribute(FindNearestKernel<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             sizeof(Shared<kDim>)),
        "cudaFuncSetAttribute(FindNearest)");
  const int blocks =
      std::min(search.rows * row_blocks, DeviceAttribute(cudaDevAttrMultiProcessorCount));
  FindNearestKernel<kDim><<<blocks, kThreads, sizeof(Shared<kDim>), stream>>>(params);
  CheckLaunch("KMeans (nearest)");
}

}  // namespace

bool HopperFindsNearest(int dim, int clusters) {
  static_assert(SwizzledCentroids<64>::kMaxClusters == SwizzledCentroids<128>::kMaxClusters);
  return (dim == 64 || dim == 128) && clusters <= SwizzledCentroids<128>::kMaxClusters &&
         DeviceAttribute(cudaDevAttrComputeCapabilityMajor) == 9;
}

void FindNearestHopper(const NearestParams& params, int dim, cudaStream_t stream) {
  dim == 64 ? Launch<64>(params, stream) : Launch<128>(params, stream);
}

}  // namespace stallcast::kernels

#endif  // STALLCAST_SM90A
