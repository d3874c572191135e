#include "capture/calibrate/calibrate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/calibrate/host/host_drift.h"
#include "capture/calibrate/host/measure_attention.h"
#include "capture/calibrate/host/measure_gather.h"
#include "capture/calibrate/host/measure_host.h"
#include "capture/calibrate/host/measure_threads.h"
#include "capture/calibrate/kernels/layer_trains.h"
#include "capture/calibrate/kernels/measure_batches.h"
#include "capture/calibrate/kernels/measure_beside_product.h"
#include "capture/calibrate/kernels/measure_boost.h"
#include "capture/calibrate/kernels/measure_kernels.h"
#include "capture/calibrate/kernels/product_layers.h"
#include "capture/calibrate/timing/op_timer.h"
#include "capture/calibrate/transfers/measure_device.h"
#include "capture/calibrate/transfers/measure_links.h"
#include "capture/calibrate/transfers/measure_pages.h"
#include "capture/calibrate/transfers/measure_translation.h"
#include "capture/run_info.h"
#include "kernels/runtime/host_cores.h"
#include "traces/common/error.h"
#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

using hardware::How;
using hardware::Site;

// Between kernels of a stream, s, until it is recorded; about as long on all GPUs since Volta.
constexpr double kAssumedGap = 1e-6;

