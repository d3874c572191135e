// Work on a stream that begins when all of it is enqueued, so that its time is free of the host's.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>

#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/cuda_handles.h"

namespace stallcast::kernels {

class HeldTrain {
 public:
  HeldTrain();
  /// Lets go, and waits for the device.
  ~HeldTrain();
  HeldTrain(const HeldTrain&) = delete;
  HeldTrain& operator=(const HeldTrain&) = delete;

  /// Only what has been launched before may be launched until Release(): a kernel's first launch
  /// loads it, which waits for all kernels that run.
  void Hold(cudaStream_t stream);
  /// False where the hold had ended by itself, after some two seconds.
  [[nodiscard]] bool Release();

  /// Seconds from the start of work(0) to the end of work(count - 1), which enqueue on `stream` (or
  /// on others, between its first and its last); infinity where Release() says false. Waits for
  /// the stream. At most some hundred launches fit one.
  template <class Work>
  double Seconds(cudaStream_t stream, int count, const Work& work) {
    Hold(stream);
    Check(cudaEventRecord(start_, stream), "cudaEventRecord");
    for (int i = 0; i < count; ++i) work(i);
    Check(cudaEventRecord(stop_, stream), "cudaEventRecord");
    if (!Release()) return INFINITY;
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return ElapsedSeconds(start_, stop_);
  }

 private:
  volatile int* Flag() const { return flag_.get(); }

  Buffer<int> flag_;
  Event start_{cudaEventDefault}, stop_{cudaEventDefault};
};

}  // namespace stallcast::kernels
