#include "capture/calibrate/transfers/measure_device.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "capture/calibrate/timing/sleeping_thread.h"
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
  const double within = handovers.Mean([](cudaStream_t, cudaStream_t) {}, same) -
                        profile.handoff(Site::kKernel, Site::kKernel, How::kStream);
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
  profile.handoff.SetCopyGap(std::max(gap / shapes, kLeast));

  profile.handoff.SetEvent(
      std::max(handovers.Mean(
                   [&](cudaStream_t mine, cudaStream_t next) { joiner.Join(mine, next); }, other) -
                   within,
               kLeast));
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
  const double known = within + h2d + profile.handoff(Site::kKernel, Site::kH2D, How::kStream);
  profile.handoff.SetEventToCopy(std::max(copied_there - known, kLeast));
  profile.handoff.SetEventFromCopy(std::max(copied_here - known, kLeast));
}

void MeasureGroupTurn(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile) {
  // Trains of 4, 6, .. 20 pieces: what one finds at its begin comes and goes as front ends poll.
  constexpr int kLengths = 9, kFew = kLengths, kMany = 3 * kLengths, kRounds = 31;
  const Joiner joiner;
  int at = 0;
  const auto train = [&](cudaStream_t stream, int number, bool kernel) {
    const int pieces = 4 + number * 4 % kLengths * 2;
    for (int i = 0; i < pieces; ++i) ends.CopyPage(at++, CopyEnds::kPage, true, stream);
    if (kernel) kernels::Nothing(stream);
  };
  train(watch.third(), 0, /*kernel=*/true);  // loads it, as Hold() wants it
  Check(cudaStreamSynchronize(watch.third()), "cudaStreamSynchronize");
  // A train's time where they take turns on two streams, while a kernel of a third waits for all.
  const auto train_time = [&](cudaStream_t first, cudaStream_t second, bool behind, bool third) {
    return Stopwatch::WithoutEnds(kFew, kMany, [&](int trains) {
      const double seconds = watch.PeriodOn(first, 1, [&](int) {
        joiner.Join(first, second);
        for (int n = 0; n < trains; ++n) train(n % 2 == 0 ? first : second, n, behind);
        joiner.Join(second, first);
        if (!third) return;
        joiner.Join(first, watch.stream());
        kernels::Nothing(watch.stream());
      });
      watch.Finish();
      return seconds;
    });
  };
  // In turn: what others do on the link comes and goes. Trains of both groups begin later than of
  // one stream too, which is no group's doing.
  constexpr int kPieces = 12;  // of a train, on average
  std::vector<double> turns, pieces;
  for (int round = -1; round < kRounds; ++round) {
    const double least = train_time(watch.other(), watch.other(), false, false);
    const double apart = train_time(watch.stream(), watch.other(), true, false);
    const double turn = train_time(watch.other(), watch.third(), true, false) - apart;
    const double more = train_time(watch.other(), watch.third(), true, true) - least;
    if (round < 0) continue;  // warms up
    turns.push_back(turn);
    pieces.push_back(more / kPieces);
  }
  profile.copy.crowded_piece = std::max(Median(std::move(pieces)), 0.0);
  profile.copy.group_turn = std::max(Median(std::move(turns)), 0.0);
}

}  // namespace stallcast::capture
