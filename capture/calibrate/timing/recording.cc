#include "capture/calibrate/timing/recording.h"

#include <unistd.h>

#include <string>
#include <system_error>
#include <utility>

#include "capture/run_info.h"
#include "traces/common/error.h"

namespace stallcast::capture {

std::unique_ptr<Recording> Recording::Begin() {
  auto recording = std::unique_ptr<Recording>(new Recording);
  recording->path_ = std::filesystem::temp_directory_path() /
                     ("stallcast-calibrate-" + std::to_string(getpid()) + ".kvt");
  GpuRecorderOptions options;
  options.copy_lanes = CopyLanes::kStreams;
  options.nvtx = false;
  options.flush_period = kBehindAll;
  try {
    recording->recorder_ =
        std::make_unique<GpuRecorder>(recording->path_, RunInfo(), std::move(options));
  } catch (const Error&) {
    return nullptr;
  }
  return recording;
}

Recording::~Recording() {
  recorder_.reset();
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

traces::Trace Recording::End() {
  recorder_->Stop();
  return traces::ReadTrace(path_);
}

}  // namespace stallcast::capture
