// Values of the host on the device.
#pragma once

#include <vector>

#include "kernels/buffer.h"
#include "kernels/cuda_error.h"

namespace stallcast::kernels {

/// A copy of `values` in device memory.
template <class T>
Buffer<T> Uploaded(const std::vector<T>& values) {
  Buffer<T> buffer(static_cast<int64_t>(values.size()));
  Check(cudaMemcpy(buffer.get(), values.data(), static_cast<size_t>(buffer.bytes()),
                   cudaMemcpyHostToDevice),
        "cudaMemcpy");
  return buffer;
}

}  // namespace stallcast::kernels
