#include "kernels/runtime/cuda_error.h"

#include <fmt/format.h>

#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

const char* Remedy(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "lower the context, the batch or the budget, or free memory on the device";
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
      return "run on a machine with an NVIDIA GPU, and check CUDA_VISIBLE_DEVICES and nvidia-smi";
    case cudaErrorInsufficientDriver:
      return "install an NVIDIA driver, or a newer one than is there";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "build for this GPU: cmake -DCMAKE_CUDA_ARCHITECTURES=native";
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorLaunchOutOfResources:
      return "this shape is not supported on this GPU; choose a smaller one";
    default:
      return "run under compute-sanitizer to find the first faulty call";
  }
}

}  // namespace

void Check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  // Errors that do not damage the context stay recorded as the "last" one: clear it, or the next
  // launch check would report this failure again.
  cudaGetLastError();
  // CUDA calls a machine without a driver one whose driver is too old.
  int driver = 0;
  if (status == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
      driver == 0) {
    throw Error("no NVIDIA driver is installed here", call, "run on a machine with an NVIDIA GPU");
  }
  throw Error(fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status)), call,
              Remedy(status));
}

void CheckLaunch(const char* kernel) { Check(cudaGetLastError(), kernel); }

}  // namespace stallcast::kernels
