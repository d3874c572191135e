// Recordings of kernels among the products of a decode step: what they take there, what passes
// between products, and what gathers from the host drag behind them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "capture/calibrate/kernels/kernel_probe.h"
#include "capture/calibrate/kernels/product_layers.h"
#include "capture/calibrate/timing/device_times.h"
#include "capture/calibrate/timing/stopwatch.h"
#include "capture/calibrate/transfers/copy_ends.h"
#include "capture/gpu_recorder.h"
#include "kernels/runtime/buffer.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// What products take longer behind something, in seconds, must exceed the noise of their time.
constexpr double kLeastDrag = 0.4e-6;

/// Records the products of a decode step's layers behind one launch a layer of what is to be timed,
/// as steps of their own. Each train starts behind a product as large as the last one of a step,
/// which leaves nothing of the train before in the cache.
class LayerTrains {
 public:
  /// Where the layers do not fit nothing is recorded.
  LayerTrains(GpuRecorder& recorder, cudaStream_t stream, ProductLayers& layers);

  /// What products take behind nothing: to be recorded now and then.
  void RecordNothing();
  /// Of pages from the host into device memory, 0.25 to 8 MB a layer.
  void RecordGathers(const CopyEnds& ends);
  /// Of the i-th probe.
  void RecordProbe(size_t i, const Prepared& prepared);

  /// Seconds of the i-th probe's kernel, the mean of its launches; none that was recorded.
  std::optional<double> SecondsOf(size_t i, const std::map<int32_t, OpSpans>& spans) const;
  /// Of a layer behind nothing, from the start of its first product to the end of its last: the
  /// median of trains; 0: none was recorded.
  double Nothing(const std::map<int32_t, OpSpans>& spans) const;
  /// From the end of a layer behind nothing to the start of the next: the median; none was
  /// recorded.
  std::optional<double> Gap(const std::map<int32_t, OpSpans>& spans) const;
  /// Fills in zero_copy.drag, memory.drag_most and drag_share where gathers were seen to drag.
  void ReadGathers(const std::map<int32_t, OpSpans>& spans, hardware::Profile& profile) const;

 private:
  int32_t Train(const Launch& before, const Launch& launch);
  double Products(int32_t step, const std::map<int32_t, OpSpans>& spans) const;

  struct Gathered {
    double bytes = 0;
    int32_t step = -1;
  };

  GpuRecorder& recorder_;
  cudaStream_t stream_;
  ProductLayers& layers_;
  int32_t next_step_ = 0;
  kernels::Buffer<uint64_t> stamps_;
  std::vector<int32_t> nothing_;
  std::vector<Gathered> gathers_;
  std::map<size_t, int32_t> probes_;  // steps of products
};

/// Fills in the hand-off between kernels, of products behind nothing, and recorder.kernel: what a
/// recorded layer takes beyond one that is not is divided among its gaps. Behind kernels whose
/// reads push out of the cache what starts a kernel, gaps are a third longer: that is in what those
/// drag. Where nothing can be recorded, or the layers do not fit, both stay as they are.
void MeasureKernelGap(Stopwatch& watch, ProductLayers& layers, hardware::Profile& profile);

}  // namespace stallcast::capture
