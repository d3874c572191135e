// A recording of this process's own work through CUPTI, to be read when it ends.
#pragma once

#include <filesystem>
#include <memory>

#include "capture/gpu_recorder.h"
#include "traces/format/trace_file.h"

namespace stallcast::capture {

/// One at a time. CUDA calls are slower from its begin until the process ends.
class Recording {
 public:
  /// Null where nothing can be recorded: CUPTI was not found, or another profiler holds it.
  static std::unique_ptr<Recording> Begin();
  ~Recording();
  GpuRecorder& recorder() { return *recorder_; }
  /// To be called once, when all that is to be recorded is done.
  traces::Trace End();

 private:
  Recording() = default;
  std::filesystem::path path_;
  std::unique_ptr<GpuRecorder> recorder_;
};

}  // namespace stallcast::capture
