// What host calls take in the orders that plans have them, each call timed alone, beside what
// calibrate finds in trains of one kind that are held back.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "capture/calibrate/host/measure_host.h"
#include "capture/calibrate/host/measure_threads.h"
#include "capture/calibrate/timing/background_load.h"
#include "capture/calibrate/timing/sleeping_thread.h"
#include "capture/calibrate/transfers/layer_pages.h"
#include "kernels/executor/executor.h"
#include "kernels/movement/movement.h"
#include "kernels/runtime/host_cores.h"
#include "kernels/runtime/probe.h"
#include "tests/kernels/measure.h"
#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

using kernels::Buffer;
using kernels::Check;
using kernels::Event;
using kernels::Memory;
using kernels::OnCore;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 300, kWarmUp = 20, kKernels = 9, kPages = 16, kBuffers = 600;
constexpr int64_t kKernelNs = 3000, kFlag = 256, kPage = 16384, kLarge = int64_t{128} << 10,
                  kGathered = int64_t{2} << 20;

/// Microseconds of calls, by what they are and where they stand.
class Times {
 public:
  template <class Call>
  void Of(const std::string& what, const Call& call) {
    const auto begin = Clock::now();
    call();
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    of_[what].push_back(took.count());
  }
  void Forget() { of_.clear(); }
  void Print(const char* order) {
    fmt::print("\n{:<48} {:>8} {:>8}\n", order, "P50 us", "P90 us");
    for (auto& [what, times] : of_) {
      std::ranges::sort(times);
      fmt::print("  {:<46} {:>8.2f} {:>8.2f}\n", what, times[times.size() / 2],
                 times[times.size() * 9 / 10]);
    }
  }

 private:
  std::map<std::string, std::vector<double>> of_;
};

// Launches, flags to the host and waits for them, as plans have them; other works launch nothing.
class SmallOps : public kernels::Binder {
 public:
  kernels::OpWork Bind(const plan::Op& op) override {
    if (std::holds_alternative<plan::HostSync>(op.work)) return {};
    if (!std::holds_alternative<plan::Copy>(op.work)) {
      return [](cudaStream_t stream) { kernels::Nothing(stream); };
    }
    int32_t* to = host_.get() + at_;
    const int32_t* from = device_.get() + at_;
    at_ = (at_ + 64) % kInts;
    return [to, from](cudaStream_t stream) { Flag(to, from, stream); };
  }
  static void Flag(int32_t* to, const int32_t* from, cudaStream_t stream) {
    Check(cudaMemcpyAsync(to, from, sizeof(int32_t), cudaMemcpyDeviceToHost, stream),
          "cudaMemcpyAsync");
  }

 private:
  static constexpr int64_t kInts = 1 << 16;
  Buffer<int32_t> host_{kInts, Memory::kPinned}, device_{kInts};
  int64_t at_ = 0;
};

class Bench {
 public:
  void Run() {
    Trains();
    ThroughTheExecutor();
    const std::vector<int> cores = kernels::FastestCores(4, kernels::LaunchTimer());
    LaunchesBesideOthers(cores);
    KindsBesideOthers(cores);
    HandoffsBySleep();
    OverTime();
    Trains();
    FlagsBehindPages();
    Order("a layer: kernels, a flag to the host, a wait for it", [&] { Layer(kFlag, 0); });
    Order("the same with 128 KiB to the GPU on the stream", [&] { Layer(kFlag, kLarge); });
    Order("the same with a gather of 2 MiB by four threads", [&] {
      Gather();
      Layer(kFlag, kGathered);
    });
    for (const int64_t us : {5, 50, 100, 200, 500}) {
      Order(fmt::format("pages with flags behind each, after {} us of kernels", us).c_str(),
            [&] { Recall(us * 1000); });
    }
    Order("16 pages in a row to another stream", [&] {
      Layer(kFlag, 0);
      Pages("page of 16 in a row");
    });
    {
      // A run has some hundred buffers, and looks each copy's two ends up.
      std::vector<Buffer<char>> others;
      for (int i = 0; i < kBuffers; ++i) {
        others.emplace_back(int64_t{1} << 20, i % 8 == 0 ? Memory::kPinned : Memory::kDevice);
      }
      Order("the same among 600 more buffers", [&] {
        Layer(kFlag, 0);
        Pages("page of 16 in a row");
      });
    }
    const auto behind = [&](const char* order, const std::function<void()>& work) {
      SleepingThread other(cores_, work);
      Order(order, [&] {
        Layer(kFlag, 0);
        other.Wake();
        other.Await();
        Pages("page of 16 in a row");
      });
    };
    behind("the same behind a thread that woke and slept", [] {});
    behind("the same behind a thread that copied and launched",
           [&] { PagesAlone("other thread: page", "other thread: launch"); });
    Order("the same, all by one thread", [&] {
      Layer(kFlag, 0);
      PagesAlone("page before a launch", "launch behind a page");
      Pages("page of 16 in a row");
    });
  }

