#include "kernels/runtime/host_cores.h"

#include <oneapi/tbb/info.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/fast_streams.h"
#include "kernels/runtime/probe.h"
#include "traces/common/median.h"

namespace stallcast::kernels {
namespace {

/// Of those that are fastest with nobody beside them: a host may have hundreds.
constexpr size_t kCandidates = 16;
/// Of the cores, before half of them are left out.
constexpr int kRounds = 3;

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

/// Those of `cores` that can be used, fastest first. Whether another program has a core's other
/// hyperthread changes within milliseconds, so that one look says little: the better half is looked
/// at again and again, until the first is known by all that was seen of it.
std::vector<int> ByTime(const std::vector<int>& cores, const std::function<double()>& seconds) {
  std::vector<std::pair<double, int>> timed;  // the sum
  timed.reserve(cores.size());
  for (const int core : cores) timed.emplace_back(0, core);
  size_t left = timed.size();
  const auto look = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < left; ++i) {
        const OnCore there({timed[i].second}, 0);
        timed[i].first += there.kept() ? seconds() : INFINITY;
      }
    }
    std::sort(timed.begin(), timed.begin() + static_cast<std::ptrdiff_t>(left));
  };
  if (left > kCandidates) {
    look(1);
    left = kCandidates;
  }
  do {
    look(kRounds);
    left = (left + 1) / 2;
  } while (left > 1);
  std::vector<int> order;
  for (const auto& [sum, core] : timed) {
    if (sum < INFINITY) order.push_back(core);
  }
  return order;
}

}  // namespace

std::function<double()> LaunchTimer() {
  constexpr int kLaunches = 30, kTrains = 2;
  return [stream = FastStreams(1)[0]] {
    using Clock = std::chrono::steady_clock;
    std::vector<double> seconds;
    for (int train = -1; train < kTrains; ++train) {
      const auto begin = Clock::now();
      for (int i = 0; i < kLaunches; ++i) Nothing(stream);
      if (train >= 0) {  // the first warms the core up
        seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / kLaunches);
      }
      Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
    return Median(std::move(seconds));
  };
}

double CoreLoad() {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  constexpr uint32_t kRounds = 400, kChain = 1000;
  double lot = INFINITY, chain = INFINITY;
  for (int trial = 0; trial < 2; ++trial) {
    uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8;
    auto begin = Clock::now();
    for (uint32_t i = 0; i < kRounds; ++i) {
      a += i, b ^= i, c -= i, d += i, e ^= i, f -= i, g += i, h ^= i;
      // Each for itself, as the compiler cannot know.
      asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g), "+r"(h));
      a ^= i, b -= i, c += i, d ^= i, e -= i, f += i, g ^= i, h -= i;
      asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g), "+r"(h));
    }
    lot = std::min(lot, since(begin));
    begin = Clock::now();
    for (uint32_t i = 0; i < kChain; ++i) {
      a += b;
      asm volatile("" : "+r"(a));
    }
    chain = std::min(chain, since(begin));
  }
  return lot / chain;
}

double WokenCoreLoad() {
  constexpr int kWarm = 8;
  for (int look = 0; look < kWarm; ++look) CoreLoad();
  return CoreLoad();
}

void CoreLoadSampler::Add(double core_load) {
  constexpr size_t kEnough = 4096;  // a core's own load does not change
  if (loads_.size() == kEnough) return;
  loads_.insert(std::ranges::upper_bound(loads_, core_load), core_load);
}

void CoreLoadSampler::LookAround() {
  const cpu_set_t allowed = Allowed();
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    const OnCore there({core}, 0);
    if (there.kept()) Add(WokenCoreLoad());
  }
}

bool CoreLoadSampler::IsShared(double core_load) const {
  constexpr size_t kPart = 20;
  return !loads_.empty() && core_load >= 1.2 * loads_[(loads_.size() - 1) / kPart];
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
    std::vector<int> order = ByTime(left, seconds);
    if (order.empty()) return {};
    chosen.push_back(order.front());
    left.assign(order.begin() + 1,
                order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), kCandidates)));
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

OnCore OnFastestCore() { return {FastestCores(1, LaunchTimer()), 0}; }

void UseAllCores() { sched_setaffinity(0, sizeof(All()), &All()); }

}  // namespace stallcast::kernels
