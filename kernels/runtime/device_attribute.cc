#include "kernels/runtime/device_attribute.h"

#include "kernels/runtime/cuda_error.h"

namespace stallcast::kernels {

int DeviceAttribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  Check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace stallcast::kernels
