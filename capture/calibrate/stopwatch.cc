#include "capture/calibrate/stopwatch.h"

#include "kernels/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::capture {

void Stopwatch::Release() {
  if (!train_.Release()) ThrowHeldTooLong();
}

void Stopwatch::Finish() {
  for (const cudaStream_t stream : {stream(), other()}) {
    kernels::Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
}

void Stopwatch::ThrowHeldTooLong() {
  throw Error("this process stood still for two seconds", "calibration",
              "run it again on a host with idle processors");
}

}  // namespace stallcast::capture
