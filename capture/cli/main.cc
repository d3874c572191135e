// The `stallcast-gpu` command.
#include "capture/cli/commands.h"
#include "sim/cli/program.h"

namespace {

#ifdef STALLCAST_GPU_COMMANDS
constexpr const char* kOverview =
    R"(Measures on a real GPU what `stallcast` predicts.

Examples:
  stallcast-gpu run traces/samples/qwen-32k.kvt --method full,freekv --model llama-3.1-8b
      decode steps with real kernels, beside what is predicted for them
  stallcast-gpu calibrate --name my-gpu
      a hardware profile of this machine for `stallcast predict --machine my-gpu.toml`
  stallcast-gpu bench
      what its kernels and transfers reach, beside the memory's, tensor cores' and link's limits
  stallcast-gpu record -o run.kvt -- python3 serve.py
      any CUDA program: its kernels, copies, waits and calls as a timeline)";
#else
constexpr const char* kOverview =
    R"(Records what programs do on a GPU. This one was built without the CUDA toolkit, which its
commands run, calibrate and bench need.

Example:
  stallcast-gpu record -o run.kvt -- python3 serve.py
      any CUDA program: its kernels, copies, waits and calls as a timeline)";
#endif

}  // namespace

int main(int argc, char** argv) {
  using namespace stallcast::cli;
#ifdef STALLCAST_GPU_COMMANDS
  return RunProgram({"stallcast-gpu", kOverview, {AddRun, AddCalibrate, AddBench, AddRecord}}, argc,
                    argv);
#else
  return RunProgram({"stallcast-gpu", kOverview, {AddRecord}}, argc, argv);
#endif
}
