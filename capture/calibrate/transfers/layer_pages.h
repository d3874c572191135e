// Pages of KV on the host as layers recall them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "capture/calibrate/transfers/copy_ends.h"
#include "capture/calibrate/transfers/layer_pools.h"
#include "kernels/runtime/cuda_error.h"

namespace stallcast::capture {

/// Where a recall's pages lie in a layer's pool.
enum class PagePlacement : uint8_t {
  kFar,   ///< anywhere
  kNear,  ///< one behind the other
};

/// What a page costs the copy engine depends on how far it lies from others, from 2.9 to 3.5 us at
/// 16 KiB (capture/results/hardware-notes.md): layers in turn
/// recall others each time.
class LayerPages {
 public:
  /// A pool as one of a context of 32K has it.
  static constexpr int64_t kPool = int64_t{128} << 20;

  /// From `pools` to the device memory of `ends`, which both must outlive it.
  LayerPages(const LayerPools& pools, const CopyEnds& ends) : pools_(pools), ends_(ends) {}

  const LayerPools& pools() const { return pools_; }

  /// The next layer's recall, of so many pages of so many bytes, behind its weights on `stream`;
  /// `pool` bytes at most have the pools.
  void Choose(int count, int64_t bytes, cudaStream_t stream, PagePlacement placement,
              int64_t pool = kPool) {
    pool_ = std::min(pool, pools_.bytes());
    layer_ = (layer_ + 1) % pools_.Count(pool_);
    bytes_ = bytes;
    const int64_t places = pool_ / bytes;
    std::uniform_int_distribution<int64_t> any(0, places - 1);
    chosen_.clear();
    const int64_t first = any(random_);
    for (int i = 0; i < count; ++i) {
      chosen_.push_back(placement == PagePlacement::kNear ? (first + i) % places : any(random_));
    }
    pools_.ReadWeights(layer_, stream);
  }

  /// Of the i-th of them.
  const std::byte* From(int i) const {
    return pools_.Pool(layer_, pool_) + chosen_[static_cast<size_t>(i)] * bytes_;
  }
  /// Its place in a layer's cache.
  std::byte* To(int i) const {
    const int64_t to =
        (layer_ * (ends_.pool / LayerPools::kLayers) + i * bytes_) % (ends_.pool - bytes_ + 1);
    return ends_.device.get() + to;
  }
  void Copy(int i, cudaStream_t stream) const {
    kernels::Check(cudaMemcpyAsync(To(i), From(i), static_cast<size_t>(bytes_),
                                   cudaMemcpyHostToDevice, stream),
                   "cudaMemcpyAsync");
  }

 private:
  const LayerPools& pools_;
  const CopyEnds& ends_;
  std::mt19937_64 random_{11};
  int layer_ = 0;
  int64_t pool_ = kPool, bytes_ = 0;
  std::vector<int64_t> chosen_;
};

}  // namespace stallcast::capture
