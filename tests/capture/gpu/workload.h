// A small CUDA program whose every launch, copy and wait is known.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace stallcast::capture::testing {

/// Called around each op: before it with its step and id, and after it. Empty: nothing is told.
struct OpHooks {
  std::function<void(int32_t step, int32_t op)> push;
  std::function<void()> pop;
  std::function<void(cudaStream_t compute, cudaStream_t copy)> streams;
};

/// Ops of a step of RunWorkload, in this order.
enum WorkloadOp : int32_t {
  kCopyIn = 0,      ///< kPieces copies of kPieceBytes, host to device, on the copy stream
  kCompute = 1,     ///< a kernel on the compute stream, after an event
  kTwoKernels = 2,  ///< two kernels of one op
  kCopyOut = 3,     ///< one copy, device to host
  kClear = 4,       ///< a memset
  kGraph = 5,       ///< the launch of a graph of kernels, captured as the next two
  kGraphFirst = 6,
  kGraphSecond = 7,
  kSync = 8,  ///< the host waits for the compute stream
};
inline constexpr int kWorkloadOps = 9;
inline constexpr int kPieces = 4;
inline constexpr int64_t kPieceBytes = 1 << 20;
/// Kernels of a step: one, two, and two in the graph.
inline constexpr int kKernelsAStep = 5;
inline constexpr int kCopiesAStep = kPieces + 1;

/// Runs `steps` steps on two streams of its own, each in an NVTX range "step N", and synchronizes
/// the device.
void RunWorkload(int steps, const OpHooks& hooks);

/// Launches many empty kernels on the default stream; returns the nanoseconds a launch, by events
/// of the host's clock.
double LaunchNanoseconds(int launches);

}  // namespace stallcast::capture::testing
