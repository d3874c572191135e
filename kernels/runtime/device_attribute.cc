#include "kernels/runtime/device_attribute.h"

#include <vector>

#include "kernels/runtime/cuda_error.h"

namespace stallcast::kernels {

int DeviceAttribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  Check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

const DeviceLimits& CurrentDevice() {
  static const std::vector<DeviceLimits> devices = [] {
    int count = 0;
    Check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    std::vector<DeviceLimits> all(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      DeviceLimits& of = all[static_cast<size_t>(i)];
      of.device = i;
      Check(cudaDeviceGetAttribute(&of.multiprocessors, cudaDevAttrMultiProcessorCount, i),
            "cudaDeviceGetAttribute");
      Check(cudaDeviceGetAttribute(&of.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, i),
            "cudaDeviceGetAttribute");
    }
    return all;
  }();
  int device = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  return devices.at(static_cast<size_t>(device));
}

}  // namespace stallcast::kernels
