// The yardstick of the kernel benchmarks: how fast this device reads its memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace stallcast::kernels {

/// Reads `bytes` (a multiple of 16) once; `sink` gets an int that depends on them all.
void ReadOnce(const void* data, int64_t bytes, int* sink, cudaStream_t stream);

}  // namespace stallcast::kernels
