#include "kernels/host_cores.h"

#include <oneapi/tbb/info.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "kernels/cuda_error.h"
#include "kernels/cuda_handles.h"
#include "kernels/probe.h"
#include "traces/common/median.h"

namespace stallcast::kernels {
namespace {

/// Of those that are fastest with nobody beside them: a host may have hundreds.
constexpr size_t kCandidates = 16;

cpu_set_t Allowed() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof(cores), &cores);
  return cores;
}

/// What the process may use. First asked for before any thread is kept on a core; so is TBB, which
/// counts the cores of the first thread that asks.
const cpu_set_t& All() {
  static const cpu_set_t all = [] {
    static_cast<void>(tbb::info::default_concurrency());
    return Allowed();
  }();
  return all;
}

/// Spins on a core, as a thread in cudaStreamSynchronize does.
class Spinner {
 public:
  explicit Spinner(int core)
      : thread_([this, core] {
          const OnCore here({core}, 0);
          begun_ = true;
          while (!stop_.load(std::memory_order_relaxed)) {
          }
        }) {
    while (!begun_) std::this_thread::yield();
  }
  ~Spinner() {
    stop_ = true;
    thread_.join();
  }
  Spinner(const Spinner&) = delete;
  Spinner& operator=(const Spinner&) = delete;

 private:
  std::atomic<bool> begun_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace

std::function<double()> LaunchTimer() {
  constexpr int kLaunches = 30, kTrains = 3;
  return [stream = std::make_shared<Stream>()] {
    using Clock = std::chrono::steady_clock;
    std::vector<double> seconds;
    for (int train = -1; train < kTrains; ++train) {
      const auto begin = Clock::now();
      for (int i = 0; i < kLaunches; ++i) Nothing(*stream);
      if (train >= 0) {  // the first warms the core up
        seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / kLaunches);
      }
      Check(cudaStreamSynchronize(*stream), "cudaStreamSynchronize");
    }
    return Median(std::move(seconds));
  };
}

std::vector<int> FastestCores(size_t count, const std::function<double()>& seconds) {
  const cpu_set_t allowed = Allowed();
  std::vector<int> left;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) left.push_back(core);
  }
  if (left.size() <= count) return {};
  std::vector<int> chosen;
  std::vector<std::unique_ptr<Spinner>> spinning;
  while (chosen.size() < count) {
    std::vector<std::pair<double, int>> timed;
    for (const int core : left) {
      const OnCore there({core}, 0);
      if (there.kept()) timed.emplace_back(seconds(), core);
    }
    if (timed.empty()) return {};
    std::ranges::sort(timed);
    chosen.push_back(timed.front().second);
    left.clear();
    for (size_t i = 1; i < std::min(timed.size(), kCandidates); ++i) {
      left.push_back(timed[i].second);
    }
    if (chosen.size() < count) spinning.push_back(std::make_unique<Spinner>(chosen.back()));
  }
  return chosen;
}

OnCore::OnCore(const std::vector<int>& cores, size_t i) {
  if (i >= cores.size()) return;
  All();
  before_ = Allowed();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cores[i], &one);
  kept_ = sched_setaffinity(0, sizeof(one), &one) == 0;
}

OnCore::~OnCore() {
  if (kept_) sched_setaffinity(0, sizeof(before_), &before_);
}

void UseAllCores() { sched_setaffinity(0, sizeof(All()), &All()); }

}  // namespace stallcast::kernels
