// The host's KV pools of a decoder's layers, and weights that are read between two of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/executor/host_pool.h"
#include "kernels/runtime/buffer.h"

namespace stallcast::capture {

class LayerPools {
 public:
  static constexpr int kLayers = 32;
  /// As four sequences of 64K tokens have them.
  static constexpr int64_t kOfLongContexts = int64_t{32} << 30;

  /// `most` bytes of pools together; fewer, by halves, where that is more than a third of the
  /// host's memory or more than can be pinned. Error: not even 1 GiB can be.
  explicit LayerPools(int64_t most);

  int64_t bytes() const { return bytes_; }
  /// Bytes of a layer's pool that curves by pools are measured at, ascending: up to 2 GiB.
  std::vector<int64_t> Sizes() const;
  /// Layers that have pools of so many bytes each, at most bytes().
  int Count(int64_t pool) const;
  std::byte* Pool(int layer, int64_t pool) const { return host_ + layer * pool; }

  /// Those of a layer: of all layers together as many as an 8B model has, or a quarter of the free
  /// memory. Their addresses take the place of the pools' (by 0.8 GiB ParisKV's tokens come out a
  /// third faster than they are in a step).
  void ReadWeights(int layer, cudaStream_t stream) const;

 private:
  std::byte* Pin();
  static int64_t LayersOfWeights();

  static constexpr int64_t kLeast = int64_t{1} << 30;
  static constexpr int64_t kLayerWeights = int64_t{400} << 20;
  int64_t bytes_;
  kernels::HostPool memory_;
  std::byte* const host_;
  const kernels::Buffer<std::byte> weights_{LayersOfWeights() * kLayerWeights};
  const kernels::Buffer<int> sink_{1};
};

}  // namespace stallcast::capture
