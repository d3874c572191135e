#include "capture/calibrate/measure_device.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "capture/calibrate/sleeper.h"
#include "kernels/runtime/cuda_handles.h"
#include "kernels/runtime/host_cores.h"
#include "kernels/runtime/probe.h"
#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

using kernels::Buffer;
using kernels::Check;

constexpr int kTrain = 100;

// Makes `to` wait for what `from` has been given.
class Joiner {
 public:
  void Join(cudaStream_t from, cudaStream_t to) const {
    Check(cudaEventRecord(event_, from), "cudaEventRecord");
    Check(cudaStreamWaitEvent(to, event_, 0), "cudaStreamWaitEvent");
  }

 private:
  kernels::Event event_{cudaEventDisableTiming};
};

// The device's clock before and after what a stream does between two kernels.
class Handovers {
 public:
  explicit Handovers(Stopwatch& watch) : watch_(watch), stamps_(int64_t{2} * (kCycles + 1)) {
    kernels::Stamp(stamps_.get(), 0, watch.stream());  // loads it, as Hold() wants it
    watch.Finish();
  }

  /// Mean seconds from a kernel's end to the next one's start, `between` being enqueued after each.
  template <class Between>
  double Mean(const Between& between, cudaStream_t next) {
    double sum = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      watch_.Hold();
      for (int i = 0; i <= kCycles; ++i) {
        const cudaStream_t mine = i % 2 == 0 ? watch_.stream() : next;
        const cudaStream_t other = i % 2 == 0 ? next : watch_.stream();
        kernels::Stamp(stamps_.get() + ptrdiff_t{2} * i, length_(random_), mine);
        if (i < kCycles) between(mine, other);
      }
      watch_.Release();
      watch_.Finish();
      std::vector<uint64_t> stamps(static_cast<size_t>(stamps_.size()));
      Check(cudaMemcpy(stamps.data(), stamps_.get(), static_cast<size_t>(stamps_.bytes()),
                       cudaMemcpyDeviceToHost),
            "cudaMemcpy");
      for (size_t i = 0; i < kCycles; ++i) {
        sum += static_cast<double>(stamps[2 * i + 2] - stamps[2 * i + 1]) * 1e-9;
      }
    }
    return sum / (kTrials * kCycles);
  }

 private:
  static constexpr int kCycles = 40, kTrials = 6;
  Stopwatch& watch_;
  Buffer<uint64_t> stamps_;
  std::mt19937_64 random_{1};
  std::uniform_int_distribution<int64_t> length_{2000, 32000};
};

}  // namespace

void MeasureHandovers(Stopwatch& watch, hardware::Profile& profile) {
  // Ends of its own: between kernels and copies whose ends had been copied before, two calibrations
  // saw 0.1 us where four with fresh ones saw 4.6, as timelines of runs show it.
  const CopyEnds ends;
  constexpr double kLeast = 1e-8;
  Handovers handovers(watch);
  const Joiner joiner;
  int at = 0;
  const auto copies = [&](int count, bool down, cudaStream_t stream) {
    for (int i = 0; i < count; ++i) ends.CopyPage(at++, CopyEnds::kPage, down, stream);
  };
  const auto alone = [&](bool down) {
    return watch.Period(kTrain, [&](int) { copies(1, down, watch.stream()); });
  };
  const double h2d = alone(true), d2h = alone(false);
  const cudaStream_t same = watch.stream(), other = watch.other();
  // A stamp lies within its kernel: what the kernel takes beyond it is no gap.
  const double within =
      handovers.Mean([](cudaStream_t, cudaStream_t) {}, same) - profile.device_gap;
  double gap = 0;
  int shapes = 0;
  for (const bool down : {true, false}) {
    for (const int count : {1, 4, 12}) {
      const double whole =
          handovers.Mean([&](cudaStream_t mine, cudaStream_t) { copies(count, down, mine); }, same);
      gap += (whole - within - count * (down ? h2d : d2h)) / 2;
      ++shapes;
    }
  }
  profile.device_copy_gap = std::max(gap / shapes, kLeast);

  profile.device_event_latency =
      std::max(handovers.Mean(
                   [&](cudaStream_t mine, cudaStream_t next) { joiner.Join(mine, next); }, other) -
                   within,
               kLeast);
  const double copied_there = handovers.Mean(
      [&](cudaStream_t mine, cudaStream_t next) {
        joiner.Join(mine, next);
        copies(1, true, next);
      },
      other);
  const double copied_here = handovers.Mean(
      [&](cudaStream_t mine, cudaStream_t next) {
        copies(1, true, mine);
        joiner.Join(mine, next);
      },
      other);
  const double known = within + h2d + profile.device_copy_gap;
  profile.device_event_to_copy = std::max(copied_there - known, kLeast);
  profile.device_event_from_copy = std::max(copied_here - known, kLeast);
}

