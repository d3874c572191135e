// Streams that are alike from run to run. On an H200 it takes 1.43 us from one empty kernel to the
// next on some streams of a process and 1.64 us on others, and 2.5 us while one of half of its
// other streams has a kernel that waits for an event (bench_streams): with what the driver happens
// to give it, a run would be some per cent faster or slower than the next.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/cuda_handles.h"
#include "kernels/runtime/held_train.h"

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

/// Streams that a process has for each device, the same for all who ask: only one of them may have
/// work on them at a time. A GPU serves a process's streams in two groups. Within one a kernel that
/// waits for an event slows the other streams down, and from a stream to one that waits for it it
/// takes twice as long as across (capture/results/h200-findings.md, two groups of streams). They
/// are few, as streams beyond CUDA_DEVICE_MAX_CONNECTIONS, 8 by default, take turns at connections,
/// and what one is to another then changes as they are used: whoever needs a stream has one of
/// these. Nor are more connections asked for: with 32, steps that copy pages took 5 % longer on
/// average.
class FastStreams {
 public:
  /// That are made; with the default one no more than connections. Where more are asked for, more.
  static constexpr size_t kCount = 7;

  /// The first is of one group, for what computes, and the next three or four are of the other
  /// group, those first on which kernels follow one another fastest; behind them any.
  explicit FastStreams(size_t count);
  /// Ends captures that work which failed has left.
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
