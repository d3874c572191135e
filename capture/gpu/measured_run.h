// Plans run on the GPU: step times undisturbed, the selection checked, a timeline recorded.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "capture/calibrate/host/host_drift.h"
#include "capture/gpu_recorder.h"
#include "kernels/executor/selection_check.h"
#include "models/hardware/profile.h"
#include "models/methods/method.h"
#include "traces/common/units.h"
#include "traces/format/trace_file.h"
#include "traces/timeline.h"

namespace stallcast::capture {

/// What to run: the plan of `method` for `input`, with the trace's tensors.
struct RunRequest {
  const methods::NamedMethod* method = nullptr;
  methods::PlanInput input;
  const traces::Trace* trace = nullptr;
  std::string title;               ///< of the timeline
  std::vector<std::string> notes;  ///< what qualifies the run
  /// The machine whose background traffic runs during the measurement; null: none.
  const hardware::Profile* machine = nullptr;
};

/// Step times from CUDA events, tracing off.
struct StepTimes {
  /// By step, the median over the quiet repetitions: those in which no other program used the cores
  /// of the run's threads. If a step has none, over all.
  std::vector<Picoseconds> steps;
  int disturbed = 0;    ///< steps without a quiet repetition
  HostNow host;         ///< mean around and between the runs; with a gather if the plan has one
  double link_h2d = 0;  ///< bytes/s of large copies to the GPU, before and after the runs
  std::vector<std::string> notes;
  Picoseconds Mean() const;
  Picoseconds P50() const;
};

/// The time of a prompt, and the selection of the steps after it.
struct PrefillRun {
  Picoseconds time{0};
  kernels::SelectionCheck check;
};

/// The run whose timeline was kept.
struct RecordedRun {
  GpuRecorderStats stats;
  int disturbed = 0;  ///< steps in which another program used a core of its threads
};

/// Shared by all runs on a machine: weights, pinned memory, core loads.
struct GpuMachine;

/// A plan bound to memory and kernels. Steps begin with the caches, pool and index as prefill
/// leaves them. Prefill and steps need a run each, since a prefill overwrites them.
class GpuRun {
 public:
  /// Both must outlive it.
  GpuRun(const RunRequest& request, GpuMachine& machine);
  ~GpuRun();

  /// Times the plan `repetitions` times after a warm-up, and more often while another program uses
  /// a core of its threads (class Repetitions, kernels::CoreLoad()). If the host is slower or
  /// faster than `calibrated` says (HostDriftWarning()), everything is timed once more; the second
  /// result counts if the host then agrees. Null: any host counts.
  StepTimes Time(int repetitions, const hardware::Profile* calibrated);
  /// Runs it step by step and compares what the device selects with the access log.
  kernels::SelectionCheck CheckSelection();
  /// Runs it `repetitions` times, untraced. Returns the calls of its host threads in the best run
  /// (BestRun), timed by CallTimer.
  traces::Timeline TimeCalls(int repetitions);
  /// Times its prefill as Time() does: the median, or a single run if it takes seconds. `check`
  /// compares the selection of the steps too. They continue from the prefill if all sequences begin
  /// right after the prompt.
  PrefillRun TimePrefill(int repetitions, bool check);
  /// Runs it `repetitions` times with tracing on, and writes the timeline of the best run. Tracing
  /// slows CUDA calls until the process ends, so time first.
  RecordedRun Record(const std::filesystem::path& path, const traces::proto::TraceInfo& info,
                     int repetitions);
  /// Records its prefill.
  GpuRecorderStats RecordPrefill(const std::filesystem::path& path,
                                 const traces::proto::TraceInfo& info);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The machine at hand, for runs one after the other.
class GpuRunner {
 public:
  /// No device, a driver that is too old: Error.
  GpuRunner();
  ~GpuRunner();

  /// One at a time; the request and this must outlive it.
  GpuRun Bind(const RunRequest& request) { return {request, *machine_}; }

 private:
  std::unique_ptr<GpuMachine> machine_;
};

}  // namespace stallcast::capture
