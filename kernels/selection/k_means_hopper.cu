// k-means' search on warpgroup products. Two warpgroups hold 128 keys each and walk all centroids
// of their row, 64 at a time, which come through a ring in shared memory. Centroids are the rows of
// a product and keys its columns: a thread then meets few centroids and many keys, so that a
// centroid's bias stays in a register and a word has room for all places, and a key's best word is
// all there is to keep. A multiprocessor has room for two blocks, so that some groups multiply
// while others look for the best of theirs. Blocks are short, so that what a prompt's layer
// launches beside them does not wait for long.
#ifdef STALLCAST_SM90A

#include <algorithm>

#include "kernels/device/tensor_core.cuh"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/device_attribute.h"
#include "kernels/selection/k_means_params.cuh"

namespace stallcast::kernels {
namespace {

constexpr int kGroupThreads = 128, kGroupKeys = 128, kGroups = 2;
constexpr int kThreads = kGroups * kGroupThreads;
constexpr int kBlockKeys = kGroups * kGroupKeys;
constexpr int kStages = 6;     ///< of the ring, each a tile of centroids
constexpr int kPartials = 32;  ///< best words of a key before they are compared: (warp, g)

template <int kDim>
struct Shared {
  static constexpr int kTile = SwizzledCentroids<kDim>::kTile;
  /// A warpgroup's keys, and its best words when it is done with them.
  static constexpr int kKeyBytes = kGroupKeys * std::max(kDim, kPartials * 4);

  alignas(1024) int8_t centroids[kStages][kTile * kDim];
  alignas(1024) int8_t keys[kGroups][kKeyBytes];
  uint64_t full[kStages];   ///< ends a phase when a tile is there
  uint64_t empty[kStages];  ///< ends a phase when all warps are done with it
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ uint32_t Address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/// A row's tiles of centroids, one after the other.
template <int kDim>
class Ring {
  static constexpr int kTile = SwizzledCentroids<kDim>::kTile;

 public:
  __device__ Ring(const NearestParams& p, Shared<kDim>& shared)
      : p_(p), shared_(shared), tiles_((p.clusters + kTile - 1) / kTile) {}

  __device__ int tiles() const { return tiles_; }
  /// By one thread, before any other member is called.
  __device__ void Begin() {
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(Address(&shared_.full[stage]), 1);
      InitBarrier(Address(&shared_.empty[stage]), kThreads / 32);
    }
    PublishBarriers();
    for (int tile = 0; tile < min(tiles_, kStages); ++tile) Fill(tile);
  }
  __device__ void AwaitFull(int tile) { Await(Address(&shared_.full[Stage(tile)]), Parity(tile)); }
  __device__ const int8_t* Centroids(int tile) const { return shared_.centroids[Stage(tile)]; }
  /// A row's are few: they stay in the first cache.
  __device__ int32_t Bias(int tile, int row) const {
    return __ldg(p_.bias + int64_t{blockIdx.y} * p_.padded + tile * kTile + row);
  }
  /// By one thread of each warp.
  __device__ void Leave(int tile) { Arrive(Address(&shared_.empty[Stage(tile)])); }
  /// By one thread: fills the stage again once it is empty.
  __device__ void Refill(int tile) {
    if (tile + kStages >= tiles_) return;
    Await(Address(&shared_.empty[Stage(tile)]), Parity(tile));
    Fill(tile + kStages);
  }

 private:
  __device__ static int Stage(uint32_t tile) { return tile % kStages; }
  __device__ static uint32_t Parity(uint32_t tile) { return tile / kStages % 2; }

  __device__ void Fill(int tile) {
    const int64_t first = int64_t{blockIdx.y} * p_.padded + tile * kTile;
    const int stage = Stage(tile);
    const uint32_t full = Address(&shared_.full[stage]);
    constexpr int kBytes = kTile * kDim;
    ArriveAndExpect(full, kBytes);
    CopyBulk(Address(shared_.centroids[stage]), p_.centroids + first * kDim, kBytes, full);
  }

  const NearestParams& p_;
  Shared<kDim>& shared_;
  const int tiles_;
};

/// A warpgroup.
template <int kDim>
class Searcher {
  using Layout = SwizzledCentroids<kDim>;

