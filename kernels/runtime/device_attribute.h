// What the current device has.
#pragma once

#include <cuda_runtime_api.h>

namespace stallcast::kernels {

/// An attribute of the current device, as cudaDevAttrMultiProcessorCount.
int DeviceAttribute(cudaDeviceAttr attribute);

/// What launches ask of the current device again and again: read once a device.
struct DeviceLimits {
  int device = 0;
  int multiprocessors = 0;
  int shared_bytes = 0;  ///< that a block may ask for
};
const DeviceLimits& CurrentDevice();

}  // namespace stallcast::kernels
