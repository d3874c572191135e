// Pages of KV on the host as layers recall them.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "capture/calibrate/copy_ends.h"
#include "kernels/cuda_error.h"
#include "kernels/executor/host_pool.h"
#include "traces/common/error.h"

namespace stallcast::capture {

/// What a page costs the copy engine depends on how long ago its address was needed, from 3.0 to
/// 3.6 us at 16 KiB (capture/results/h200-findings.md, "Whose turn it is on the copy engine"):
/// layers in turn recall others each time, of a pool that one of a context of 32K has.
class LayerPages {
 public:
  /// With the device memory of `ends`, which must outlive it. A smaller pool where the host cannot
  /// pin as much; Error: not even 1 GiB.
  explicit LayerPages(const CopyEnds& ends) : ends_(ends), host_(Pin()) {}

  /// The next layer's recall, of so many pages: of each of eight heads as many, at random, in the
  /// order of the pool.
  void Choose(int count, int64_t bytes) {
    at_ = (at_ + 1) % kLayers;
    bytes_ = bytes;
    const int a_head = std::max(1, count / kHeads);
    std::uniform_int_distribution<int64_t> page(0, layer_ / bytes / kHeads - 1);
    chosen_.clear();
    while (std::ssize(chosen_) < count) {
      const auto head = static_cast<std::ptrdiff_t>(chosen_.size());
      for (int i = 0; i < a_head; ++i) chosen_.push_back(page(random_));
      std::sort(chosen_.begin() + head, chosen_.end());
    }
    a_head_ = a_head;
  }

  /// Of the i-th of them.
  const std::byte* From(int i) const {
    const int64_t head = i / a_head_ % kHeads;
    return host_ + at_ * layer_ + (chosen_[static_cast<size_t>(i)] * kHeads + head) * bytes_;
  }
  /// Its place in a layer's cache.
  std::byte* To(int i) const {
    const int64_t to = (at_ * (ends_.pool / kLayers) + i * bytes_) % (ends_.pool - bytes_ + 1);
    return ends_.device.get() + to;
  }
  void Copy(int i, cudaStream_t stream) const {
    kernels::Check(cudaMemcpyAsync(To(i), From(i), static_cast<size_t>(bytes_),
                                   cudaMemcpyHostToDevice, stream),
                   "cudaMemcpyAsync");
  }

 private:
  std::byte* Pin() {
    const int64_t host_memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    while (layer_ > kLeast && kLayers * layer_ > host_memory / 8) layer_ /= 2;
    for (;; layer_ /= 2) {
      try {
        return memory_.Get(kLayers * layer_);
      } catch (const Error&) {
        if (layer_ <= kLeast) throw;
      }
    }
  }

  static constexpr int kLayers = 32, kHeads = 8;
  static constexpr int64_t kLeast = int64_t{32} << 20;
  int64_t layer_ = 4 * kLeast;  ///< bytes of its pool
  const CopyEnds& ends_;
  kernels::HostPool memory_;
  std::byte* const host_;
  std::mt19937_64 random_{11};
  int64_t at_ = 0, bytes_ = 0;
  std::vector<int64_t> chosen_;
  int a_head_ = 1;
};

}  // namespace stallcast::capture
