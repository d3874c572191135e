// Records what the GPU and the CUDA calls of this process do, through CUPTI, into a measured
// timeline of a .kvt file.
//
// CUPTI is found at run time, so that programs that link this run where there is none. Recording
// slows launches down, and CUDA stays slower after Stop() until the process ends: time steps that
// are to be quoted before the first recorder is made.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "traces/common/units.h"
#include "traces/format/trace_file.h"
#include "traces/timeline.h"

namespace stallcast::capture {

class ActivitySource;

/// What the rows of an op are for.
struct OpLabel {
  traces::Role role = traces::Role::kOther;
  int16_t layer = -1;
};

/// Where copies are drawn: on the copy engines that ran them, or on the streams that they were
/// issued to, as predicted timelines draw them.
enum class CopyLanes : uint8_t { kEngines, kStreams };

/// What the rows of calls and of GPU work outside of PushOp() get as op id.
enum class OpIds : uint8_t {
  kPushed,       ///< -1: op ids are those of a plan
  kCorrelation,  ///< CUDA's correlation id, which a call shares with the work that it launched
};

struct GpuRecorderOptions {
  std::string title;               ///< Timeline::title
  std::vector<std::string> notes;  ///< Timeline::notes; what was lost is added at the end
  CopyLanes copy_lanes = CopyLanes::kEngines;
  OpIds op_ids = OpIds::kPushed;
  /// Role and layer of an op; called by the recorder's own thread. Empty: CUDA calls are kHost,
  /// synchronizations kSync, all else kOther.
  std::function<OpLabel(int32_t step, int32_t op)> label;
  bool nvtx = true;  ///< record NVTX ranges, each thread's on a lane of its own
  /// Records wait at most about this long before they are in the file.
  std::chrono::milliseconds flush_period{200};
  /// Memory for records that are not in the file yet; what does not fit is dropped and counted.
  int64_t buffer_bytes = int64_t{256} << 20;
};

/// Longer than what is recorded of a plan takes: until it is over the recorder rests, unless much
/// waits.
inline constexpr std::chrono::milliseconds kBehindAll{60'000};

struct GpuRecorderStats {
  int64_t rows = 0;         ///< in the file
  int64_t dropped = 0;      ///< lost by CUPTI, or for want of buffer_bytes
  int64_t zero_stamps = 0;  ///< records without a usable time; they give no row
  int64_t unmatched = 0;    ///< rows of GPU work whose CUDA call was not found
};

/// Records from construction to Stop(). One at a time in a process.
///
/// Rows: CUDA calls and waits on the lane of their thread, kernels and memsets on that of their
/// stream, copies as CopyLanes says. An op may have any number of rows, all with its id. Kernels
/// that a CUDA graph launches get the op that was pushed where their node was made (captured), and
/// the step that was pushed where the graph was launched; Timeline::graph_node tells them apart.
/// Times count from the construction.
///
/// All functions may be called from any thread. Errors (no CUPTI, another profiler holds it, disk
/// full) are stallcast::Error; a file of its own that could not be recorded into is removed.
class GpuRecorder {
 public:
  /// Writes into a file of its own.
  GpuRecorder(const std::filesystem::path& path, const traces::proto::TraceInfo& info,
              const GpuRecorderOptions& options);
  /// Writes a timeline into `*writer`, which nobody else may use until Stop() has returned and
  /// whose Finish() the caller calls, with the numbers that Stop() gave.
  GpuRecorder(traces::TraceWriter* writer, const GpuRecorderOptions& options);
  /// Takes a source that is open already; for tests, one of their own.
  GpuRecorder(std::unique_ptr<ActivitySource> source, const std::filesystem::path& path,
              const traces::proto::TraceInfo& info, const GpuRecorderOptions& options);
  /// Stops where Stop() was not called; a failure is lost then.
  ~GpuRecorder();
  GpuRecorder(const GpuRecorder&) = delete;
  GpuRecorder& operator=(const GpuRecorder&) = delete;

  /// CUDA calls of this thread belong to op `op` of step `step` until PopOp(). Pairs nest; -1 is
  /// allowed for either.
  void PushOp(int32_t step, int32_t op);
  void PopOp();

  /// Names the lane of a stream (a cudaStream_t or CUstream of the current context). To be called
  /// before work is issued to it. `compute`: see TimelineLane. Where no stream is named, the first
  /// one that runs a kernel or memset is the compute lane.
  void NameStream(void* stream, const std::string& lane, bool compute = false);
  /// Names the lane of the calling thread, before its first CUDA call or span.
  void NameThread(const std::string& lane);

  /// The recorder's clock.
  Picoseconds Now() const;
  /// Adds work of the calling thread that CUDA does not see, such as a gather on the CPU.
  void AddSpan(const std::string& name, Picoseconds start, Picoseconds end, int32_t step,
               int32_t op, int64_t bytes = 0);

  /// Ends recording and returns when all is written. GPU work that still runs is lost: synchronize
  /// first. Throws what went wrong since the construction; later calls only return the numbers.
  GpuRecorderStats Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stallcast::capture
