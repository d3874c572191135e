// The `stallcast` command.
#include <malloc.h>

#include "sim/cli/commands.h"
#include "sim/cli/program.h"

namespace {

constexpr const char* kOverview =
    R"(Predicts how long LLM decode steps take when the KV cache lives off the GPU, and why.

Examples:
  stallcast predict )" STALLCAST_SAMPLE R"(
      every method on the sample trace, on an H200
  stallcast predict )" STALLCAST_SAMPLE R"( --method freekv --budget 4096 --set link.h2d=100GB/s
      a what-if: twice the budget and a faster link
  stallcast sweep )" STALLCAST_SAMPLE
    R"( -o results.sqlite -g budget=2048:8192:x2
      a grid of predictions over all cores, into a file)";

}  // namespace

int main(int argc, char** argv) {
  using namespace stallcast::cli;
  // Large buffers come from the system and go back to it one by one. Left alone, the C library
  // begins to keep them once the first is freed: a replay's, in pieces, beside the plan's.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  return RunProgram(
      {"stallcast",
       kOverview,
       {AddPredict, AddSweep, AddInfo, AddCompare, AddReplay, AddExport, AddSynth, AddTrim,
        AddReproduce}},
      argc, argv);
}