 private:
  // As calibrate does.
  void Trains() {
    const OnCore core(cores_, 0);
    const HostCalls calls = MeasureCalls(watch_, ends_);
    fmt::print(
        "in held trains of one kind, us: launch {:.2f}, copy to the GPU {:.2f}, to the "
        "host {:.2f}, event {:.2f}, wait {:.2f}\n",
        calls.launch * 1e6, calls.copy * 1e6, calls.copy_back * 1e6, calls.event_record * 1e6,
        calls.stream_wait * 1e6);
    const HostWaits waits = MeasureWaits(watch_, ends_);
    fmt::print(
        "a kernel and the wait for it {:.2f}, a flag and the wait for it {:.2f}; a flag behind a "
        "page {:.2f} later, a page behind a flag {:.2f}\n",
        waits.kernel * 1e6, waits.flag * 1e6, waits.to_host_gap * 1e6, waits.to_device_gap * 1e6);
  }

  // A flag that is called while a page's copy runs, by how long after the page's call its own
  // begins: when the host knows of it, from the end of the page's call.
  void FlagsBehindPages() {
    constexpr int kPagesALayer = 6, kLayers = 40;
    const OnCore core(cores_, 0);
    const auto since = [](Clock::time_point begin) { return SecondsSince(begin) * 1e6; };
    const auto flag = [&] { Copy(sizeof(int), false, watch_.stream()); };
    const auto sync = [&] {
      Check(cudaStreamSynchronize(watch_.stream()), "cudaStreamSynchronize");
    };
    fmt::print(
        "a flag that is called while a page of 128 KiB comes, us from the page's call: its "
        "own, the host knows (P10, P50, P90)\n");
    for (const int64_t apart_ns : {0, 250, 500, 1000, 2000, 3000, 4000, 5000}) {
      std::vector<double> called, known;
      for (int layer = 0; layer < kLayers; ++layer) {
        pages_.Choose(kPagesALayer, kLarge, watch_.stream(), capture::PagePlacement::kFar);
        sync();
        for (int i = 0; i < kPagesALayer; ++i) {
          pages_.Copy(i, watch_.stream());
          const auto begin = Clock::now();
          capture::SpinUntil(begin + std::chrono::nanoseconds(apart_ns));
          flag();
          called.push_back(since(begin));
          sync();
          known.push_back(since(begin));
          flag();
          sync();
        }
      }
      std::ranges::sort(known);
      const auto at = [&](double share) {
        return known[static_cast<size_t>(share * static_cast<double>(known.size() - 1))];
      };
      fmt::print("  {:5.2f}: {:6.2f} {:6.2f} {:6.2f}\n", Median(std::move(called)), at(0.1),
                 at(0.5), at(0.9));
    }
  }

  enum class Other : uint8_t { kWaits, kWaitsForEvent, kWaitsForIt, kLaunches, kRecalls };

  // What a neighbour does over and over; kWaitsForIt for the stream whose calls are timed.
  std::function<void()> WorkOf(Other of, int first_page) {
    constexpr int kCalls = 50;
    constexpr int64_t kWaitNs = 400'000;
    struct Own {
      kernels::Stream stream;
      Buffer<uint64_t> stamps{2};
      Event done{cudaEventDisableTiming};
      int at = 0;
    };
    const auto own = std::make_shared<Own>();
    own->at = first_page;
    return [this, of, own] {
      switch (of) {
        case Other::kWaits:
          kernels::Stamp(own->stamps.get(), kWaitNs, own->stream);
          break;
        case Other::kWaitsForEvent:
          kernels::Stamp(own->stamps.get(), kWaitNs, own->stream);
          Check(cudaEventRecord(own->done, own->stream), "cudaEventRecord");
          Check(cudaEventSynchronize(own->done), "cudaEventSynchronize");
          break;
        case Other::kWaitsForIt:
          Check(cudaStreamSynchronize(watch_.stream()), "cudaStreamSynchronize");
          break;
        case Other::kLaunches:
          for (int call = 0; call < kCalls; ++call) kernels::Nothing(own->stream);
          break;
        case Other::kRecalls:
          for (int call = 0; call < kCalls; ++call) {
            ends_.CopyPage(own->at++, kPage, true, own->stream);
            kernels::Nothing(own->stream);
          }
          break;
      }
      Check(cudaStreamSynchronize(own->stream), "cudaStreamSynchronize");
    };
  }

