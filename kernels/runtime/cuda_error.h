// CUDA calls that fail become Errors with the call, the reason and a remedy.
#pragma once

#include <cuda_runtime_api.h>

namespace stallcast::kernels {

/// Throws Error unless `status` is success; `call` says what was tried. Out of memory, no device
/// and a driver that is too old have their own remedies.
void Check(cudaError_t status, const char* call);
/// Throws Error if the launch just made was refused.
void CheckLaunch(const char* kernel);

}  // namespace stallcast::kernels
