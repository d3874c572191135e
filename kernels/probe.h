// Kernels that a calibration needs beside those of a decoder.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace stallcast::kernels {

/// Occupies the stream until *flag (pinned memory) is not zero, two seconds at most.
void HoldUntil(const int* flag, cudaStream_t stream);
/// One block that does nothing.
void Nothing(cudaStream_t stream);
/// Reads `bytes` (a multiple of 16) of device memory once, by all multiprocessors.
void ReadOnce(const void* data, int64_t bytes, int* sink, cudaStream_t stream);

}  // namespace stallcast::kernels
