#include "capture/calibrate/transfers/layer_pools.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/probe.h"
#include "traces/common/error.h"

namespace stallcast::capture {

LayerPools::LayerPools(int64_t most) : bytes_(most), host_(Pin()) {}

std::vector<int64_t> LayerPools::Sizes() const {
  constexpr int64_t kSmallest = int64_t{32} << 20, kLargest = int64_t{2} << 30;
  std::vector<int64_t> sizes;
  for (int64_t size = kSmallest; size <= std::min(kLargest, bytes_); size *= 2) {
    sizes.push_back(size);
  }
  return sizes;
}

int LayerPools::Count(int64_t pool) const {
  return static_cast<int>(std::min<int64_t>(kLayers, bytes_ / pool));
}

void LayerPools::ReadWeights(int layer, cudaStream_t stream) const {
  kernels::ReadOnce(weights_.get() + layer * kLayerWeights % weights_.bytes(), kLayerWeights,
                    sink_.get(), stream);
}

int64_t LayerPools::LayersOfWeights() {
  size_t free = 0, all = 0;
  kernels::Check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  return std::clamp<int64_t>(static_cast<int64_t>(free) / 4 / kLayerWeights, 1, kLayers);
}

std::byte* LayerPools::Pin() {
  const int64_t host_memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  while (bytes_ > kLeast && bytes_ > host_memory / 3) bytes_ /= 2;
  for (;; bytes_ /= 2) {
    try {
      return memory_.Get(bytes_);
    } catch (const Error&) {
      if (bytes_ <= kLeast) throw;
    }
  }
}

}  // namespace stallcast::capture
