// Streams that are alike from run to run. On an H200 it takes 1.43 us from one empty kernel to the
// next on some streams of a process and 1.64 us on others, and 2.5 us while one of half of its
// other streams has a kernel that waits for an event (bench_streams): with what the driver happens
// to give it, a run would be some per cent faster or slower than the next.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "kernels/cuda_error.h"
#include "kernels/cuda_handles.h"
#include "kernels/held_train.h"

namespace stallcast::kernels {

/// Times trains of empty kernels, on streams that are idle. Infinity where this process stood still
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

/// Has the driver give each of a process's streams a connection of its own, up to 32, unless the
/// environment says otherwise. Before the first CUDA call. With the default of eight, streams
/// beyond eight take turns at them, and what one is to another changes as they are used.
void ConnectEachStream();

/// Streams of a pool that a process keeps for each device, those first on which kernels follow one
/// another fastest. A GPU serves its streams in two groups; within one a kernel that waits for an
/// event slows the other streams down, and from a stream to one that waits for it it takes twice as
/// long as across (capture/results/h200-findings.md, two groups of streams).
class LentStreams {
 public:
  /// Of those that nobody has: the first of one group, for what computes, and all others of the
  /// other group.
  explicit LentStreams(size_t count);
  ~LentStreams();
  LentStreams(const LentStreams&) = delete;
  LentStreams& operator=(const LentStreams&) = delete;
  cudaStream_t operator[](size_t i) const { return streams_[i]; }
  auto begin() const { return streams_.begin(); }
  auto end() const { return streams_.end(); }

 private:
  struct Pool;
  static Pool& OfDevice();

  Pool& pool_;
  std::vector<size_t> places_;  // in the pool
  std::vector<cudaStream_t> streams_;
};

}  // namespace stallcast::kernels