std::string CudaVersion() {
  int version = 0;
  kernels::Check(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string DriverOf(const traces::proto::TraceInfo& info) {
  const auto found = info.software().find("driver");
  return found == info.software().end() ? "unknown" : found->second;
}

// As a run is.
template <class Measure>
void OnFastestCore(const Measure& measure) {
  const kernels::OnCore core = kernels::OnFastestCore();
  measure();
}

// What host calls, gathers and batches take, and what the link carries: a host that others use too
// is faster at one moment than at another, for tens of seconds.
class RepeatedHostMeasurements {
 public:
  RepeatedHostMeasurements(Stopwatch& watch, const CopyEnds& ends, LayerPages& pages)
      : watch_(watch), ends_(ends), pages_(pages), page_times_(pages), gathers_(pages.pools()) {}

  /// All of it.
  void MeasureNow() {
    MeasureHostNow();
    OnFastestCore([&] { waits_.push_back(MeasureWaits(watch_, ends_)); });
    OnFastestCore([&] {
      links_.push_back(MeasureLink(watch_, ends_));
      page_times_.Measure(watch_);
    });
  }
  /// For SetHost() alone.
  void MeasureHostNow() {
    threads_.Measure(watch_);
    OnFastestCore([&] { calls_.push_back(MeasureCalls(watch_, ends_)); });
    gathers_.Measure();
    OnFastestCore([&] { batches_.Measure(watch_, pages_); });
    OnFastestCore([&] { ops_.push_back(op_timer_.Seconds()); });
  }
  void SetHost(hardware::Profile& profile) const {
    SetTypical(calls_, profile);
    threads_.Set(profile);
    profile.host.op = Median(ops_);
    gathers_.Set(profile);
    batches_.Set(profile);
    Note(DriftNote(calls_), profile);
  }
  /// Behind SetHost(), as they are by its calls.
  void SetWaits(hardware::Profile& profile) const { capture::SetWaits(waits_, profile); }
  void SetLink(hardware::Profile& profile) const {
    capture::SetLink(links_, profile);
    page_times_.Set(profile);
    Note(LinkDriftNote(links_), profile);
  }

 private:
  static void Note(std::string note, hardware::Profile& profile) {
    if (!note.empty()) profile.notes.push_back(std::move(note));
  }

  Stopwatch& watch_;
  const CopyEnds& ends_;
  LayerPages& pages_;
  Pages page_times_;
  std::vector<HostCalls> calls_;
  std::vector<HostWaits> waits_;
  std::vector<LinkRates> links_;
  std::vector<double> ops_;
  OpTimer op_timer_;
  Threads threads_;
  Gathers gathers_;
  Batches batches_;
};

cudaDeviceProp PropertiesOfDevice() {
  int device = 0;
  kernels::Check(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp properties{};
  kernels::Check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return properties;
}

// Kinds that have no probe move their bytes as a layout does.
void AssumeOthers(hardware::Profile& profile) {
  const hardware::KernelFit& layout = profile.kernels.at(std::string(plan::Layout::kName));
  hardware::KernelFit assumed{.fixed_s = layout.fixed_s,
                              .bandwidth = layout.bandwidth,
                              .spread = layout.spread,
                              .min_bytes = layout.min_bytes,
                              .max_bytes = layout.max_bytes,
                              .source = "assumed: not timed, its bytes pass as a layout's"};
  std::vector<std::string_view> others;
  for (const std::string_view kind : hardware::KernelKinds()) {
    if (profile.kernels.try_emplace(std::string(kind), assumed).second) others.push_back(kind);
  }
  if (others.empty()) return;
  profile.notes.push_back(
      fmt::format("Not timed, their bytes pass as a layout's: {}.", fmt::join(others, ", ")));
}

}  // namespace

hardware::Profile Calibrate(const CalibrateOptions& options) {
  const auto progress = [&](const std::string& what, double share) {
    if (options.progress) options.progress(what, share);
  };
  hardware::Profile profile;
  profile.handoff(Site::kKernel, Site::kKernel, How::kStream) =
      profile.handoff(Site::kKernel, Site::kKernel, How::kGraph) = kAssumedGap;
  const cudaDeviceProp properties = PropertiesOfDevice();
  const traces::proto::TraceInfo info = RunInfo();
  profile.name = options.name;
  profile.title = properties.name;
  profile.status = "measured";
  profile.provenance = fmt::format("{}, driver {}, CUDA {}, {}, command: {}", info.machine(),
                                   DriverOf(info), CudaVersion(), info.created(), options.command);
  profile.notes.clear();
  profile.device.sms = properties.multiProcessorCount;
  profile.memory.bytes = static_cast<double>(properties.totalGlobalMem);
  profile.host.bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                       static_cast<double>(sysconf(_SC_PAGESIZE)) * 0.8;

  Stopwatch watch;
  const CopyEnds ends;
  const LayerPools pools(LayerPools::kOfLongContexts);
  LayerPages pages(pools, ends);
  RepeatedHostMeasurements moments(watch, ends, pages);
  const auto stage = [&](const std::string& what, double share) {
    progress(what, share);
    watch.Settle();
  };
  stage("device memory", 0);
  MeasureMemory(watch, profile);
  OnFastestCore([&] { MeasureGroupTurn(watch, ends, profile); });
  stage("host calls", 0.02);
  moments.MeasureNow();
  MeasureHost(watch, profile);
  MeasureHostAttention(pools, profile);
  stage("copies", 0.05);
  OnFastestCore([&] { MeasureCopies(watch, ends, profile); });
  stage("zero-copy reads", 0.1);
  MeasureZeroCopy(watch, ends, profile);
  MeasureTranslation(watch, pools, profile);
  MeasureBoost(watch, profile);
  stage("between ops", 0.18);
  OnFastestCore([&] {
    MeasureHandovers(watch, profile);
    MeasureBesideProduct(watch, profile);
  });
  moments.MeasureNow();
  // Of kernels a gap is assumed; it is measured last, as recording slows calls.
  const double assumed_gap = profile.handoff(Site::kKernel, Site::kKernel, How::kStream);
  // Most moments lie here, where the time goes.
  constexpr int kAmongKernels = 5;
  int among_kernels = 0;
  std::vector<TimedProbe> timed =
      TimeKernels(watch, assumed_gap, [&](const std::string& kind, double share) {
        if (share * (kAmongKernels + 1) >= among_kernels + 1) {
          moments.MeasureNow();
          ++among_kernels;
        }
        progress("kernels: " + kind, 0.2 + 0.55 * share);
      });
  moments.MeasureNow();
  moments.SetHost(profile);
  moments.SetWaits(profile);
  moments.SetLink(profile);
  // The same for all that is timed among them: a half percent of a layer is to be seen.
  ProductLayers layers(watch.stream());
  TimeAmongProducts(watch, layers, timed, [&](const std::string& kind, double share) {
    progress("kernels of a decode step: " + kind, 0.75 + 0.1 * share);
  });
  progress("recorded calls", 0.85);
  MeasureRecorder(watch, ends, profile);
  progress("gaps between ops", 0.85);
  const std::optional<double> before_flag = MeasureGaps(watch, ends, profile);
  if (before_flag) {
    RecordInlinedCopies(watch, ends, profile);
    MeasureKernelGap(watch, layers, profile);
    RecordKernels(watch, ends, layers, timed, profile, [&](const std::string& kind, double share) {
      progress("recorded kernels: " + kind, 0.85 + 0.14 * share);
    });
  } else {
    profile.notes.emplace_back(
        "Gaps between ops are assumed, and part of the kernels' times: CUPTI was not found, or "
        "another profiler holds it.");
  }
  // Of a small copy and the wait for it, what is neither call nor copy; where that was not
  // recorded, the host learns of its end as of a kernel's.
  const double left = profile.handoff(Site::kHost, Site::kH2D, How::kStream) -
                      profile.host.copy_back_call - profile.copy.d2h_piece.At(sizeof(int));
  const double before = before_flag
                            ? left * *before_flag
                            : left - profile.handoff(Site::kKernel, Site::kHost, How::kEvent);
  profile.handoff.SetCopyLaunch(std::max(before, 1e-8));
  const std::string source = fmt::format("measured, {}", info.created());
  for (const hardware::ProfileField& field : hardware::ProfileFields()) {
    if (!field.in_file()) continue;
    profile.sources[std::string(field.path)] = source;
  }
  if (profile.memory.drag_most == 0) {
    for (const char* path : {"memory.drag_most", "memory.drag_share"}) {
      profile.sources[path] =
          "none: it was not seen, or could not be: that takes CUPTI and memory for a few layers";
    }
  }
  profile.sources["host.bytes"] = "0.8 of the host's memory";
  profile.sources["host.spread"] = "assumed: calls vary from run to run";
  for (const hardware::CurveField& curve : hardware::CurveFields()) {
    profile.sources[std::string(curve.path)] = source;
  }
  for (const hardware::SurfaceField& surface : hardware::SurfaceFields()) {
    profile.sources[std::string(surface.path)] = source;
  }
  // The gap that other times were taken without is the one that belongs to them.
  const double shift = assumed_gap - profile.handoff(Site::kKernel, Site::kKernel, How::kStream);
  profile.handoff.SetEvent(
      std::max(profile.handoff(Site::kKernel, Site::kKernel, How::kEvent) - shift, 1e-8));
  profile.handoff.SetCopyGap(
      std::max(profile.handoff(Site::kKernel, Site::kH2D, How::kStream) - shift / 2, 1e-8));
  profile.handoff.SetEventToCopy(
      std::max(profile.handoff(Site::kKernel, Site::kH2D, How::kEvent) - shift / 2, 1e-8));
  profile.handoff.SetEventFromCopy(
      std::max(profile.handoff(Site::kH2D, Site::kKernel, How::kEvent) - shift / 2, 1e-8));
  profile.zero_copy.start = std::max(profile.zero_copy.start + shift, 1e-7);
  for (TimedProbe& kernel : timed) {
    if (!kernel.timing.recorded) {
      kernel.timing.seconds = std::max(kernel.timing.seconds + shift, 1e-7);
    }
  }
  FitKernels(timed, profile);
  for (auto& [kind, fit] : profile.kernels) {
    fit.source =
        fmt::format("{}: {} shapes; spread is of each from the others", source, fit.points.size());
  }
  if (const auto grouped = profile.kernels.find(plan::GroupedGemm::kName);
      grouped != profile.kernels.end()) {
    grouped->second.source += "; flops is gemm's, as experts of decode steps never reach it";
  }
  AssumeOthers(profile);
  hardware::Check(profile, options.name);
  return profile;
}

hardware::Profile CalibrateHost(hardware::Profile profile, const CalibrateOptions& options) {
  constexpr int kMoments = 5;
  if (const std::string gpu = PropertiesOfDevice().name; !profile.provenance.starts_with(gpu)) {
    throw Error(fmt::format("not a profile that was measured on an {}", gpu), profile.name,
                "calibrate the whole machine (without --host)");
  }
  const hardware::Profile before = profile;
  const traces::proto::TraceInfo info = RunInfo();
  profile.name = options.name;
  // Those of the calls that are measured anew.
  std::erase_if(profile.notes, IsDriftNote);
  Stopwatch watch;
  const CopyEnds ends;
  const LayerPools pools(LayerPools::kLayers * LayerPages::kPool);
  LayerPages pages(pools, ends);
  RepeatedHostMeasurements moments(watch, ends, pages);
  for (int moment = 0; moment < kMoments; ++moment) {
    if (options.progress) options.progress("host calls", moment / double{kMoments});
    moments.MeasureHostNow();
  }
  moments.SetHost(profile);
  for (auto& [kind, fit] : profile.kernels) {
    fit.host_s *= profile.host.launch / before.host.launch;
  }
  const std::string source = fmt::format("measured, {}", info.created());
  for (const hardware::ProfileField& field : hardware::ProfileFields()) {
    if (field.In(profile) != field.In(before)) {
      profile.sources[std::string(field.path)] = source;
    }
  }
  for (const hardware::CurveField& curve : hardware::CurveFields()) {
    const bool measured = curve.path.starts_with("host.") || curve.path.starts_with("batch.") ||
                          curve.path == "copy.h2d_inline_call";
    if (measured) profile.sources[std::string(curve.path)] = source;
  }
  profile.provenance +=
      fmt::format("; the host's part {}, command: {}", info.created(), options.command);
  hardware::Check(profile, options.name);
  return profile;
}

}  // namespace stallcast::capture
