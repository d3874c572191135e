// Whether there is a GPU to test or measure on.
#pragma once

#include <cuda_runtime_api.h>

namespace stallcast::kernels {

inline bool HasDevice() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

}  // namespace stallcast::kernels
