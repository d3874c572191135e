// Values of the host on the device, and back.
#pragma once

#include <vector>

#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"

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

/// `count` values of device memory on the host.
template <class T>
std::vector<T> Downloaded(const T* data, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  Check(cudaMemcpy(values.data(), data, values.size() * sizeof(T), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  return values;
}

template <class T>
std::vector<T> Downloaded(const Buffer<T>& buffer) {
  return Downloaded(static_cast<const T*>(buffer.get()), buffer.size());
}

}  // namespace stallcast::kernels
