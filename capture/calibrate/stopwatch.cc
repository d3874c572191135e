#include "capture/calibrate/stopwatch.h"

namespace stallcast::capture {

using kernels::Check;

Stopwatch::Stopwatch() : flag_(1, kernels::Memory::kPinned) { *flag_.get() = 1; }

Stopwatch::~Stopwatch() {
  Release();
  cudaDeviceSynchronize();
}

void Stopwatch::Hold() {
  *static_cast<volatile int*>(flag_.get()) = 0;
  kernels::HoldUntil(flag_.get(), stream_);
}

void Stopwatch::Release() { *static_cast<volatile int*>(flag_.get()) = 1; }

void Stopwatch::Finish() {
  for (const cudaStream_t stream : {stream(), other()}) {
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
}

void Stopwatch::Record(cudaEvent_t event) {
  Check(cudaEventRecord(event, stream_), "cudaEventRecord");
}

}  // namespace stallcast::capture
