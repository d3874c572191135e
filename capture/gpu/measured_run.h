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
  std::string name;  ///< of the method or preset
  const methods::Method* method = nullptr;
  methods::PlanInput input;
  const traces::Trace* trace = nullptr;
  std::string title;               ///< of the timeline
  std::vector<std::string> notes;  ///< what qualifies the run
  /// Whose background traffic is made beside all runs; null: none.
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

/// The machine at hand, for runs one after the other: weights and pinned memory are kept between
/// them.
class GpuRunner {
 public:
  /// No device, a driver that is too old: Error.
  GpuRunner();
  ~GpuRunner();

  /// Times the plan, `repetitions` times after one that warms up, and up to three times as often
  /// while another program has a core of its threads' (kernels::CoreLoad()).
  StepTimes Time(const RunRequest& request, int repetitions);
  /// Runs it once step by step and compares what the device selects with the access log.
  kernels::SelectionCheck CheckSelection(const RunRequest& request);
  /// Times its prefill as Time() does: the median, or, of one that takes seconds, a single run.
  /// With `check` its steps are compared too, and go on from what the prefill has left where all
  /// sequences begin behind the prompt.
  PrefillRun TimePrefill(const RunRequest& request, int repetitions, bool check);
  /// Runs it once more, untraced: what its host threads do, as CallTimer tells it.
  traces::Timeline TimeCalls(const RunRequest& request);
  /// Runs it with tracing on, and writes the measured timeline. CUDA calls are slower from now on,
  /// so whatever is to be timed must have been.
  GpuRecorderStats Record(const RunRequest& request, const std::filesystem::path& path,
                          const traces::proto::TraceInfo& info);
  GpuRecorderStats RecordPrefill(const RunRequest& request, const std::filesystem::path& path,
                                 const traces::proto::TraceInfo& info);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stallcast::capture
