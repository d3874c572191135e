// What kernels take among the products of a decode step, and what they drag behind them:
// hardware::KernelPoint, zero_copy.drag and its limits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "capture/calibrate/copy_ends.h"
#include "capture/calibrate/device_times.h"
#include "capture/calibrate/kernel_probe.h"
#include "capture/gpu_recorder.h"
#include "kernels/decoder.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Records the products of a decode step's layers behind one launch a layer of what is to be timed,
/// as steps of their own from `first_step` on. Each train starts behind a product as large as the
/// last one of a step, which leaves nothing of the train before in the cache.
class DragTrains {
 public:
  /// Takes half of the free device memory at most, for the weights of as many layers.
  DragTrains(GpuRecorder& recorder, cudaStream_t stream, int32_t first_step);
  /// Whether that was enough for weights that no cache holds. Else nothing is recorded.
  bool fits() const { return layers_ > 0; }

  /// What products take behind nothing: to be recorded now and then.
  void RecordNothing();
  /// Of pages from the host into device memory, 0.25 to 8 MB a layer.
  void RecordGathers(const CopyEnds& ends);
  /// Of the i-th probe. What runs before it is recorded apart, and taken off.
  void RecordProbe(size_t i, const Prepared& prepared);

  /// Seconds of the i-th probe's kernel, the median of its launches; none that was recorded.
  std::optional<double> SecondsOf(size_t i, const std::map<int32_t, OpSpans>& spans) const;
  /// From the end of a layer's last product to the start of a kernel right behind it: the mean over
  /// all probes; none was recorded.
  std::optional<double> Gap(const std::map<int32_t, OpSpans>& spans) const;
  /// Seconds that the i-th probe's kernel drags; 0 where that cannot be told from nothing.
  double DragOf(size_t i, const std::map<int32_t, OpSpans>& spans) const;
  /// Fills in zero_copy.drag, memory.drag_most and drag_share.
  void ReadGathers(const std::map<int32_t, OpSpans>& spans, hardware::Profile& profile) const;

 private:
  int32_t Train(const Launch& before, const Launch& launch);
  double Products(int32_t step, const std::map<int32_t, OpSpans>& spans) const;
  double Nothing(const std::map<int32_t, OpSpans>& spans) const;

  struct Recorded {
    int32_t with = -1, without = -1;  ///< steps of products; none: without anything
  };
  struct Gathered {
    double bytes = 0;
    int32_t step = -1;
  };

  GpuRecorder& recorder_;
  cudaStream_t stream_;
  int32_t next_step_;
  int64_t layers_ = 0;
  kernels::Gemm gemm_;
  kernels::Buffer<__nv_bfloat16> weights_, input_, output_;
  kernels::Buffer<uint64_t> stamps_;
  std::vector<int32_t> nothing_;
  std::vector<Gathered> gathers_;
  std::map<size_t, Recorded> probes_;
};

}  // namespace stallcast::capture