void MeasureCrowding(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile) {
  constexpr int kPieces = 12, kKernels = 60, kTrials = 9;
  // Trains of 4, 6, .. 20 pieces, kPieces on average: what one finds at its begin comes and goes as
  // front ends look.
  constexpr int kLengths = 9, kFew = kLengths, kMany = 3 * kLengths, kRounds = 31;
  const Joiner joiner;
  int at = 0;
  const auto train = [&](cudaStream_t stream, int number, bool kernel) {
    const int pieces = 4 + number * 4 % kLengths * 2;
    for (int i = 0; i < pieces; ++i) ends.CopyPage(at++, CopyEnds::kPage, true, stream);
    if (kernel) kernels::Nothing(stream);
  };
  // Kernels of one stream beside trains, which outlast them, of another of its group.
  const auto gap = [&](bool crowded) {
    return Stopwatch::Median(kTrials, [&] {
      const double seconds = watch.PeriodOn(watch.other(), kKernels, [&](int i) {
        kernels::Nothing(watch.other());
        if (i > 0 || !crowded) return;
        joiner.Join(watch.other(), watch.third());
        for (int n = 0; n < kMany; ++n) train(watch.third(), n, /*kernel=*/true);
      });
      Check(cudaStreamSynchronize(watch.third()), "cudaStreamSynchronize");
      return seconds;
    });
  };
  train(watch.third(), 0, /*kernel=*/true);  // loads it, as Hold() wants it
  Check(cudaStreamSynchronize(watch.third()), "cudaStreamSynchronize");
  profile.device_crowded_gap = std::max(gap(true) - gap(false), 0.0);

  // Trains on one stream without kernels, by turns on two of one group and of both, and on the
  // former while a kernel of a third waits for all.
  struct Trains {
    std::array<cudaStream_t, 2> streams;
    bool kernels, third;
  };
  const Trains alone{{watch.other(), watch.other()}, false, false};
  const Trains of_a_group{{watch.other(), watch.third()}, true, false};
  const Trains of_both{{watch.other(), watch.stream()}, true, false};
  const Trains crowded{of_a_group.streams, true, true};
  const auto train_time = [&](const Trains& of) {
    const auto& [first, second] = of.streams;
    return Stopwatch::WithoutEnds(kFew, kMany, [&](int trains) {
      const double seconds = watch.PeriodOn(first, 1, [&](int) {
        joiner.Join(first, second);
        for (int n = 0; n < trains; ++n) train(n % 2 == 0 ? first : second, n, of.kernels);
        joiner.Join(second, first);
        if (!of.third) return;
        joiner.Join(first, watch.stream());
        kernels::Nothing(watch.stream());
      });
      watch.Finish();
      return seconds;
    });
  };
  // In turn: what others do on the link comes and goes. Trains of both groups begin later than of
  // one stream too, which is no group's doing.
  std::vector<double> turns, pieces;
  for (int round = -1; round < kRounds; ++round) {
    const double least = train_time(alone), apart = train_time(of_both);
    const double turn = train_time(of_a_group) - apart, more = train_time(crowded) - least;
    if (round < 0) continue;  // warms up
    turns.push_back(turn);
    pieces.push_back(more / kPieces);
  }
  profile.copy_group_turn = std::max(Median(std::move(turns)), 0.0);
  profile.copy_crowded_piece = std::max(Median(std::move(pieces)), 0.0);
}

