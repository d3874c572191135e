// What waking a thread costs, and what copies take that go in their calls.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "capture/calibrate/timing/stopwatch.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Of handoffs to a thread that has slept, s: the call that gives notice, and from its begin until
/// the other goes on.
struct Handoffs {
  std::vector<double> notice, latency;
};
/// So many, to a thread on the second of `cores`, by the calling one, which spins while it sleeps.
Handoffs TimeHandoffs(const std::vector<int>& cores, std::chrono::microseconds asleep, int count);

/// Threads that hand work to one another and wake. What others do on the
/// host's cores meanwhile slows them for seconds: time them at several moments.
class Threads {
 public:
  Threads();
  ~Threads();

  /// Times all of them once. The calling thread and those that it starts are kept on the fastest
  /// cores.
  void Measure(Stopwatch& watch);
  /// Fills in host.notify, handoff, handoff_asleep and woken, and copy.h2d_inline_call, from the
  /// medians of what has been timed: once at least.
  void Set(hardware::Profile& profile) const;

 private:
  class CallMix;
  /// s; where there are several, by time idle or by size.
  struct Times {
    double notify = 0;
    std::vector<double> handoffs{}, woken{};
    std::vector<double> in_calls{};
  };
  void TimeNotices(const std::vector<int>& cores, Times& times) const;
  void TimeWoken(Stopwatch& watch, const std::vector<int>& cores, Times& times) const;
  void TimeInCalls(Stopwatch& watch, Times& times) const;

  std::unique_ptr<CallMix> mix_;
  std::vector<Times> moments_;
};

}  // namespace stallcast::capture