  // Microseconds of one calls() in a train on streams that have work, while others do theirs.
  double Beside(const std::vector<int>& cores, const std::vector<Other>& others,
                const std::function<void()>& calls) {
    constexpr int kTrains = 30, kCalls = 50;
    constexpr int64_t kHeldNs = 2'000'000;
    std::deque<BackgroundLoad> neighbours;
    for (size_t i = 1; i <= others.size(); ++i) {
      neighbours.emplace_back(cores, i, WorkOf(others[i - 1], 1000 * static_cast<int>(i)));
    }
    const OnCore core(cores, 0);
    std::vector<double> us;
    for (int train = 0; train < kTrains; ++train) {
      for (const cudaStream_t stream : {watch_.stream(), watch_.other()}) {
        kernels::Stamp(stamps_.get(), kHeldNs, stream);
      }
      const auto begin = Clock::now();
      for (int i = 0; i < kCalls; ++i) calls();
      const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
      us.push_back(took.count() / kCalls);
      watch_.Finish();
    }
    for (BackgroundLoad& neighbour : neighbours) neighbour.Finish();
    return Median(std::move(us));
  }

  // A launch while others launch, or wait for the device.
  void LaunchesBesideOthers(const std::vector<int>& cores) {
    fmt::print("a launch beside others, us (rows: how many launch; columns: how many wait)\n");
    for (size_t launching = 0; launching <= 3; ++launching) {
      for (size_t waiting = 0; launching + waiting <= 3; ++waiting) {
        std::vector<Other> others(launching, Other::kLaunches);
        others.resize(launching + waiting, Other::kWaits);
        fmt::print(" {:>6.2f}", Beside(cores, others, [&] { kernels::Nothing(watch_.stream()); }));
      }
      fmt::print("\n");
    }
  }

  // What plans' threads call, while others wait for the device, launch, or recall pages one by one.
  void KindsBesideOthers(const std::vector<int>& cores) {
    const std::pair<const char*, std::vector<Other>> columns[] = {
        {"nobody", {}},
        {"waits", {Other::kWaits}},
        {"event", {Other::kWaitsForEvent}},
        {"for it", {Other::kWaitsForIt}},
        {"launches", {Other::kLaunches}},
        {"recalls", {Other::kRecalls}},
        {"2 recall", {Other::kRecalls, Other::kRecalls}},
        {"w + rec", {Other::kWaits, Other::kRecalls}},
        {"l + rec", {Other::kLaunches, Other::kRecalls}}};
    const cudaStream_t stream = watch_.stream();
    const auto copy = [&] { Copy(kPage, true, stream); };
    const auto launch = [&] { kernels::Nothing(stream); };
    const auto recall = [&](cudaStream_t to) {
      Copy(kPage, true, to);
      kernels::Nothing(to);
    };
    const auto record = [&] { Check(cudaEventRecord(from_, stream), "cudaEventRecord"); };
    const auto wait = [&] { Check(cudaStreamWaitEvent(stream, to_, 0), "cudaStreamWaitEvent"); };
    const std::pair<const char*, std::function<void()>> kinds[] = {
        {"launch", launch},
        {"page", copy},
        {"page, page", [&] { copy(), copy(); }},
        {"page, launch", [&] { copy(), launch(); }},
        {"page, page, launch", [&] { copy(), copy(), launch(); }},
        {"page, launch on two in turn", [&] { recall(stream), recall(watch_.other()); }},
        {"launch, event", [&] { launch(), record(); }},
        {"wait, launch", [&] { wait(), launch(); }},
        {"wait, page, launch, event", [&] { wait(), copy(), launch(), record(); }},
        {"wait, event", [&] { wait(), record(); }}};
    Check(cudaEventRecord(to_, watch_.other()), "cudaEventRecord");
    fmt::print("\n{:<28}", "calls beside others, us");
    for (const auto& [name, others] : columns) fmt::print(" {:>8}", name);
    fmt::print("\n");
    for (const auto& [kind, calls] : kinds) {
      fmt::print("{:<28}", kind);
      for (const auto& [name, others] : columns) {
        fmt::print(" {:>8.2f}", Beside(cores, others, calls));
      }
      fmt::print("\n");
    }
  }

