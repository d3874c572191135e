// The engine on a 32-layer FreeKV plan of Llama-3.1-8B, every shared resource on. One completed op
// is one item; an op is a kernel, a copy (with its host call) or host work.
#include <benchmark/benchmark.h>

#include "models/hardware/profile.h"
#include "models/methods/decoder_plan.h"
#include "sim/engine.h"
#include "sim/metrics.h"

namespace stallcast::sim {
namespace {

constexpr int kSteps = 256;

// A log as replays give: a third of the layers corrected in a step, two or three misses a head.
traces::AccessLog Log() {
  traces::AccessLog log;
  log.method = "freekv";
  log.unit = "page";
  log.unit_tokens = 32;
  log.prompt_tokens = 8192;
  log.steps = kSteps;
  log.kv_heads = 8;
  log.query_heads = 32;
  for (int l = 0; l < 32; ++l) {
    traces::LayerAccess layer;
    layer.layer = l;
    layer.heads = 8;
    for (int cell = 0; cell < kSteps * layer.heads; ++cell) {
      const bool now = (cell / layer.heads + l) % 3 == 0;
      const std::vector<uint32_t> missed(static_cast<size_t>(2 + cell % 2), 7);
      layer.flags.push_back(now ? traces::kSelectedNow : traces::kSelectedAhead);
      layer.selected.Append(std::vector<uint32_t>(32, 1));
      layer.recalled_now.Append(now ? missed : std::vector<uint32_t>());
      layer.recalled_ahead.Append(now ? std::vector<uint32_t>() : missed);
      layer.attended_tokens.push_back(2048);
    }
    log.layers.push_back(std::move(layer));
  }
  return log;
}

struct Fixture {
  traces::AccessLog log = Log();
  std::unique_ptr<methods::Method> method = methods::MakeMethod("freekv", {}).method;
  methods::PlanInput input{llm::FindModel("llama-3.1-8b"), 1, 8192, kSteps, false, &log};
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
