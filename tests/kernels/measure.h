// Timing of kernels for the benchmarks: medians of launches, in a graph where launches would hide
// the kernel, and lines of one table.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/cuda_handles.h"
#include "kernels/runtime/probe.h"
#include "kernels/runtime/upload.h"
#include "tests/kernels/has_device.h"
#include "traces/common/median.h"

namespace stallcast::kernels {

class Stopwatch {
 public:
  cudaStream_t stream() const { return stream_; }

  /// Median seconds of one call of work(), which enqueues on stream(); for work of 50 us and more.
  template <class Work>
  double Once(const Work& work, int trials = 11) {
    work();
    return Median(work, trials);
  }

  /// Median seconds of work(i), i = 0 to count - 1 being one graph: the time of a launch of a step
  /// that runs as a graph, without the host's share.
  template <class Work>
  double InGraph(const Work& work, int count, int trials = 21) {
    work(0);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t runnable = nullptr;
    Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    for (int i = 0; i < count; ++i) work(i);
    Check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    Check(cudaGraphInstantiate(&runnable, graph, 0), "cudaGraphInstantiate");
    const auto launch = [&] { Check(cudaGraphLaunch(runnable, stream_), "cudaGraphLaunch"); };
    launch();
    const double seconds = Median(launch, trials) / count;
    cudaGraphExecDestroy(runnable);
    cudaGraphDestroy(graph);
    return seconds;
  }

  /// Median seconds of work(i) among `count` that follow one another in the stream, i = 0 to
  /// count - 1, launches included.
  template <class Work>
  double InStream(const Work& work, int count, int trials = 15) {
    const auto batch = [&] {
      for (int i = 0; i < count; ++i) work(i);
    };
    batch();
    batch();
    return Median(batch, trials) / count;
  }

  /// Bytes a second of one read of `buffer`.
  template <class T>
  double ReadRate(const Buffer<T>& buffer) {
    const Buffer<int> sink(1);
    return static_cast<double>(buffer.bytes()) /
           Once([&] { ReadOnce(buffer.get(), buffer.bytes(), sink.get(), stream_); });
  }

 private:
  template <class Work>
  double Median(const Work& work, int trials) {
    std::vector<double> seconds(static_cast<size_t>(trials));
    for (double& trial : seconds) {
      Check(cudaEventRecord(start_, stream_), "cudaEventRecord");
      work();
      Check(cudaEventRecord(stop_, stream_), "cudaEventRecord");
      Check(cudaEventSynchronize(stop_), "cudaEventSynchronize");
      trial = ElapsedSeconds(start_, stop_);
    }
    return stallcast::Median(std::move(seconds));
  }

  Stream stream_{cudaStreamDefault};
  Event start_{cudaEventDefault}, stop_{cudaEventDefault};
};

/// `count` normal numbers of a period that no kernel notices: power, and so the clock, depends on
/// the data.
inline Buffer<__nv_bfloat16> RandomOnDevice(int64_t count, float deviation = 1) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<__nv_bfloat16> period(4194301);
  for (auto& value : period) value = __float2bfloat16(normal(random));
  Buffer<__nv_bfloat16> buffer(count);
  for (int64_t at = 0; at < count; at += static_cast<int64_t>(period.size())) {
    const auto some = std::min(count - at, static_cast<int64_t>(period.size()));
    Check(cudaMemcpy(buffer.get() + at, period.data(), some * sizeof(period[0]),
                     cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  return buffer;
}

/// A line of a table: a time, the bytes that it moved, and their rate as a share of `limit`.
inline void MemoryRow(const std::string& what, double seconds, double bytes, double limit) {
  std::printf("%-46s %10.2f us %12.3f MB %8.0f GB/s %6.1f %%\n", what.c_str(), seconds * 1e6,
              bytes / 1e6, bytes / seconds / 1e9, 100 * bytes / seconds / limit);
}

/// What main() of a benchmark does: a line where there is no device, or where it fails.
template <class Run>
int Benchmark(const char* name, const Run& run) {
  if (!HasDevice()) {
    std::printf("%s: no CUDA device, nothing to measure\n", name);
    return 0;
  }
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}

}  // namespace stallcast::kernels