  // From the notice to another thread's going on, by how long that has slept.
  void HandoffsBySleep() {
    constexpr int kHandoffs = 400;
    fmt::print("\n{:<28} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n", "a handoff, us, asleep for us",
               "mean", "P50", "P75", "P90", "P99", "most");
    const OnCore core(cores_, 0);
    for (const int asleep : {50, 200, 500, 1000, 2000, 5000}) {
      std::vector<double> s =
          TimeHandoffs(cores_, std::chrono::microseconds(asleep), kHandoffs).latency;
      std::ranges::sort(s);
      const auto us = [&](double q) { return s[static_cast<size_t>(q * (kHandoffs - 1))] * 1e6; };
      fmt::print("{:<28} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f}\n", asleep,
                 std::accumulate(s.begin(), s.end(), 0.0) / kHandoffs * 1e6, us(0.5), us(0.75),
                 us(0.9), us(0.99), us(1));
    }
  }

  // What an op takes beside its calls, of a host that is never ahead: layers of launches, a flag
  // and a wait, then flags with a wait each.
  void ThroughTheExecutor() {
    constexpr int kLayers = 32, kSteps = 24, kTrials = 5;
    for (const auto& [kernels, flags] : {std::pair{9, 1}, std::pair{0, 16}, std::pair{64, 1}}) {
      plan::PlanBuilder builder;
      const plan::LaneId host = builder.AddHost("host");
      const plan::LaneId stream = builder.AddStream("compute", host, true);
      for (int step = 0; step < kSteps; ++step) {
        builder.BeginStep(step);
        for (int layer = 0; layer < kLayers; ++layer) {
          builder.At(layer, plan::Role::kOther);
          for (int i = 0; i < kernels; ++i) builder.Run(stream, plan::Norm{.rows = 1});
          for (int i = 0; i < flags; ++i) {
            builder.Run(stream, plan::Copy{plan::Direction::kDeviceToHost, plan::CopyPath::kBulk, 1,
                                           sizeof(int32_t)});
            builder.SyncStream(host, stream);
          }
        }
        builder.EndStep(builder.Last(stream));
      }
      const plan::Plan plan = builder.Finish();
      SmallOps ops;
      kernels::Executor executor(plan, ops);
      const Buffer<int32_t> to(64, Memory::kPinned), from(64);
      const auto direct = [&] {
        for (int layer = 0; layer < kLayers * kSteps; ++layer) {
          for (int i = 0; i < kernels; ++i) kernels::Nothing(watch_.stream());
          for (int i = 0; i < flags; ++i) {
            SmallOps::Flag(to.get(), from.get(), watch_.stream());
            Check(cudaStreamSynchronize(watch_.stream()), "cudaStreamSynchronize");
          }
        }
      };
      std::vector<double> by_executor, by_hand;
      for (int trial = 0; trial < kTrials; ++trial) {
        const OnCore core(cores_, 0);
        const auto begin = Clock::now();
        direct();
        by_hand.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
        double sum = 0;
        for (const kernels::RanStep& step : executor.Run()) sum += Seconds(step.time) * 1e6;
        by_executor.push_back(sum);
      }
      std::ranges::sort(by_executor), std::ranges::sort(by_hand);
      fmt::print(
          "a layer of {} launches, {} flags with a wait each, us: {:.2f} by hand, {:.2f} by the "
          "executor ({} ops); {:.2f} and {:.2f} at most\n",
          kernels, flags, by_hand[kTrials / 2] / (kLayers * kSteps),
          by_executor[kTrials / 2] / (kLayers * kSteps), kernels + 2 * flags,
          by_hand.back() / (kLayers * kSteps), by_executor.back() / (kLayers * kSteps));
    }
  }

  // In some recordings the first runs of a process have slower calls than the later ones.
  void OverTime() {
    constexpr int kSamples = 24;
    constexpr auto kEvery = std::chrono::milliseconds(500);
    const OnCore core(cores_, 0);
    const auto timer = kernels::LaunchTimer();
    fmt::print("a launch every {} ms of the first seconds, on core {}, us:\n ", kEvery.count(),
               cores_.empty() ? -1 : cores_.front());
    for (int i = 0; i < kSamples; ++i) {
      SpinUntil(Clock::now() + kEvery);
      fmt::print(" {:.2f}", timer() * 1e6);
    }
    fmt::print("\n");
  }

