// Times of work on a stream, free of what the host takes to launch it: the stream is held back
// until all of it is enqueued.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "capture/calibrate/timing/quiet_samples.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/fast_streams.h"
#include "kernels/runtime/held_train.h"
#include "kernels/runtime/host_cores.h"
#include "traces/common/median.h"

namespace stallcast::capture {

inline double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// As a thread that waits for the GPU does.
inline void SpinUntil(std::chrono::steady_clock::time_point time) {
  while (std::chrono::steady_clock::now() < time) {
  }
}

class Stopwatch {
 public:
  Stopwatch() = default;
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  cudaStream_t stream() const { return streams_[0]; }
  cudaStream_t other() const { return streams_[1]; }
  cudaStream_t third() const { return streams_[2]; }
  cudaStream_t fourth() const { return streams_[3]; }

  /// Seconds of one work(i) among `count` that follow one another, from the start of the first to
  /// the end of the last: the median of `trials`. At most some hundred launches fit a stream.
  template <class Work>
  double Period(int count, const Work& work, int trials = 5) {
    WarmUp(count, work);
    return MedianOf(trials, [&] {
      const double seconds = PeriodBeside(count, work);
      Finish();
      return seconds;
    });
  }

  /// Period() of one trial while other streams are busy, which it leaves so. What it launches has
  /// been launched before.
  template <class Work>
  double PeriodBeside(int count, const Work& work) {
    return PeriodOn(stream(), count, work);
  }

  /// The same of work on another of the streams.
  template <class Work>
  double PeriodOn(cudaStream_t stream, int count, const Work& work) {
    const double seconds = train_.Seconds(stream, count, work);
    if (seconds == INFINITY) ThrowHeldTooLong();
    return seconds / count;
  }

  /// PeriodBeside(); infinity where what kept the other stream busy ended first. Waits for both.
  template <class Work>
  double PeriodWhileBusy(int count, const Work& work) {
    const double seconds = PeriodBeside(count, work);
    const bool busy = cudaStreamQuery(other()) == cudaErrorNotReady;
    Finish();
    return busy ? seconds : INFINITY;
  }

  /// Seconds that one work(i) of a train takes longer than the `alone` that Period() gives, while
  /// busy(stream) keeps the other stream busy; infinity where that ended first.
  template <class Work, class Busy>
  double LongerBeside(const Busy& busy, double alone, int count, const Work& work, int trials) {
    constexpr double kLeast = 1e-9;
    const double beside = Median(trials, [&] {
      busy(other());
      return PeriodWhileBusy(count, work);
    });
    return std::max(beside - alone, kLeast);
  }

  /// Seconds that the host takes for one work(i) among `count` while the stream is held back; the
  /// median as Median() has it.
  template <class Work>
  double HostTime(int count, const Work& work, int trials = 5) {
    WarmUp(count, work);
    return QuietMedian(trials, [&] {
      Hold();
      const auto begin = Clock::now();
      for (int i = 0; i < count; ++i) work(i);
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      Release();
      Finish();
      return seconds / count;
    });
  }

  /// Seconds of work() on the host, the stream being idle before and after; prepare(), before it,
  /// does not count.
  template <class Work, class Prepare = void (*)()>
  double WallTime(
      const Work& work, int trials = 15, const Prepare& prepare = [] {}) {
    return Median(trials, [&] {
      prepare();
      Finish();
      return WallSeconds(work);
    });
  }
  /// Of work() once, whatever the stream does.
  template <class Work>
  static double WallSeconds(const Work& work) {
    const auto begin = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  /// The median of `trials` behind one that warms up. Of those in which no other program has a
  /// share of the thread's core (kernels::CoreLoad()), which are made up for by as many at most.
  template <class F>
  static double Median(int trials, const F& measure) {
    measure();
    return QuietMedian(trials, measure);
  }

  /// What measure() gives in so many trials, which count as Median()'s do. By one thread at a time.
  template <class F>
  static auto QuietTrials(int trials, const F& measure) {
    return QuietTrials(
        trials, 2 * trials, [] { return 0; }, measure);
  }
  /// The same of `most` trials at most, each while what keep() gives lives: a thread's core.
  template <class Keep, class F>
  static auto QuietTrials(int trials, int most, const Keep& keep, const F& measure) {
    QuietSamples<decltype(measure())> samples;
    do {
      [[maybe_unused]] const auto kept = keep();
      const double before = kernels::CoreLoad();
      const auto measured = measure();
      const double load = std::max(before, kernels::CoreLoad());
      loads_.Add(load);
      samples.Add(measured, load);
    } while (samples.Quiet(loads_) < trials && samples.size() < most);
    return samples.Times(loads_);
  }

  /// Seconds of one of a train's items, by trains of two lengths: without what passes before the
  /// first and behind the last. `train_time` gives the seconds of so many.
  template <class F>
  static double WithoutEnds(int few, int many, const F& train_time) {
    return std::max(train_time(many) - train_time(few), 1e-9) / (many - few);
  }

  /// Waits until device memory is at full speed again. The driver clears freed memory beside other
  /// work and slows it by an eighth meanwhile: 110 ms after three times 17 GiB on an H200. Waits a
  /// second at most, unless the process itself stands still.
  void Settle();

  /// As of a HeldTrain on the stream.
  void Hold() { train_.Hold(stream()); }
  /// Throws Error where the hold had ended by itself.
  void Release();
  /// Waits for both streams.
  void Finish();

 private:
  using Clock = std::chrono::steady_clock;

  template <class F>
  static double MedianOf(int trials, const F& measure) {
    std::vector<double> seconds(static_cast<size_t>(trials));
    for (double& of : seconds) of = measure();
    return stallcast::Median(std::move(seconds));
  }

  template <class F>
  static double QuietMedian(int trials, const F& measure) {
    return stallcast::Median(QuietTrials(trials, measure));
  }

  // With nothing held back, for Hold()'s sake.
  template <class Work>
  void WarmUp(int count, const Work& work) {
    for (int i = 0; i < count; ++i) work(i);
    Finish();
  }

  [[noreturn]] static void ThrowHeldTooLong();

  const kernels::FastStreams streams_{4};
  kernels::HeldTrain train_;
  kernels::Buffer<char> memory_;  // what Settle() reads
  kernels::Buffer<int> sink_;
  double fastest_read_ = INFINITY;
  static inline kernels::CoreLoadSampler loads_;
};

}  // namespace stallcast::capture
