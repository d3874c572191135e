// Streams that are alike from run to run. On an H200 it takes 1.43 us from one empty kernel to the
// next on some streams of a process and 1.64 us on others, and from a kernel to one on another
// stream that waits for it 1.6 us in some pairs of streams and 3.3 us in others (bench_streams):
// with what the driver happens to give it, a run would be some per cent faster or slower than the
// next.
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
  /// Seconds from an empty kernel to one on the other stream that waits for it, to and fro; `one`
  /// begins.
  double Handover(cudaStream_t one, cudaStream_t two);

  static constexpr int kItems = 100;

 private:
  HeldTrain train_;
  Event passed_{cudaEventDisableTiming};
};

/// Streams of a pool that a process keeps for each device, those first on which kernels follow one
/// another fastest. The pool is small: of a process's first sixteen streams all pairs handed over
/// quickly (480 of 480 in two processes; in a third 6 of 56 among the first eight lent did not),
/// and of those that come behind every second one does not (144 of 624), nor do small copies on
/// such a pair overlap. It may lend a pair of which one slows the other down while it waits for an
/// event (capture/results/h200-findings.md, two streams that slow one another): one process in
/// twelve.
class LentStreams {
 public:
  /// The first `count` that nobody has.
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
