#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/device_attribute.h"
#include "kernels/runtime/probe.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kLoads = 8;
constexpr int64_t kLongestHold = 4'000'000'000;  // cycles, about two seconds

__global__ void HoldKernel(volatile int* flag) {
  const int64_t start = clock64();
  while (*flag == 0) {
    if (clock64() - start > kLongestHold) {
      *flag = kHeldTooLong;
      return;
    }
  }
}

__global__ void NothingKernel() {}

// kPushesOut: as any load, which takes the place of others' lines in the cache; else of its own.
template <bool kPushesOut>
__global__ void __launch_bounds__(kThreads) ReadKernel(const int4* data, int64_t count, int* sink) {
  int mixed = 0;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kLoads - 1) * stride < count; i += kLoads * stride) {
    int4 value[kLoads];
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int4* const from = data + i + load * stride;
      value[load] = kPushesOut ? __ldcg(from) : __ldcs(from);
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      mixed ^= value[load].x ^ value[load].y ^ value[load].z ^ value[load].w;
    }
  }
  for (; i < count; i += stride) mixed ^= data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
  mixed = __reduce_xor_sync(0xffffffff, mixed);
  if (threadIdx.x % 32 == 0) atomicXor(sink, mixed);
}

// More instructions than a multiprocessor keeps, one after the other.
constexpr int kInstructions = 12288;

__global__ void CodeKernel(int* sink) {
  float a = static_cast<float>(threadIdx.x), b = 1;
#pragma unroll
  for (int i = 0; i < kInstructions / 2; ++i) {
    asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(a) : "f"(b));
    asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(b) : "f"(a));
  }
  if (a == 0 && b == 0) *sink = 0;  // never, which the compiler does not know
}

__device__ uint64_t Now() {
  uint64_t now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void StampKernel(uint64_t* at, uint64_t nanoseconds) {
  const uint64_t begin = Now();
  at[0] = begin;
  while (Now() < begin + nanoseconds) {
  }
  at[1] = Now();
}

constexpr int kReadForThreads = 256;

// Few registers and threads, so that four of its blocks leave room on a multiprocessor for others.
__global__ void __launch_bounds__(kReadForThreads, 6)
    ReadForKernel(const int4* data, int64_t count, uint64_t nanoseconds, uint64_t* read,
                  int* sink) {
  const uint64_t end = Now() + nanoseconds;
  const int64_t stride = int64_t{gridDim.x} * kReadForThreads;
  int64_t i = int64_t{blockIdx.x} * kReadForThreads + threadIdx.x;
  uint64_t bytes = 0;
  int mixed = 0;
  while (Now() < end) {
#pragma unroll 1
    for (int round = 0; round < 8; ++round) {
      int4 value[4];
#pragma unroll
      for (int load = 0; load < 4; ++load) {
        value[load] = __ldcs(data + i);
        i += stride;
        if (i >= count) i -= count;
      }
#pragma unroll
      for (int load = 0; load < 4; ++load) mixed ^= value[load].x ^ value[load].w;
    }
    bytes += 8 * 4 * sizeof(int4);
  }
  atomicXor(sink, mixed);
  atomicAdd(reinterpret_cast<unsigned long long*>(read), bytes);
}

}  // namespace

void HoldUntil(int* flag, cudaStream_t stream) {
  HoldKernel<<<1, 1, 0, stream>>>(flag);
  CheckLaunch("HoldUntil");
}

void Nothing(cudaStream_t stream) {
  NothingKernel<<<1, 32, 0, stream>>>();
  CheckLaunch("Nothing");
}

void ReadOnce(const void* data, int64_t bytes, int* sink, cudaStream_t stream) {
  const int processors = DeviceAttribute(cudaDevAttrMultiProcessorCount);
  ReadKernel<false>
      <<<processors * 4, kThreads, 0, stream>>>(static_cast<const int4*>(data), bytes / 16, sink);
  CheckLaunch("ReadOnce");
}

CacheFlush::CacheFlush()
    : memory_(int64_t{4} * DeviceAttribute(cudaDevAttrL2CacheSize)), sink_(1) {}

void CacheFlush::Run(cudaStream_t stream) const {
  const int processors = DeviceAttribute(cudaDevAttrMultiProcessorCount);
  ReadKernel<true><<<processors * 4, kThreads, 0, stream>>>(
      reinterpret_cast<const int4*>(memory_.get()), memory_.bytes() / 16, sink_.get());
  CodeKernel<<<processors, 128, 0, stream>>>(sink_.get());
  CheckLaunch("CacheFlush");
}

void Stamp(uint64_t* at, int64_t nanoseconds, cudaStream_t stream) {
  StampKernel<<<1, 1, 0, stream>>>(at, static_cast<uint64_t>(nanoseconds));
  CheckLaunch("Stamp");
}

void ReadFor(const void* data, int64_t bytes, int32_t blocks, int64_t nanoseconds, uint64_t* read,
             int* sink, cudaStream_t stream) {
  ReadForKernel<<<blocks, kReadForThreads, 0, stream>>>(
      static_cast<const int4*>(data), bytes / 16, static_cast<uint64_t>(nanoseconds), read, sink);
  CheckLaunch("ReadFor");
}

}  // namespace stallcast::kernels
