// The `stallcast-gpu` command.
#include "capture/cli/commands.h"
#include "sim/cli/program.h"

namespace {

constexpr const char* kOverview =
    R"(Measures on a real GPU what `stallcast` predicts.

Examples:
  stallcast-gpu record -o run.kvt -- python3 serve.py
      any CUDA program: its kernels, copies, waits and calls as a timeline)";

}  // namespace

int main(int argc, char** argv) {
  using namespace stallcast::cli;
  return RunProgram({"stallcast-gpu", kOverview, {AddRecord}}, argc, argv);
}
