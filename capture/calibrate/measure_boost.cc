#include "capture/calibrate/measure_boost.h"

#include <chrono>
#include <thread>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/cuda_handles.h"
#include "kernels/decoder.h"
#include "kernels/fill.h"
#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

using Bf16 = __nv_bfloat16;
using kernels::Buffer;
using kernels::Check;

// Of an idle GPU's first second.
struct Boost {
  double factor = 1, seconds = 0;
};

class ProductsFromIdle {
 public:
  explicit ProductsFromIdle(Stopwatch& watch) : watch_(watch) {
    // Random, as zeros toggle little and take less power.
    kernels::FillRandom(a_.get(), a_.size(), 1, 2, watch.stream());
    kernels::FillRandom(b_.get(), b_.size(), 1, 3, watch.stream());
    for (int i = 0; i < kMost; ++i) {
      begins_.emplace_back(cudaEventDefault);
      ends_.emplace_back(cudaEventDefault);
    }
    Run();  // chooses how
    watch.Finish();
  }

  Boost Once() {
    constexpr std::chrono::milliseconds kIdle{1500};
    watch_.Finish();
    std::this_thread::sleep_for(kIdle);
    for (int i = 0; i < kMost; ++i) {
      Check(cudaEventRecord(begins_[i], watch_.stream()), "cudaEventRecord");
      Run();
      Check(cudaEventRecord(ends_[i], watch_.stream()), "cudaEventRecord");
    }
    watch_.Finish();
    std::vector<double> took, begun;
    for (int i = 0; i < kMost; ++i) {
      took.push_back(kernels::ElapsedSeconds(begins_[i], ends_[i]));
      begun.push_back(kernels::ElapsedSeconds(begins_[0], begins_[i]));
    }
    // The first few find the clock on its way up; the last ones have what stays.
    constexpr double kUp = 5e-3, kFirst = 25e-3;
    std::vector<double> first, last;
    for (size_t i = 0; i < took.size(); ++i) {
      if (begun[i] > kUp && begun[i] < kFirst) first.push_back(took[i]);
      if (begun[i] > begun.back() / 2) last.push_back(took[i]);
    }
    if (first.empty()) return {};
    const double fast = Median(std::move(first)), slow = Median(std::move(last));
    Boost boost{slow / fast, 0};
    for (size_t i = 0; i < took.size(); ++i) {
      if (begun[i] > kUp && took[i] > (fast + slow) / 2) break;
      boost.seconds = begun[i] + took[i];
    }
    return boost;
  }

 private:
  static constexpr int64_t kRows = 8192, kWide = 28672, kInner = 4096;
  static constexpr int kMost = 300;  // 0.7 s on an H200

  void Run() { gemm_.Run(a_.get(), b_.get(), c_.get(), kRows, kWide, kInner, watch_.stream()); }

  Stopwatch& watch_;
  kernels::Gemm gemm_;
  Buffer<Bf16> a_{kRows * kInner}, b_{kWide * kInner}, c_{kRows * kWide};
  std::vector<kernels::Event> begins_, ends_;
};

}  // namespace

void MeasureBoost(Stopwatch& watch, hardware::Profile& profile) {
  constexpr int kTrials = 3;
  constexpr double kShows = 1.02;
  ProductsFromIdle products(watch);
  std::vector<double> factors, seconds;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Boost boost = products.Once();
    factors.push_back(boost.factor);
    seconds.push_back(boost.seconds);
  }
  const double factor = Median(std::move(factors));
  const bool shows = factor > kShows;
  profile.device_boost = shows ? factor : 0;
  profile.device_boost_time = shows ? Median(std::move(seconds)) : 0;
}

}  // namespace stallcast::capture