// Called by two threads while they are copied, each on a stream, as recalls are: what lies ready is
// copied 5 % faster. So many that the engine is behind the calls, whatever the host.
void MeasureTurns(Stopwatch& watch, const CopyEnds& ends, double link, hardware::Profile& profile) {
  constexpr int kFew = 2000, kMany = 8000, kTrials = 5;
  constexpr double kTurns = 0.95;  // of the time on one stream: clearly less
  const std::vector<int> cores = kernels::FastestCores(2, kernels::LaunchTimer());
  const kernels::OnCore core(cores, 0);
  std::vector<double> sizes, times;
  for (const int64_t bytes : {256, 512, 1024, 2048, 4096}) {
    const auto copy_time = [&](cudaStream_t one, cudaStream_t two) {
      return Stopwatch::WithoutEnds(kFew, kMany, [&](int copies) {
        // Each thread has rows of its own.
        const auto call = [&](cudaStream_t stream, int first) {
          for (int i = 0; i < copies / 2; ++i) ends.CopyRow(first + i, bytes, true, stream);
        };
        Sleeper other(cores, [&] { call(two, copies); });
        return Stopwatch::Median(kTrials, [&] {
          return Stopwatch::WallSeconds([&] {
            other.Wake();
            call(one, 0);
            other.Await();
            Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
          });
        });
      });
    };
    const double by_turns = copy_time(watch.other(), watch.third());
    if (by_turns > kTurns * copy_time(watch.other(), watch.other())) break;
    sizes.push_back(static_cast<double>(bytes));
    times.push_back(std::max(by_turns - static_cast<double>(bytes) / link, 1e-9));
  }
  profile.copy_h2d_turns = {};
  if (sizes.size() > 1) profile.copy_h2d_turns = hardware::Curve(sizes, times);
}

void MeasureLoad(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile) {
  constexpr int64_t kRead = int64_t{2} << 30;
  constexpr int64_t kLong = 12'000'000;  // ns: longer than what is timed beside
  constexpr double kLeast = 1e-9;
  const Buffer<std::byte> memory(kRead);
  const Buffer<int> sink(1);
  const Buffer<uint64_t> read(1);
  int at = 0;
  const auto kernel = [&](int) { kernels::Nothing(watch.stream()); };
  const auto h2d = [&](int) { ends.CopyPage(at++, CopyEnds::kPage, true, watch.stream()); };
  const auto d2h = [&](int) { ends.CopyPage(at++, CopyEnds::kPage, false, watch.stream()); };
  // Seconds a start beside `blocks` of readers, and the share of the memory that these took.
  const auto once = [&](int32_t blocks, const auto& work) {
    Check(cudaMemset(read.get(), 0, sizeof(uint64_t)), "cudaMemset");
    if (blocks > 0) {
      kernels::ReadFor(memory.get(), kRead, blocks, kLong, read.get(), sink.get(), watch.other());
    }
    const double seconds =
        blocks > 0 ? watch.PeriodWhileBusy(kTrain, work) : watch.PeriodBeside(kTrain, work);
    uint64_t bytes = 0;
    Check(cudaMemcpy(&bytes, read.get(), sizeof(bytes), cudaMemcpyDeviceToHost), "cudaMemcpy");
    const double share = static_cast<double>(bytes) / (kLong * 1e-9) / profile.memory_bandwidth;
    return std::pair{std::isfinite(seconds) ? seconds : -1.0, std::min(share, 1.0)};
  };
  // Medians: what is wanted are differences.
  const auto beside = [&](int32_t blocks, const auto& work) {
    constexpr int kTrials = 5;
    once(blocks, work);  // warms up
    std::vector<double> seconds, shares;
    for (int trial = 0; trial < kTrials; ++trial) {
      const auto [time, share] = once(blocks, work);
      seconds.push_back(time), shares.push_back(share);
    }
    return std::pair{Median(std::move(seconds)), Median(std::move(shares))};
  };
  const double alone_kernel = beside(0, kernel).first, alone_h2d = beside(0, h2d).first,
               alone_d2h = beside(0, d2h).first;
  std::vector<double> shares, kernel_longer, h2d_longer, d2h_longer;
  for (const double blocks_an_sm : {0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0}) {
    const auto blocks = std::max(1, static_cast<int32_t>(blocks_an_sm * profile.device_sms));
    const auto [of_kernel, share] = beside(blocks, kernel);
    const double of_h2d = beside(blocks, h2d).first;
    const double of_d2h = beside(blocks, d2h).first;
    if (of_kernel < 0 || of_h2d < 0 || of_d2h < 0) continue;
    if (!shares.empty() && share < shares.back() * 1.02) continue;
    shares.push_back(share);
    kernel_longer.push_back(std::max(of_kernel - alone_kernel, kLeast));
    h2d_longer.push_back(std::max(of_h2d - alone_h2d, kLeast));
    d2h_longer.push_back(std::max(of_d2h - alone_d2h, kLeast));
  }
  profile.load_kernel = hardware::Curve(shares, kernel_longer);
  profile.load_h2d_piece = hardware::Curve(shares, h2d_longer);
  profile.load_d2h_piece = hardware::Curve(shares, d2h_longer);
}

}  // namespace stallcast::capture
