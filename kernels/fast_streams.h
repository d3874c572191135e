// Streams on which kernels follow one another fast. On an H200 they take 1.43 us from one empty
// kernel to the next on some streams of a process and 1.64 us on others, and each keeps to its own:
// with what the driver happens to give it, a run would be 1 or 2 % faster or slower than the next.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/cuda_handles.h"

namespace stallcast::kernels {

class GapTimer {
 public:
  GapTimer();
  /// Seconds from one empty kernel to the next on an idle stream.
  double Seconds(cudaStream_t stream) const;

 private:
  Buffer<int> flag_;
  Event start_{cudaEventDefault}, stop_{cudaEventDefault};
};

/// Of some new streams the `count` on which kernels follow one another fastest, the fastest first.
std::vector<Stream> FastestStreams(size_t count);

}  // namespace stallcast::kernels
