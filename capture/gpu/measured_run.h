// Plans run on the GPU: step times undisturbed, the selection checked, a timeline recorded.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "capture/calibrate/host_drift.h"
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
  /// Whose background traffic is made beside what is timed or recorded; null: none.
  const hardware::Profile* machine = nullptr;
};

/// Step times from CUDA events, tracing off.
struct StepTimes {
  /// The median over the repetitions, by step: over those in which its threads had their cores to
  /// themselves, where there are any.
  std::vector<Picoseconds> steps;
  int disturbed = 0;    ///< steps of which there are none
  HostNow host;         ///< mean around and between the runs; a gather where the plan has one
  double link_h2d = 0;  ///< of large copies to the GPU before and behind them, bytes/s
  std::vector<std::string> notes;
  Picoseconds Mean() const;
  Picoseconds P50() const;
};

/// A prompt's time, and what the steps behind it select.
struct PrefillRun {
  Picoseconds time{0};
  kernels::SelectionCheck check;
};

/// The run whose timeline was kept.
struct RecordedRun {
  GpuRecorderStats stats;
  int disturbed = 0;  ///< steps in which another program had a core of its threads'
};

/// What runs on a machine share: weights, pinned memory, and what was seen of its host.
struct GpuMachine;

/// A plan bound to the machine's memory and kernels. Steps begin from what prefill has left in
/// caches, pool and index; a prefill leaves them empty or its own, so it and steps want a run each.
class GpuRun {
 public:
  /// Both must outlive it.
  GpuRun(const RunRequest& request, GpuMachine& machine);
  ~GpuRun();

  /// Times the plan, `repetitions` times after one that warms up, and more often, as
  /// Repetitions has it, while another program has a core of its threads' (kernels::CoreLoad()).
  /// Where calls or gathers were not as `calibrated` has them (HostDriftWarning()), all of it once
  /// more, which counts if they are so then; null: any host counts.
  StepTimes Time(int repetitions, const hardware::Profile* calibrated);
  /// Runs it step by step and compares what the device selects with the access log.
  kernels::SelectionCheck CheckSelection();
  /// Runs it so often once more, untraced: what its host threads do in the best run (BestRun), as
  /// CallTimer tells it.
  traces::Timeline TimeCalls(int repetitions);
  /// Times its prefill as Time() does: the median, or, of one that takes seconds, a single run.
  /// With `check` its steps are compared too, and go on from what the prefill has left where all
  /// sequences begin behind the prompt.
  PrefillRun TimePrefill(int repetitions, bool check);
  /// Runs it so often with tracing on, and writes the measured timeline of the best run. CUDA calls
  /// are slower from now on, so whatever is to be timed must have been.
  RecordedRun Record(const std::filesystem::path& path, const traces::proto::TraceInfo& info,
                     int repetitions);
  /// The same of its prefill.
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
