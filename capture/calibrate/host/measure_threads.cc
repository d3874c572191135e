#include "capture/calibrate/host/measure_threads.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "capture/calibrate/timing/fit.h"
#include "capture/calibrate/timing/sleeping_thread.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/cuda_handles.h"
#include "kernels/runtime/host_cores.h"
#include "kernels/runtime/probe.h"
#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

using hardware::How;
using hardware::Site;

using kernels::Buffer;
using kernels::Check;
using kernels::Event;
using kernels::Memory;
using SteadyClock = std::chrono::steady_clock;

// How long threads have nothing to do between two layers or steps, us.
constexpr std::array kIdle = {50, 200, 500, 1000, 2000, 5000};
constexpr double kUsuallyAsleep = 200e-6;

// Copies that may go in their calls, bytes.
constexpr std::array kInCalls = {256,   1024,  2048,  4096,  8192, 12288,
                                 16384, 20480, 24576, 28672, 32768};

// The mean, since a step adds latencies up. After a millisecond of sleep, one thread in five to ten
// of a virtual machine takes 150 to 400 us to go on; the others take 15. A longer time means that
// the thread was kept from its core; it does not count.
double MeanHandoff(const std::vector<double>& latency) {
  constexpr double kMost = 1e-3;
  double sum = 0;
  int count = 0;
  for (const double seconds : latency) {
    if (seconds > kMost) continue;
    sum += seconds;
    ++count;
  }
  return count > 0 ? sum / count : kMost;
}

std::vector<double> IdleSeconds() {
  std::vector<double> seconds;
  for (const int microseconds : kIdle) seconds.push_back(microseconds * 1e-6);
  return seconds;
}

// Calls one after the other, as often as is wanted, timed.
class FirstCalls {
 public:
  template <class Call>
  void Time(const Call& call) {
    for (std::vector<double>& of : seconds_) {
      const auto begin = SteadyClock::now();
      call();
      of.push_back(SecondsSince(begin));
    }
  }
  /// What the first of them take longer than as many of the others, all together, s.
  double Longer() const {
    double first = 0, later = 0;
    for (int i = 0; i < kCalls; ++i) {
      (i < kFirst ? first : later) += Median(seconds_[static_cast<size_t>(i)]);
    }
    return first - later * kFirst / (kCalls - kFirst);
  }

 private:
  static constexpr int kFirst = 4, kCalls = 12;
  std::vector<std::vector<double>> seconds_{kCalls};
};

}  // namespace

