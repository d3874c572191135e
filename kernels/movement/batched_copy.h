// Copies of many pieces to the GPU by one call, cudaMemcpyBatchAsync.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "kernels/runtime/cuda_error.h"

namespace stallcast::kernels {

/// Keeps its memory from one batch to the next. By one thread at a time.
class BatchedCopy {
 public:
  void Clear() { to_.clear(), from_.clear(), bytes_.clear(); }
  void Add(void* to, const void* from, size_t bytes) {
    to_.push_back(to), from_.push_back(from), bytes_.push_back(bytes);
  }
  /// Copies what has been added; nothing where that is nothing.
  void Run(cudaStream_t stream) {
    if (to_.empty()) return;
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    size_t first = 0;
    Check(cudaMemcpyBatchAsync(to_.data(), from_.data(), bytes_.data(), to_.size(), &attributes,
                               &first, 1, stream),
          "cudaMemcpyBatchAsync");
  }

 private:
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<size_t> bytes_;
};

}  // namespace stallcast::kernels