 public:
  __device__ Searcher(const NearestParams& p, Shared<kDim>& shared, Ring<kDim>& ring)
      : p_(p),
        shared_(shared),
        ring_(ring),
        group_(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroupThreads, 0)),
        thread_(static_cast<int>(threadIdx.x) % kGroupThreads),
        first_(static_cast<int>(blockIdx.x) * kBlockKeys + group_ * kGroupKeys) {}

  __device__ void Walk() {
    LoadKeys();
#pragma unroll
    for (int n = 0; n < kGroupKeys / 8; ++n) best_[n][0] = best_[n][1] = INT32_MIN;
    const uint64_t keys = Tile<kDim>(Address(shared_.keys[group_]));
    for (int tile = 0; tile < ring_.tiles(); ++tile) SearchTile(tile, keys);
    Label();
  }

 private:
  /// All warps of the group get here.
  __device__ void AwaitGroup() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group_), "n"(kGroupThreads) : "memory");
  }

  /// Past the end the last key is repeated.
  __device__ void LoadKeys() {
    constexpr int kPieces = kDim / 16, kRowsAtOnce = kGroupThreads / kPieces;
    const int piece = thread_ % kPieces, last = p_.tokens - 1;
    const int8_t* from = p_.keys + int64_t{blockIdx.y} * p_.tokens * kDim + piece * 16;
    const uint32_t to = Address(shared_.keys[group_]);
#pragma unroll
    for (int row = thread_ / kPieces; row < kGroupKeys; row += kRowsAtOnce) {
      CopyAsync(to + row * kDim + SwizzledPiece<kDim>(row, piece) * 16,
                from + int64_t{min(first_ + row, last)} * kDim);
    }
    CommitCopies();
    WaitForCopies<0>();
    PublishToProducts();
    AwaitGroup();
  }

  __device__ void SearchTile(int tile, uint64_t keys) {
    const int lane = thread_ % 32, row = thread_ / 32 * Layout::kWarpRows + lane / 4;
    const int32_t low = ring_.Bias(tile, row), high = ring_.Bias(tile, row + 8);
    ring_.AwaitFull(tile);
    const uint64_t centroids = Tile<kDim>(Address(ring_.Centroids(tile)));
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kDim; k += 32) {
      MultiplyRows(dots_, FurtherInRows(centroids, k), FurtherInRows(keys, k), k > 0);
    }
    CommitProducts();
    AwaitProducts<0>();
    Pin(dots_);
    if (lane == 0) ring_.Leave(tile);
    if (group_ == kGroups - 1 && thread_ == 0) ring_.Refill(tile);
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
  __device__ void Label() {
    int8_t* words = shared_.keys[group_];
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
    const int row = static_cast<int>(blockIdx.y), token = first_ + thread_;
    if (token < p_.tokens) {
      p_.labels[int64_t{row} * p_.tokens + token] = static_cast<uint32_t>(
          row * p_.clusters + Layout::Cluster(nearest, nearest_warp, nearest_g));
    }
  }

  const NearestParams& p_;
  Shared<kDim>& shared_;
  Ring<kDim>& ring_;
  const int group_, thread_, first_;  // key
  int32_t dots_[kGroupKeys / 8][4];
  int32_t best_[kGroupKeys / 8][2];
};

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

/// blockIdx.y is the row.
template <int kDim>
__global__ void __launch_bounds__(kThreads, 2) FindNearestKernel(const NearestParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<kDim>*>(memory);
  Ring<kDim> ring(p, shared);
  if (threadIdx.x == 0) ring.Begin();
  __syncthreads();
  Searcher<kDim>(p, shared, ring).Walk();
#endif
}

template <int kDim>
void Launch(const NearestParams& params, cudaStream_t stream) {
  Check(cudaFuncSetAttribute(FindNearestKernel<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             sizeof(Shared<kDim>)),
        "cudaFuncSetAttribute(FindNearest)");
  const dim3 blocks(static_cast<unsigned>((params.tokens + kBlockKeys - 1) / kBlockKeys),
                    static_cast<unsigned>(params.rows));
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