// What recalling threads do over and over: a wait, a copy of pages that the processor has not seen
// lately, a kernel, an event.
class Threads::CallMix {
 public:
  CallMix() : host_(kPool, Memory::kPinned), device_(kMost) {}
  void Call(cudaStream_t stream, cudaEvent_t awaited) {
    Check(cudaStreamWaitEvent(stream, awaited, 0), "cudaStreamWaitEvent");
    Copy(stream, kPiece);
    kernels::Nothing(stream);
    Check(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  void Copy(cudaStream_t stream, size_t bytes) {
    const std::byte* from = host_.get() + random_() % (kPool / kMost) * kMost;
    Check(cudaMemcpyAsync(device_.get(), from, bytes, cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync");
  }

  static constexpr size_t kPiece = 16384, kMost = 65536;
  static constexpr int64_t kPool = int64_t{1} << 30;

 private:
  Buffer<std::byte> host_, device_;
  std::mt19937_64 random_;
  Event event_{cudaEventDisableTiming};
};

Handoffs TimeHandoffs(const std::vector<int>& cores, std::chrono::microseconds asleep, int count) {
  Handoffs handoffs;
  SteadyClock::time_point noticed;
  SleepingThread sleeper(cores, [&] { handoffs.latency.push_back(SecondsSince(noticed)); });
  for (int i = 0; i < count; ++i) {
    SpinUntil(SteadyClock::now() + asleep);
    noticed = SteadyClock::now();
    sleeper.Wake();
    handoffs.notice.push_back(SecondsSince(noticed));
    sleeper.Await();
  }
  return handoffs;
}

Threads::Threads() : mix_(std::make_unique<CallMix>()) {}
Threads::~Threads() = default;

void Threads::TimeNotices(const std::vector<int>& cores, Times& times) const {
  constexpr int kRounds = 100;
  std::vector<double> notice;
  for (const int microseconds : kIdle) {
    const Handoffs handoffs = TimeHandoffs(cores, std::chrono::microseconds(microseconds), kRounds);
    notice.insert(notice.end(), handoffs.notice.begin(), handoffs.notice.end());
    times.handoffs.push_back(MeanHandoff(handoffs.latency) - Median(notice));
  }
  times.notify = Median(std::move(notice));
}

// What the first calls of a woken thread take longer than its later ones, by how long it slept: its
// core has forgotten code and data, or has gone to rest.
void Threads::TimeWoken(Stopwatch& watch, const std::vector<int>& cores, Times& times) const {
  constexpr int kRounds = 31;
  int gpu = 0;
  Check(cudaGetDevice(&gpu), "cudaGetDevice");
  const Event held(cudaEventDisableTiming);
  FirstCalls calls;
  SleepingThread sleeper(cores, [&] {
    cudaSetDevice(gpu);
    calls.Time([&] { mix_->Call(watch.other(), held); });
  });
  for (const int microseconds : kIdle) {
    calls = {};
    for (int round = 0; round < kRounds; ++round) {
      // The stream has work all the while, so that no copy goes in its call.
      watch.Hold();
      Check(cudaEventRecord(held, watch.stream()), "cudaEventRecord");
      SpinUntil(SteadyClock::now() + std::chrono::microseconds(microseconds));
      sleeper.Wake();
      sleeper.Await();
      watch.Release();
      watch.Finish();
    }
    times.woken.push_back(calls.Longer());
  }
}

// Copies of a few KiB to an idle stream take the host longer the larger they are: their bytes go to
// the GPU among the commands. Larger ones again take only the call. Timed with the launch that
// follows in a recall, which may have to wait for them, less that of a launch alone; by turns,
// since a core is slowed for a while.
void Threads::TimeInCalls(Stopwatch& watch, Times& times) const {
  constexpr int kTrials = 21;
  const auto launch = [&] { kernels::Nothing(watch.stream()); };
  std::vector<std::vector<double>> longer(kInCalls.size() + 1);
  for (int trial = 0; trial < kTrials; ++trial) {
    const double alone = watch.WallTime(launch, 1);
    for (size_t i = 0; i < longer.size(); ++i) {
      const double both = watch.WallTime(
          [&] {
            mix_->Copy(watch.stream(), i < kInCalls.size() ? kInCalls[i] : CallMix::kMost);
            launch();
          },
          1);
      longer[i].push_back(both - alone);
    }
  }
  for (std::vector<double>& of : longer) times.in_calls.push_back(Median(std::move(of)));
}

void Threads::Measure(Stopwatch& watch) {
  Times& times = moments_.emplace_back();
  // As a run's threads are, on cores that are fastest right then.
  const auto on_fastest_cores = [timer = kernels::LaunchTimer()](const auto& time) {
    const std::vector<int> cores = kernels::FastestCores(2, timer);
    const kernels::OnCore core(cores, 0);
    time(cores);
  };
  on_fastest_cores([&](const std::vector<int>& cores) { TimeNotices(cores, times); });
  on_fastest_cores([&](const std::vector<int>& cores) { TimeWoken(watch, cores, times); });
  on_fastest_cores([&](const std::vector<int>& /*cores*/) { TimeInCalls(watch, times); });
}

void Threads::Set(hardware::Profile& profile) const {
  const auto median = [&](const auto& of) {
    std::vector<double> values;
    for (const Times& times : moments_) values.push_back(of(times));
    return Median(std::move(values));
  };
  const auto medians = [&](const std::vector<double> Times::*of) {
    std::vector<double> all;
    for (size_t i = 0; i < (moments_.front().*of).size(); ++i) {
      all.push_back(median([&](const Times& times) { return (times.*of)[i]; }));
    }
    return all;
  };
  constexpr double kLeast = 1e-9;
  profile.host.notify = median([](const Times& times) { return times.notify; });
  profile.host.handoff_asleep =
      hardware::Curve(IdleSeconds(), MonotoneEnvelope(medians(&Times::handoffs), 1e-7));
  profile.handoff(Site::kHost, Site::kHost, How::kEvent) =
      profile.host.handoff_asleep.At(kUsuallyAsleep);
  const auto longer = [&](const std::vector<double> Times::*of) {
    std::vector<double> first = medians(of);
    for (double& seconds : first) seconds = std::max(seconds, kLeast);
    return hardware::Curve(IdleSeconds(), std::move(first));
  };
  profile.host.woken = longer(&Times::woken);

  std::vector<double> seconds = medians(&Times::in_calls);
  for (double& call : seconds) call = std::max(call, 1e-7);
  const double never = seconds.back();
  size_t in_calls = 0;  // up to the largest that does
  for (size_t i = 0; i < kInCalls.size(); ++i) {
    if (seconds[i] > 1.5 * never) in_calls = i + 1;
  }
  seconds.resize(in_calls);
  profile.copy.h2d_inline_call = {};
  if (in_calls > 0) {
    profile.copy.h2d_inline_call =
        hardware::Curve({kInCalls.begin(), kInCalls.begin() + static_cast<ptrdiff_t>(in_calls)},
                        std::move(seconds));
  }
}

}  // namespace stallcast::capture
