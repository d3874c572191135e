// libstallcast_inject.so: records any CUDA program. The driver loads the library that
// CUDA_INJECTION64_PATH names when CUDA starts and calls InitializeInjection; NVTX does the same
// with NVTX_INJECTION64_PATH and InitializeInjectionNvtx2. STALLCAST_RECORD says into which file.
//
// The program runs on whatever happens here; what went wrong is one line on standard error.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

#include "capture/activity_source.h"
#include "capture/gpu_recorder.h"
#include "capture/run_info.h"

namespace stallcast::capture {
namespace {

namespace fs = std::filesystem;

// Ends with the process, in AtExit; never destroyed, because CUPTI's threads outlive destructors.
GpuRecorder* g_recorder = nullptr;
pid_t g_process = 0;
std::string* g_path = nullptr;

void Say(const std::string& text) { fmt::print(stderr, "stallcast: {}\n", text); }

// The file itself for the first process of a run, "name.PID.kvt" for others that it starts.
fs::path Claim(const fs::path& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file >= 0) {
    close(file);
    return path;
  }
  if (errno != EEXIST) return path;  // the recorder says what is wrong with it
  fs::path own = path;
  own.replace_extension(fmt::format("{}{}", getpid(), path.extension().string()));
  return own;
}

void AtExit() {
  if (g_recorder == nullptr || getpid() != g_process) return;  // a forked child records nothing
  try {
    const GpuRecorderStats stats = g_recorder->Stop();
    Say(fmt::format(
        "{} rows in {}{}{}", stats.rows, *g_path,
        stats.dropped > 0 ? fmt::format(", {} records dropped", stats.dropped) : "",
        stats.zero_stamps > 0 ? fmt::format(", {} without a time", stats.zero_stamps) : ""));
  } catch (const std::exception& error) {
    Say(fmt::format("the recording ends early: {}", error.what()));
  }
}

void Begin(const char* path) {
  // Before the file is claimed: a process that cannot record leaves none behind.
  std::unique_ptr<ActivitySource> source = OpenCupti();
  g_path = new std::string(Claim(path));
  GpuRecorderOptions options;
  options.title = CommandLine();
  options.op_ids = OpIds::kCorrelation;
  g_recorder = new GpuRecorder(std::move(source), *g_path, RunInfo(), options);
  g_process = getpid();
  std::atexit(AtExit);
}

}  // namespace
}  // namespace stallcast::capture

extern "C" {

__attribute__((visibility("default"))) int InitializeInjection() {
  const char* path = std::getenv("STALLCAST_RECORD");
  if (path == nullptr || *path == '\0') return 1;
  try {
    stallcast::capture::Begin(path);
  } catch (const std::exception& error) {
    stallcast::capture::Say(fmt::format("not recorded: {}", error.what()));
  }
  return 1;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(void* get_export_table) {
  return stallcast::capture::InitializeCuptiNvtx(get_export_table);
}
}
