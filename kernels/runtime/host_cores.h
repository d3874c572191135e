// Cores of the host for the threads that call CUDA. A call takes 1.35 times as long while another
// program uses the core's second hyperthread: on a shared Xeon a launch took 4.2 us instead of 3.1.
// A virtual machine does not show hyperthreads. So threads are kept on cores that proved fast.
#pragma once

#include <sched.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace stallcast::kernels {

/// Measures the seconds of a kernel launch on the calling thread's core. It uses a stream of its
/// own on the current device.
std::function<double()> LaunchTimer();

/// Load of the calling thread's core: the time of independent integer instructions, divided by that
/// of a chain of dependent ones. The clock cancels out. The ratio is 1.4 to 1.8 times as high while
/// another program uses the core's second hyperthread. Takes 1.4 us. Of two measurements the lower
/// counts, since an interrupt is not a shared core.
double CoreLoad();
/// CoreLoad() of a core that may have been asleep, and is slow at first.
double WokenCoreLoad();

/// Collects core loads, and tells which of them mean a shared core. A single low value means
/// little: right after a sleep a load can come out a quarter too low.
class CoreLoadSampler {
 public:
  void Add(double core_load);
  /// Adds the present loads of all cores that the calling thread may use. Some are not shared.
  void LookAround();
  /// Whether a load means a shared core: it is at least 1.2 times the 5th percentile of all loads.
  bool IsShared(double core_load) const;

 private:
  std::vector<double> loads_;  ///< ascending
};

/// The `count` cores on which `seconds` was least, fastest first, of those that this thread may
/// use. Each core but the first is measured while threads spin on the cores chosen before it, as
/// threads that wait for a GPU do. Empty if no core would be left for other programs.
std::vector<int> FastestCores(size_t count, const std::function<double()>& seconds);

/// Keeps the calling thread on cores[i] for the lifetime of this object; does nothing if there are
/// fewer cores. Threads that it starts meanwhile start on the same core.
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

/// Keeps the calling thread on the core where launches are fastest now. That may change within a
/// tenth of a second.
OnCore OnFastestCore();

/// Lets the calling thread use all cores of the process, after a thread kept on a core started it.
void UseAllCores();

}  // namespace stallcast::kernels
