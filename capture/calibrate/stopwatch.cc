#include "capture/calibrate/stopwatch.h"

#include "traces/common/error.h"

namespace stallcast::capture {

using kernels::Check;

Stopwatch::Stopwatch() : flag_(1, kernels::Memory::kPinned) { *flag_.get() = 1; }

Stopwatch::~Stopwatch() {
  *Flag() = 1;
  cudaDeviceSynchronize();
}

void Stopwatch::Hold() {
  *Flag() = 0;
  kernels::HoldUntil(flag_.get(), stream());
}

void Stopwatch::Release() {
  // What has run in the meantime was not timed as it was meant to be.
  if (*Flag() == kernels::kHeldTooLong) {
    throw Error("this process stood still for two seconds", "calibration",
                "run it again on a host with idle processors");
  }
  *Flag() = 1;
}

void Stopwatch::Finish() {
  for (const cudaStream_t stream : {stream(), other()}) {
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
}

void Stopwatch::Record(cudaEvent_t event) {
  Check(cudaEventRecord(event, stream()), "cudaEventRecord");
}

}  // namespace stallcast::capture
