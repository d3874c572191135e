// The engine beside SimGrid 3.32 (s4u) on one FreeKV plan: 32 layers of Llama-3.1-8B, 8K context,
// the method's defaults (speculation, correction, double-buffered recall, two recall workers).
// Every op's end must be equal in both first, to 1e-6 of the run; otherwise exit 1.
//
// Both sides get the same costs (EqualWeights(): the H200 profile, changed so that SimGrid's equal
// shares are the right ones) and do the same: host calls in program order, event and launch
// latencies, gaps, first come first served copy engines, max-min sharing of device memory and links
// among kernels and copies.
//
// SimGrid's side is its fastest use that was found (see simgrid_run.h): no actors, no tracing, an
// activity created only when it can start, latencies and fixed times in one activity, own rates as
// links, the fastest of its algorithms (cpu/optim, network/optim: 10 to 15% faster than the
// defaults). With its own dependencies instead, all activities made beforehand, it takes 5 us an
// activity when there are 8,000 and 200 us when there are 80,000. The classes of the plan's ops are
// all there; of the methods' others, host gathers (recall=staged) are not mapped.
//
// "Simulate" is a run of what is prepared; "BuildAndSimulate" counts the preparation too: lists by
// lane and op on both sides, on ours the costs from the cost model as well, which SimGrid's side
// takes over. Creating SimGrid's activities is part of its run: they are used up by it.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <map>

#include "tests/sim/freekv_plan.h"
#include "tests/sim/simgrid/simgrid_run.h"

namespace stallcast::sim {
namespace {

constexpr int kSteps = 64;
constexpr double kEqual = 1e-6;  // of the run

/// Prints as usual and remembers the ops a second.
class Reporter : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      rate[run.run_name.function_name] = run.counters.at("items_per_second");
    }
  }
  std::map<std::string, double> rate;
};

int Main(int argc, char** argv) {
  const plan::Plan plan = FreeKvPlan(kSteps);
  const hardware::CostModel costs(EqualWeights());
  const Simulation simulation(plan, costs);
  const Simulation* const all[] = {&simulation};
  SimGridMachine machine(all, &argc, argv);
  SimGridRun simgrid(machine, simulation);

  const Execution execution = simulation.Run();
  const double length = Seconds(execution.end_of_all);
  const double worst = WorstDifference(execution, simgrid.Run());
  fmt::print("{} ops, {} kernels slowed by sharing, {:.6f} s simulated\n", plan.ops.size(),
             SlowedBySharing(simulation, execution), length);
  fmt::print("ends differ by {:.3g} s at most, {:.2g} of the run\n", worst, worst / length);
  if (!(worst <= kEqual * length)) {
    fmt::print(stderr, "the times of the two simulators differ: nothing to compare\n");
    return 1;
  }

  const auto add = [&](const char* name, auto run) {
    benchmark::RegisterBenchmark(name, [&plan, run](benchmark::State& state) {
      for (auto _ : state) run();
      state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(plan.ops.size()));
    })->Unit(benchmark::kMillisecond);
  };
  add("Engine/Simulate", [&] { benchmark::DoNotOptimize(simulation.Run()); });
  add("SimGrid/Simulate", [&] { benchmark::DoNotOptimize(simgrid.Run()); });
  add("Engine/BuildAndSimulate", [&] { benchmark::DoNotOptimize(Simulation(plan, costs).Run()); });
  add("SimGrid/BuildAndSimulate",
      [&] { benchmark::DoNotOptimize(SimGridRun(machine, simulation).Run()); });
  benchmark::Initialize(&argc, argv);
  Reporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  for (const char* what : {"Simulate", "BuildAndSimulate"}) {
    const double ours = reporter.rate[fmt::format("Engine/{}", what)];
    const double theirs = reporter.rate[fmt::format("SimGrid/{}", what)];
    if (ours == 0 || theirs == 0) continue;  // left out by --benchmark_filter
    fmt::print("{}: engine {:.2f} M ops/s, SimGrid {:.3f} M ops/s, ratio {:.1f}\n", what,
               ours / 1e6, theirs / 1e6, ours / theirs);
  }
  return 0;
}

}  // namespace
}  // namespace stallcast::sim

int main(int argc, char** argv) { return stallcast::sim::Main(argc, argv); }
