// The engine on a 32-layer FreeKV plan of Llama-3.1-8B, every shared resource on. One completed op
// is one item; an op is a kernel, a copy (with its host call) or host work.
#include <benchmark/benchmark.h>

#include "models/hardware/profile.h"
#include "sim/engine.h"
#include "sim/metrics.h"
#include "tests/sim/freekv_plan.h"

namespace stallcast::sim {
namespace {

constexpr int kSteps = 256;

struct Fixture {
  traces::AccessLog log = FreeKvLog(kSteps);
  std::unique_ptr<methods::Method> method = methods::MakeMethod("freekv", {}).method;
  methods::PlanInput input{llm::FindModel("llama-3.1-8b"), 1, 8192, kSteps, {}, &log};
  plan::Plan plan = methods::WriteDecode(*method, input);
  hardware::CostModel costs{hardware::FindProfile("h200")};
};

const Fixture& TheFixture() {
  static const Fixture fixture;
  return fixture;
}

void BM_Engine(benchmark::State& state) {
  const Fixture& f = TheFixture();
  const Simulation simulation(f.plan, f.costs);
  for (auto _ : state) benchmark::DoNotOptimize(simulation.Run());
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(f.plan.ops.size()));
  state.counters["ops"] = static_cast<double>(f.plan.ops.size());
}
BENCHMARK(BM_Engine)->Unit(benchmark::kMillisecond);

void BM_WritePlan(benchmark::State& state) {
  const Fixture& f = TheFixture();
  for (auto _ : state) benchmark::DoNotOptimize(methods::WriteDecode(*f.method, f.input));
}
BENCHMARK(BM_WritePlan)->Unit(benchmark::kMillisecond);

void BM_Costs(benchmark::State& state) {
  const Fixture& f = TheFixture();
  for (auto _ : state) benchmark::DoNotOptimize(Simulation(f.plan, f.costs).plan().ops.size());
}
BENCHMARK(BM_Costs)->Unit(benchmark::kMillisecond);

void BM_Metrics(benchmark::State& state) {
  const Fixture& f = TheFixture();
  const Simulation simulation(f.plan, f.costs);
  const Execution execution = simulation.Run();
  for (auto _ : state) benchmark::DoNotOptimize(Measure(simulation, execution, 1));
}
BENCHMARK(BM_Metrics)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stallcast::sim

BENCHMARK_MAIN();
