#include "capture/calibrate/kernels/measure_boost.h"

#include <chrono>
#include <thread>
#include <vector>

#include "capture/calibrate/kernels/kernel_probe.h"
#include "kernels/runtime/cuda_handles.h"
#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

using kernels::Check;

// Of an idle GPU's first second.
struct Boost {
  double factor = 1, seconds = 0;
};

class ProductsFromIdle {
 public:
  explicit ProductsFromIdle(Stopwatch& watch) : watch_(watch) {
    for (int i = 0; i < kMost; ++i) {
      begins_.emplace_back(cudaEventDefault);
      ends_.emplace_back(cudaEventDefault);
    }
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  Boost Once() {
    constexpr std::chrono::milliseconds kIdle{1500};
    watch_.Finish();
    std::this_thread::sleep_for(kIdle);
    for (int i = 0; i < kMost; ++i) {
      Check(cudaEventRecord(begins_[i], watch_.stream()), "cudaEventRecord");
      product_.launch(i, watch_.stream());
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
  static constexpr int kMost = 300;  // 0.7 s on an H200

  Stopwatch& watch_;
  const Prepared product_ = GemmProbe({8192, 28672, 4096}).prepare();
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
  profile.device.boost = shows ? factor : 0;
  profile.device.boost_time = shows ? Median(std::move(seconds)) : 0;
}

}  // namespace stallcast::capture
