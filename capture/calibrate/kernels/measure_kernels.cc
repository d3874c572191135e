#include "capture/calibrate/kernels/measure_kernels.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "capture/calibrate/host/measure_host.h"
#include "capture/calibrate/kernels/cold_memory.h"
#include "capture/calibrate/kernels/layer_trains.h"
#include "capture/calibrate/timing/device_times.h"
#include "capture/calibrate/timing/fit.h"
#include "capture/calibrate/timing/recording.h"
#include "kernels/runtime/device_attribute.h"
#include "kernels/runtime/probe.h"

namespace stallcast::capture {
namespace {

using hardware::How;
using hardware::Site;

// Trains this long are free of what starts and ends them.
constexpr double kTrainSeconds = 2e-3;
// An H200 lowers its clock within some ten milliseconds of full load. Trains that fall short of
// this, at kMostLaunches, are of prompts so short that all of their prefill does.
constexpr double kSustainedTrainSeconds = 0.25;
constexpr int kMostLaunches = 200;
// A kernel of this length needs no train, and has settled the clock when it was run once.
constexpr double kLongSeconds = 0.1;
// What is timed among the products of a decode step.
constexpr double kShortSeconds = 200e-6;

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

// Before it is timed, a probe chooses its kernels, as GEMMs do. By then the driver must have
// cleared the memory that the probe before freed. The device is synchronised because a stopwatch's
// streams do not wait for the default stream, which fills the inputs.
Prepared Ready(Stopwatch& watch, const KernelProbe& probe) {
  watch.Settle();
  Prepared prepared = probe.prepare();
  kernels::Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  watch.Settle();
  return prepared;
}

bool AmongProducts(const TimedProbe& timed) {
  return !timed.probe.sustained && !timed.probe.waits && timed.timing.seconds <= kShortSeconds;
}

// Products are what is dragged, and scatters owe by their bytes (hardware::WriteBack).
bool OwesWhatIsSeen(const plan::Work& work) {
  return !std::holds_alternative<plan::Gemm>(work) &&
         !std::holds_alternative<plan::GroupedGemm>(work) &&
         !std::holds_alternative<plan::Layout>(work);
}

// Of an empty kernel's, by the fastest of trains in turn: others on the host slow either for a
// while, and a shape whose calls came out as half or twice a launch would keep that.
double Launches(Stopwatch& watch, const std::function<void(int)>& launch, int count, int trials) {
  double empty = INFINITY, own = INFINITY;
  for (int trial = 0; trial < trials; ++trial) {
    empty = std::min(empty, LaunchHere(watch, 1));
    own = std::min(own, watch.HostTime(count, launch, 1));
  }
  return own / empty;
}

Timing TimeAfterStream(Stopwatch& watch, const KernelProbe& probe, double gap) {
  const Prepared prepared = Ready(watch, probe);
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
  timing.launches = Launches(
      watch, [&](int i) { prepared.launch(i, watch.stream()); }, 40, 3);
  return timing;
}

}  // namespace

Timing TimeKernel(Stopwatch& watch, const KernelProbe& probe, double gap) {
  if (probe.after_stream) return TimeAfterStream(watch, probe, gap);
  const Prepared prepared = Ready(watch, probe);
  const auto work = [&](int i) { prepared.launch(i, watch.stream()); };
  Timing timing;
  if (probe.waits) {
    timing.seconds = watch.WallTime([&] { work(0); }, 1);
    timing.launches = plan::Count(probe.work).launches;
    return timing;
  }
  const double once = watch.Period(1, work, 1);
  if (once > kLongSeconds) {
    timing.seconds = once - gap;
    timing.launches = Launches(watch, work, 1, 1);
    return timing;
  }
  const double train = probe.sustained ? kSustainedTrainSeconds : kTrainSeconds;
  const int count = std::clamp(static_cast<int>(train / std::max(once, 1e-6)), 4, kMostLaunches);
  timing.seconds = std::max(watch.Period(count, work, probe.sustained ? 3 : 5) - gap, 1e-7);
  // What their calls take hardly shows in longer ones.
  constexpr double kCallsShow = 1e-3;
  timing.launches = Launches(watch, work, std::min(count, 40), once > kCallsShow ? 1 : 3);
  return timing;
}

std::vector<TimedProbe> TimeKernels(Stopwatch& watch, double gap, const Progress& progress) {
  std::vector<KernelProbe> probes;
  for (auto family : {GemmProbes(), ExpertProbes(), DecoderProbes(), AttentionProbes(),
                      SelectionProbes(), RetrievalProbes(), LowRankProbes()}) {
    std::move(family.begin(), family.end(), std::back_inserter(probes));
  }
  std::vector<TimedProbe> timed;
  for (const KernelProbe& probe : probes) {
    progress(std::string(plan::KindName(probe.work)),
             static_cast<double>(timed.size()) / static_cast<double>(probes.size()));
    timed.push_back({probe, TimeKernel(watch, probe, gap)});
  }
  return timed;
}

void TimeAmongProducts(Stopwatch& watch, ProductLayers& layers, std::vector<TimedProbe>& timed,
                       const Progress& progress) {
  constexpr int kLayers = 16, kTrials = 5;
  if (!layers.fits()) return;
  for (size_t i = 0; i < timed.size(); ++i) {
    if (!AmongProducts(timed[i]) || !OwesWhatIsSeen(timed[i].probe.work)) continue;
    progress(std::string(plan::KindName(timed[i].probe.work)),
             static_cast<double>(i) / static_cast<double>(timed.size()));
    const Prepared prepared = Ready(watch, timed[i].probe);
    const auto period = [&](const Launch& launch) {
      return watch.Period(
          kLayers,
          [&](int layer) {
            if (prepared.before) prepared.before(layer, watch.stream());
            if (launch) launch(layer, watch.stream());
            layers.Run(layer, watch.stream());
          },
          kTrials);
    };
    const double without = period({});
    timed[i].timing.among_products = period(prepared.launch) - without;
  }
}

void RecordKernels(Stopwatch& watch, const CopyEnds& ends, ProductLayers& layers,
                   std::vector<TimedProbe>& timed, hardware::Profile& profile,
                   const Progress& progress) {
  const std::unique_ptr<Recording> recording = Recording::Begin();
  if (!recording) return;
  LayerTrains trains(recording->recorder(), watch.stream(), layers);
  watch.Settle();
  trains.RecordGathers(ends);
  constexpr size_t kBetweenNothings = 100;
  for (size_t i = 0; i < timed.size(); ++i) {
    if (i % kBetweenNothings == 0) trains.RecordNothing();
    if (!AmongProducts(timed[i])) continue;
    progress(std::string(plan::KindName(timed[i].probe.work)),
             static_cast<double>(i) / static_cast<double>(timed.size()));
    trains.RecordProbe(i, Ready(watch, timed[i].probe));
    watch.Finish();
  }
  const auto spans = DeviceSpans(recording->End());
  trains.ReadGathers(spans, profile);
  for (size_t i = 0; i < timed.size(); ++i) {
    Timing& timing = timed[i].timing;
    const std::optional<double> seconds = trains.SecondsOf(i, spans);
    if (!seconds) continue;
    timing.seconds = std::max(*seconds, 1e-7);
    timing.recorded = true;
    const double drag = timing.among_products - timing.seconds -
                        profile.handoff(Site::kKernel, Site::kKernel, How::kStream);
    timing.drag = drag < kLeastDrag ? 0 : drag;
  }
}

void FitKernels(const std::vector<TimedProbe>& timed, hardware::Profile& profile) {
  std::map<std::string, std::vector<TimedWork>> kinds;
  for (const auto& [probe, timing] : timed) {
    kinds[std::string(plan::KindName(probe.work))].push_back(
        {probe.work, timing.seconds,
         timing.launches * profile.host.launch / plan::Count(probe.work).launches, timing.drag});
  }
  for (const auto& [name, works] : kinds) profile.kernels[name] = FitKernel(works);
  // Of experts, decode steps alone are timed, which no rate of operations limits. A prompt's are
  // limited as any GEMM is.
  const auto grouped = profile.kernels.find(plan::GroupedGemm::kName);
  if (grouped != profile.kernels.end() && grouped->second.flops_rate == 0) {
    grouped->second.flops_rate = profile.kernels.find(plan::Gemm::kName)->second.flops_rate;
  }
}

}  // namespace stallcast::capture
