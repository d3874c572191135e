#include "capture/calibrate/timing/stopwatch.h"

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/probe.h"
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

void Stopwatch::Settle() {
  constexpr int64_t kBytes = int64_t{256} << 20;  // more than any cache holds
  constexpr int kReads = 3, kFirst = 30;
  constexpr double kSlower = 1.05;
  constexpr auto kMost = std::chrono::seconds(1);
  // Infinity where the hold had ended by itself, as CUPTI can have it: no reason to give up here.
  const auto read = [&] {
    const double seconds = train_.Seconds(stream(), kReads, [&](int) {
      kernels::ReadOnce(memory_.get(), kBytes, sink_.get(), stream());
    });
    fastest_read_ = std::min(fastest_read_, seconds);
    return seconds;
  };
  if (memory_.size() == 0) {
    memory_ = kernels::Buffer<char>(kBytes);
    sink_ = kernels::Buffer<int>(1);
    for (int i = 0; i < kFirst; ++i) read();
  }
  const auto end = Clock::now() + kMost;
  while (read() > kSlower * fastest_read_ && Clock::now() < end) {
  }
}

void Stopwatch::ThrowHeldTooLong() {
  throw Error("this process stood still for two seconds", "calibration",
              "run it again on a host with idle processors");
}

}  // namespace stallcast::capture
