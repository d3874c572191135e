// stallcast-gpu record
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "capture/cli/commands.h"
#include "sim/cli/output.h"
#include "traces/common/error.h"

namespace stallcast::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kInjected = "libstallcast_inject.so";

struct RecordCommand {
  std::vector<std::string> program;
  std::string out = "recording.kvt";
  bool measure_overhead = false;

  int Run() const;
};

// In the Python package where the two were installed together, beside this program where they were
// copied together, else where the build puts it.
fs::path InjectedLibrary() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  const std::vector<fs::path> places = {
      (here / STALLCAST_PACKAGE_FROM_PROGRAM / kInjected).lexically_normal(), here / kInjected,
      here.parent_path() / "lib" / "capture" / kInjected};
  for (const fs::path& place : places) {
    if (fs::exists(place)) return fs::canonical(place);
  }
  throw Error(
      fmt::format("{} not found", kInjected),
      fmt::format("{}, {} or {}", places[0].string(), places[1].string(), places[2].string()),
      "install Stallcast anew, or build the target stallcast_inject");
}

struct Ended {
  int status = 0;  // as a shell gives it: 128 and more for signals
  double seconds = 0;
};

// Runs the program to its end; `prepare` runs in its process first.
template <typename Prepare>
Ended RunProgramOf(const RecordCommand& command, const Prepare& prepare) {
  std::vector<char*> arguments;
  for (const std::string& word : command.program)
    arguments.push_back(const_cast<char*>(word.data()));
  arguments.push_back(nullptr);
  const auto begin = Clock::now();
  // A Ctrl-C is for the program; what it then records is still reported.
  const auto old_interrupt = std::signal(SIGINT, SIG_IGN);
  const pid_t child = fork();
  if (child < 0) {
    const int reason = errno;
    std::signal(SIGINT, old_interrupt);
    throw Error(std::strerror(reason), "fork", "end other programs");
  }
  if (child == 0) {
    std::signal(SIGINT, old_interrupt);
    prepare();
    execvp(arguments[0], arguments.data());
    fmt::print(stderr, "stallcast-gpu: {}: {}; name a program, with its path\n", arguments[0],
               std::strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::signal(SIGINT, old_interrupt);
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
          std::chrono::duration<double>(Clock::now() - begin).count()};
}

int RecordCommand::Run() const {
  const std::string library = InjectedLibrary().string();
  const std::string path = fs::absolute(out).string();
  if (!fs::is_directory(fs::path(path).parent_path())) {
    throw Error("no such folder", out, "create it or choose another path");
  }
  Ended without;
  if (measure_overhead) {
    without = RunProgramOf(*this, [] {});
    if (without.status != 0) {
      fmt::print(stderr, "stallcast-gpu: {} ended with status {} without recording; not recorded\n",
                 program[0], without.status);
      return without.status;
    }
  }
  fs::remove(path);  // of an earlier run; processes of this one tell by it who is first
  const Ended ended = RunProgramOf(*this, [&] {
    setenv("CUDA_INJECTION64_PATH", library.c_str(), 1);
    setenv("NVTX_INJECTION64_PATH", library.c_str(), 1);
    setenv("STALLCAST_RECORD", path.c_str(), 1);
  });
  if (measure_overhead) {
    fmt::print(stderr,
               "stallcast-gpu: {:.3f} s recorded, {:.3f} s without ({:+.1f} %), whole runs\n",
               ended.seconds, without.seconds, 100 * (ended.seconds / without.seconds - 1));
  }
  if (ended.status == 0 && !fs::exists(path)) {
    throw Error("nothing was recorded", program[0],
                "it must use CUDA; see the line above where there is one");
  }
  return ended.status;
}

}  // namespace

void AddRecord(CLI::App& app) {
  auto command = std::make_shared<RecordCommand>();
  CLI::App* sub = app.add_subcommand("record", "Record any CUDA program as a timeline");
  sub->description(
      R"(Runs a program and records its kernels, copies, waits, CUDA calls and NVTX ranges.

Examples:
  stallcast-gpu record -o run.kvt -- python3 serve.py --model llama
  stallcast export run.kvt -o run.pftrace
      opens in ui.perfetto.dev

Ends with the program's exit status. Processes that the program starts are recorded into files of
their own, run.PID.kvt. A program that is killed leaves all but its last moments. Recording slows
launches down: do not quote times of a recorded run.)");
  sub->add_option("program", command->program, "The program and its arguments, behind --")
      ->required()
      ->type_name("PROGRAM");
  sub->add_option("-o,--out", command->out, "File to write (.kvt)")
      ->capture_default_str()
      ->type_name("FILE")
      ->group("Output");
  sub->add_flag("--measure-overhead", command->measure_overhead,
                "Run it without recording first and print both times")
      ->group("Output");
  sub->callback([command] {
    const int status = command->Run();
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace stallcast::cli
