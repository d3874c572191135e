// Streams that are equally fast in every run. On an H200 an empty kernel follows another after 1.43
// us on some streams of a process, and after 1.64 us on others. It takes 2.5 us while certain other
// streams have a kernel that waits for an event (bench_streams). Streams as the driver hands them
// out would make one run some per cent faster than the next.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/cuda_handles.h"
#include "kernels/runtime/held_train.h"

namespace stallcast::kernels {

/// Times series of empty kernels on idle streams. The result is infinite if the process was stopped
/// for two seconds.
class StreamTimer {
 public:
  /// Seconds of an item of a train on `stream`, of item(0) to item(kItems - 1).
  template <class Item>
  double PerItem(cudaStream_t stream, const Item& item) {
    for (int i = 0; i < kItems; ++i) item(i);  // with nothing held back, for HeldTrain's sake
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return train_.Seconds(stream, kItems, item) / kItems;
  }
  /// Seconds from an empty kernel to the next on the same stream.
  double Gap(cudaStream_t stream);
  /// The same while `waiting` has a kernel that waits for an event.
  double GapBeside(cudaStream_t stream, cudaStream_t waiting);
  /// Seconds from an empty kernel to one on the other stream that waits for it, to and fro; `one`
  /// begins.
  double Handover(cudaStream_t one, cudaStream_t two);

  static constexpr int kItems = 100;

 private:
  HeldTrain train_;
  Event passed_{cudaEventDisableTiming};
};

/// The streams of a process, the same for every user; only one user may have work on them at a
/// time.
///
/// A GPU serves the streams of a process in two groups. Within a group, a kernel that waits for an
/// event slows the other streams down, and a hand-off takes twice as long as between groups
/// (capture/results, two groups of streams).
///
/// There are few streams: beyond CUDA_DEVICE_MAX_CONNECTIONS, 8 by default, streams share
/// connections, and their groups change with use. With 32 connections, steps that copy pages took
/// 5 % longer on average.
class FastStreams {
 public:
  /// Streams that are made, with the default stream no more than connections. A request for more
  /// streams makes more.
  static constexpr size_t kCount = 7;

  /// The first stream is for compute, alone in its group. The next three or four are of the other
  /// group, the fastest first. Any others follow.
  explicit FastStreams(size_t count);
  /// Ends graph captures that failed work has left open.
  ~FastStreams();
  FastStreams(const FastStreams&) = delete;
  FastStreams& operator=(const FastStreams&) = delete;
  cudaStream_t operator[](size_t i) const { return streams_[i]; }
  auto begin() const { return streams_.begin(); }
  auto end() const { return streams_.end(); }

 private:
  std::vector<cudaStream_t> streams_;
};

}  // namespace stallcast::kernels
