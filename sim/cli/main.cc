// The `stallcast` command.
#include <malloc.h>

#include "sim/cli/commands.h"
#include "sim/cli/program.h"

namespace {

constexpr const char* kOverview =
    R"(Predicts how long LLM decode steps take when the KV cache lives off the GPU, and why.

Examples:
  stallcast predict )" STALLCAST_SAMPLE R"( --model llama-3.1-8b
      every method on a shipped trace, on an H200
  stallcast predict )" STALLCAST_SAMPLE R"( --model llama-3.1-8b --method freekv \
      --budget 4K --set link.h2d=2x
      a what-if: twice the budget and a link twice as fast
  stallcast sweep )" STALLCAST_SAMPLE R"( --model llama-3.1-8b -o results.sqlite \
      -g budget=2K:8K:x2
      a grid of predictions over all cores, into a file)";

}  // namespace

int main(int argc, char** argv) {
  using namespace stallcast::cli;
  // Large buffers come from the system and go back to it one by one. Left alone, the C library
  // begins to keep them once the first is freed: a replay's, in pieces, beside the plan's.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  return RunProgram({"stallcast",
                     kOverview,
                     {AddPredict, AddSweep, AddAdvise, AddInfo, AddCompare, AddReplay, AddExport,
                      AddSynth, AddTrim, AddReproduce, AddProfile, AddCompletion}},
                    argc, argv);
}
