#include "capture/calibrate/stopwatch.h"

namespace stallcast::capture {

using kernels::Check;

Stopwatch::Stopwatch() : flag_(1, kernels::Memory::kPinned) {
  *flag_.get() = 1;
  for (cudaStream_t* stream : {&stream_, &other_}) {
    Check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  for (cudaEvent_t* event : {&start_, &stop_}) Check(cudaEventCreate(event), "cudaEventCreate");
}

Stopwatch::~Stopwatch() {
  Release();
  cudaDeviceSynchronize();
  cudaEventDestroy(start_);
  cudaEventDestroy(stop_);
  cudaStreamDestroy(stream_);
  cudaStreamDestroy(other_);
}

void Stopwatch::Hold() {
  *static_cast<volatile int*>(flag_.get()) = 0;
  kernels::HoldUntil(flag_.get(), stream_);
}

void Stopwatch::Release() { *static_cast<volatile int*>(flag_.get()) = 1; }

void Stopwatch::Finish() {
  for (const cudaStream_t stream : {stream_, other_}) {
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
}

void Stopwatch::Record(cudaEvent_t event) {
  Check(cudaEventRecord(event, stream_), "cudaEventRecord");
}

double Stopwatch::ElapsedSeconds() const {
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, start_, stop_), "cudaEventElapsedTime");
  return milliseconds * 1e-3;
}

}  // namespace stallcast::capture