  template <class Round>
  void Order(const char* name, const Round& round) {
    const OnCore core(cores_, 0);
    for (int i = 0; i < kRounds; ++i) {
      if (i == kWarmUp) times_.Forget();
      round();
      watch_.Finish();
    }
    times_.Print(name);
    times_.Forget();
  }

  // As ArkVale recalls behind a layer's kernels. In recordings the wait for a layer's first page is
  // 2.6 us longer than for the next.
  void Recall(int64_t nanoseconds) {
    const auto wait = [&](const std::string& what) {
      times_.Of("call of a flag behind " + what, [&] { Copy(kFlag, false, watch_.stream()); });
      times_.Of("wait for a flag behind " + what,
                [&] { Check(cudaStreamSynchronize(watch_.stream()), "cudaStreamSynchronize"); });
    };
    kernels::Stamp(stamps_.get(), nanoseconds, watch_.stream());
    wait("kernels");
    for (const char* page : {"page 1", "page 2", "page 3"}) {
      times_.Of(std::string("call of ") + page, [&] { Copy(kLarge, true, watch_.stream()); });
      wait(page);
    }
  }

  void Kernel(cudaStream_t stream) { kernels::Stamp(stamps_.get(), kKernelNs, stream); }

  void Layer(int64_t flag, int64_t recalled) {
    for (int i = 0; i < kKernels; ++i) times_.Of("launch", [&] { Kernel(watch_.stream()); });
    times_.Of("flag to the host", [&] { Copy(flag, false, watch_.stream()); });
    times_.Of("synchronisation",
              [&] { Check(cudaStreamSynchronize(watch_.stream()), "cudaStreamSynchronize"); });
    if (recalled == 0) return;
    times_.Of("copy to the GPU", [&] { Copy(recalled, true, watch_.stream()); });
    times_.Of("launch behind the copy", [&] { Kernel(watch_.stream()); });
  }

  // On the other stream, which waits for this one and this one for it.
  void Pages(const char* what) {
    times_.Of("event", [&] { Check(cudaEventRecord(from_, watch_.stream()), "cudaEventRecord"); });
    times_.Of("wait",
              [&] { Check(cudaStreamWaitEvent(watch_.other(), from_, 0), "cudaStreamWaitEvent"); });
    for (int i = 0; i < kPages; ++i) times_.Of(what, [&] { Copy(kPage, true, watch_.other()); });
    times_.Of("launch behind pages", [&] { Kernel(watch_.other()); });
    Check(cudaEventRecord(to_, watch_.other()), "cudaEventRecord");
    Check(cudaStreamWaitEvent(watch_.stream(), to_, 0), "cudaStreamWaitEvent");
  }

  // Each with a kernel behind it.
  void PagesAlone(const char* page, const char* launch) {
    for (int i = 0; i < kPages; ++i) {
      times_.Of(page, [&] { Copy(kPage, true, watch_.other()); });
      times_.Of(launch, [&] { Kernel(watch_.other()); });
    }
  }

  void Copy(int64_t bytes, bool to_device, cudaStream_t stream) {
    ends_.CopyPage(at_++, bytes, to_device, stream);
  }

  void Gather() {
    constexpr int kThreads = 4;
    std::vector<int64_t> places(static_cast<size_t>(kGathered / kPage));
    for (int64_t& place : places) place = at_++ * int64_t{7919} % (CopyEnds::kPool / 2 / kPage);
    times_.Of("gather", [&] {
      kernels::HostGather(ends_.host, places.data(), std::ssize(places), {kPage},
                          ends_.host + CopyEnds::kPool / 2, kThreads);
    });
  }

  capture::Stopwatch watch_;
  const CopyEnds ends_;
  const capture::LayerPools pools_{capture::LayerPools::kLayers * capture::LayerPages::kPool};
  capture::LayerPages pages_{pools_, ends_};
  const Buffer<uint64_t> stamps_{2};
  const Event from_{cudaEventDisableTiming}, to_{cudaEventDisableTiming};
  const std::vector<int> cores_ = kernels::FastestCores(2, kernels::LaunchTimer());
  Times times_;
  int at_ = 0;
};

}  // namespace
}  // namespace stallcast::capture

int main() {
  return stallcast::kernels::Benchmark("bench_host_calls",
                                       [] { stallcast::capture::Bench().Run(); });
}
