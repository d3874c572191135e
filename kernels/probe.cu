#include "kernels/cuda_error.h"
#include "kernels/probe.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kLoads = 8;
constexpr int64_t kLongestHold = 4'000'000'000;  // cycles, about two seconds

__global__ void HoldKernel(const volatile int* flag) {
  const int64_t start = clock64();
  while (*flag == 0 && clock64() - start < kLongestHold) {
  }
}

__global__ void NothingKernel() {}

__global__ void __launch_bounds__(kThreads) ReadKernel(const int4* data, int64_t count, int* sink) {
  int mixed = 0;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kLoads - 1) * stride < count; i += kLoads * stride) {
    int4 value[kLoads];
#pragma unroll
    for (int load = 0; load < kLoads; ++load) value[load] = __ldcs(data + i + load * stride);
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      mixed ^= value[load].x ^ value[load].y ^ value[load].z ^ value[load].w;
    }
  }
  for (; i < count; i += stride) mixed ^= data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
  atomicXor(sink, __reduce_xor_sync(0xffffffff, mixed));
}

}  // namespace

void HoldUntil(const int* flag, cudaStream_t stream) {
  HoldKernel<<<1, 1, 0, stream>>>(flag);
  CheckLaunch("HoldUntil");
}

void Nothing(cudaStream_t stream) {
  NothingKernel<<<1, 32, 0, stream>>>();
  CheckLaunch("Nothing");
}

void ReadOnce(const void* data, int64_t bytes, int* sink, cudaStream_t stream) {
  int device = 0, processors = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  Check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  ReadKernel<<<processors * 4, kThreads, 0, stream>>>(static_cast<const int4*>(data), bytes / 16,
                                                      sink);
  CheckLaunch("ReadOnce");
}

}  // namespace stallcast::kernels
