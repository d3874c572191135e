// Whether kernels follow one another as fast on every stream: a run's streams are made anew, and in
// recordings the gap between kernels is one of two, by run.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/cuda_error.h"
#include "kernels/cuda_handles.h"
#include "kernels/probe.h"
#include "tests/kernels/measure.h"
#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

using kernels::Check;

constexpr int kStreams = 16, kRounds = 3, kFew = 100, kMany = 500, kTrials = 7;

class Bench {
 public:
  Bench() {
    // A kernel's first launch waits for the stream that is held.
    kernels::Nothing(nullptr);
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  void Run() {
    fmt::print("us from one empty kernel to the next in a held train; {} streams there at once\n\n",
               kStreams);
    Table("the same streams in three rounds", false);
    Table("streams made anew each round", true);
  }

 private:
  // By turns, so that what changes with time shows in all streams.
  void Table(const char* what, bool anew) {
    std::vector<std::vector<double>> periods;
    std::vector<kernels::Stream> streams(kStreams);
    for (int round = 0; round < kRounds; ++round) {
      if (anew) {
        streams.clear();
        streams.resize(kStreams);
      }
      periods.emplace_back();
      for (const kernels::Stream& stream : streams) periods.back().push_back(Period(stream));
    }
    fmt::print("{}\n  stream", what);
    for (int i = 0; i < kStreams; ++i) fmt::print(" {:>5}", i);
    fmt::print("  slowest/fastest\n");
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<double>& of = periods[static_cast<size_t>(round)];
      const auto [least, most] = std::ranges::minmax_element(of);
      fmt::print("  round{}", round);
      for (const double period : of) fmt::print(" {:>5.3f}", period * 1e6);
      fmt::print("  {:>15.3f}\n", *most / *least);
    }
    fmt::print("\n");
  }

  double Period(cudaStream_t stream) {
    std::vector<double> times;
    for (int trial = 0; trial < kTrials; ++trial) {
      times.push_back((Train(kMany, stream) - Train(kFew, stream)) / (kMany - kFew));
    }
    return Median(std::move(times));
  }

  double Train(int count, cudaStream_t stream) {
    volatile int* const flag = flag_.get();
    *flag = 0;
    kernels::HoldUntil(flag_.get(), stream);
    Check(cudaEventRecord(start_, stream), "cudaEventRecord");
    for (int i = 0; i < count; ++i) kernels::Nothing(stream);
    Check(cudaEventRecord(stop_, stream), "cudaEventRecord");
    *flag = 1;
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return kernels::ElapsedSeconds(start_, stop_);
  }

  const kernels::Buffer<int> flag_{1, kernels::Memory::kPinned};
  const kernels::Event start_{cudaEventDefault}, stop_{cudaEventDefault};
};

}  // namespace
}  // namespace stallcast::capture

int main() {
  return stallcast::kernels::Benchmark("bench_streams", [] { stallcast::capture::Bench().Run(); });
}
