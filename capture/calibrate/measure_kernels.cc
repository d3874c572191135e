#include "capture/calibrate/measure_kernels.h"

#include <algorithm>
#include <map>
#include <vector>

#include "capture/calibrate/fit.h"
#include "kernels/device_attribute.h"
#include "kernels/probe.h"

namespace stallcast::capture {
namespace {

// Trains this long are free of what starts and ends them.
constexpr double kTrainSeconds = 2e-3;
// An H200 lowers its clock within some ten milliseconds of full load. Trains that fall short of
// this, at kMostLaunches, are of prompts so short that all of their prefill does.
constexpr double kSustainedTrainSeconds = 0.25;
constexpr int kMostLaunches = 200;
// A kernel of this length needs no train, and has settled the clock when it was run once.
constexpr double kLongSeconds = 0.1;

// Streams through parts of memory in turn, like the weights of a layer's products: twice as much as
// the cache holds, so that neither the next kernel's data nor its instructions are left there.
class Streaming {
 public:
  void Run(int i, cudaStream_t stream) {
    kernels::ReadOnce(memory_.At(i), bytes_, sink_.get(), stream);
  }

 private:
  int64_t bytes_ = int64_t{2} * kernels::DeviceAttribute(cudaDevAttrL2CacheSize);
  ColdMemory memory_{bytes_ / int64_t{sizeof(__nv_bfloat16)}};
  kernels::Buffer<int> sink_{1};
};

// What is filled on the default stream, which those of a stopwatch do not wait for, is there.
Prepared Ready(const KernelProbe& probe) {
  Prepared prepared = probe.prepare();
  kernels::Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return prepared;
}

Timing TimeAfterStream(Stopwatch& watch, const KernelProbe& probe, double gap) {
  const Prepared prepared = Ready(probe);
  Streaming streaming;
  constexpr int kCount = 60;
  const auto lead = [&](int i) {
    streaming.Run(i, watch.stream());
    if (prepared.before) prepared.before(i, watch.stream());
  };
  const double alone = watch.Period(kCount, lead, 9);
  const double both = watch.Period(
      kCount,
      [&](int i) {
        lead(i);
        prepared.launch(i, watch.stream());
      },
      9);
  Timing timing;
  timing.seconds = std::max(both - alone - gap, 1e-7);
  timing.host = watch.HostTime(
      40, [&](int i) { prepared.launch(i, watch.stream()); }, 3);
  return timing;
}

}  // namespace

Timing TimeKernel(Stopwatch& watch, const KernelProbe& probe, double gap) {
  if (probe.after_stream) return TimeAfterStream(watch, probe, gap);
  const Prepared prepared = Ready(probe);
  const auto work = [&](int i) { prepared.launch(i, watch.stream()); };
  Timing timing;
  const double once = watch.Period(1, work, 1);
  if (once > kLongSeconds) {
    timing.seconds = once - gap;
    timing.host = watch.HostTime(1, work, 1);
    return timing;
  }
  const double train = probe.sustained ? kSustainedTrainSeconds : kTrainSeconds;
  const int count = std::clamp(static_cast<int>(train / std::max(once, 1e-6)), 4, kMostLaunches);
  timing.seconds = std::max(watch.Period(count, work, probe.sustained ? 3 : 5) - gap, 1e-7);
  timing.host = watch.HostTime(std::min(count, 40), work, 3);
  return timing;
}

void MeasureKernels(Stopwatch& watch, hardware::Profile& profile,
                    const std::function<void(const std::string&, double)>& progress) {
  std::vector<KernelProbe> probes;
  for (auto family :
       {GemmProbes(), DecoderProbes(), AttentionProbes(), SelectionProbes(), RetrievalProbes()}) {
    std::move(family.begin(), family.end(), std::back_inserter(probes));
  }
  std::map<std::string, std::vector<TimedWork>> kinds;
  for (size_t i = 0; i < probes.size(); ++i) {
    const std::string name(plan::KindName(probes[i].work));
    if (progress) progress(name, static_cast<double>(i) / static_cast<double>(probes.size()));
    const Timing timing = TimeKernel(watch, probes[i], profile.device_gap);
    kinds[name].push_back(
        {probes[i].work, timing.seconds, timing.host / plan::Count(probes[i].work).launches});
  }
  for (const auto& [name, timed] : kinds) profile.kernels[name] = FitKernel(timed);
}

}  // namespace stallcast::capture
