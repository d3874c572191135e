// Cores of the host for the threads that call CUDA. Where another program has a core's other
// hyperthread, which a virtual machine does not even show, the same call takes 1.35 times as long
// (on a shared Xeon a launch 4.2 us instead of 3.1 us, a recorded one 6.9 instead of 5.0): a thread
// that wanders makes a run of its own luck.
#pragma once

#include <sched.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace stallcast::kernels {

/// Seconds of a kernel launch on the calling thread's core, on a stream of the current device that
/// nobody uses meanwhile.
std::function<double()> LaunchTimer();

/// What a fixed lot of independent integer instructions takes on the calling thread's core, over
/// what a chain of such takes that wait for one another, so that it does not tell of the clock: 1.4
/// to 1.8 times as much while another program has the core's other hyperthread, when a launch takes
/// 1.35 times as long. Takes 1.4 us; the less of two, as an interrupt is no neighbour.
double CoreLoad();
/// The same where the thread's core may have slept, which is slow at first.
double WokenCoreLoad();

/// Core loads that were seen, by which others are judged. The least of all says nothing: a look
/// behind a sleep can come out a quarter low.
class CoreLoadSampler {
 public:
  void Add(double core_load);
  /// Adds those of all cores that the calling thread may use, now: some have no neighbour.
  void LookAround();
  /// Whether a load tells of a neighbour: it is 1.2 times what a twentieth of all stay under.
  bool IsShared(double core_load) const;

 private:
  std::vector<double> loads_;  ///< ascending
};

/// The `count` cores among those that this thread may use on which `seconds` is least in some
/// looks, fastest first; of each but the first while threads spin on those before it, as waiting
/// for a GPU does. Empty where they would not leave a core to others.
std::vector<int> FastestCores(size_t count, const std::function<double()>& seconds);

/// Keeps the calling thread on cores[i] while this lives, or leaves it alone where there are not as
/// many. Threads that it starts meanwhile start there too.
class OnCore {
 public:
  OnCore(const std::vector<int>& cores, size_t i);
  ~OnCore();
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;
  bool kept() const { return kept_; }

 private:
  bool kept_ = false;
  cpu_set_t before_{};
};

/// Keeps the calling thread where launches are fastest right then: a tenth of a second later others
/// may be.
OnCore OnFastestCore();

/// Lets the calling thread use all cores that the process may use: one that another, kept on a
/// core, has started.
void UseAllCores();

}  // namespace stallcast::kernels
