// What the current device has.
#pragma once

#include <cuda_runtime_api.h>

namespace stallcast::kernels {

/// An attribute of the current device, as cudaDevAttrMultiProcessorCount.
int DeviceAttribute(cudaDeviceAttr attribute);

}  // namespace stallcast::kernels
