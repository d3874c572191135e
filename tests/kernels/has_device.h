// Whether there is a GPU to test or measure on.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/fast_streams.h"

namespace stallcast::kernels {

/// The first that a test or a benchmark asks of CUDA; its streams are those that runs have.
inline bool HasDevice() {
  ConnectEachStream();
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

}  // namespace stallcast::kernels
