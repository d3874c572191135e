// The products of a decode step, without anything between them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/decoder/decoder.h"
#include "kernels/runtime/buffer.h"

namespace stallcast::capture {

/// Layers as Llama-3.1-8B has them, whose weights no cache holds.
class ProductLayers {
 public:
  static constexpr int kProducts = 4;  ///< a layer

  /// Takes half of the free device memory at most.
  explicit ProductLayers(cudaStream_t stream);
  /// Whether that was enough. Else nothing may be run.
  bool fits() const { return layers_ > 0; }
  /// Layer i's products, over the weights of another layer than those before it.
  void Run(int i, cudaStream_t stream);
  /// A product as large as the last one of a step, which leaves nothing else in the cache.
  void RunLast(cudaStream_t stream);

 private:
  int64_t layers_ = 0;
  kernels::Gemm gemm_;
  kernels::Buffer<__nv_bfloat16> weights_, input_, output_;
};

}  // namespace stallcast::capture
