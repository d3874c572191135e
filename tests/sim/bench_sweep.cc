// What a point of a sweep costs beside its engine run, and a whole prediction.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <random>
#include <vector>

#include "sim/sweep.h"
#include "tests/scratch_folder.h"
#include "tests/sim/small_trace.h"
#include "traces/samples.h"

namespace stallcast::sim {
namespace {

struct Fixture {
  Fixture() { WriteSmallTrace(folder / "t.kvt"); }
  ScratchFolder folder;
};

const std::filesystem::path& Folder() {
  static const Fixture fixture;
  return fixture.folder.path();
}

PredictRequest Request(const std::string& method, const std::string& model, int32_t steps) {
  PredictRequest request;
  request.method = method;
  request.model = model;
  request.context = 2048;
  request.steps = steps;
  request.prefill = false;
  return request;
}

// The points of a grid, with their keys.
void BM_Grid(benchmark::State& state) {
  std::vector<std::string> values;
  for (int i = 1; i <= 100; ++i) values.push_back(std::to_string(i));
  for (auto _ : state) {
    const Grid grid(Request("freekv", "", 1), {{"batch", values}, {"context", values}});
    benchmark::DoNotOptimize(grid.size());
  }
  state.SetItemsProcessed(state.iterations() * 10'000);
}
BENCHMARK(BM_Grid)->Unit(benchmark::kMillisecond);

// The shortest prediction: one step of two small layers.
void BM_SmallPrediction(benchmark::State& state) {
  Predictor predictor(Folder() / "t.kvt");
  const PredictRequest request = Request("full", "", 1);
  for (auto _ : state) benchmark::DoNotOptimize(predictor.Predict(request));
}
BENCHMARK(BM_SmallPrediction)->Unit(benchmark::kMicrosecond);

// 256 steps of FreeKV.
void BM_FreeKvPrediction(benchmark::State& state) {
  Predictor predictor(traces::TracePath("sample:8k"));
  PredictRequest request = Request("freekv", "llama-3.1-8b", 256);
  request.context = 8192;
  predictor.Predict(request);  // the log is there from now on
  for (auto _ : state) benchmark::DoNotOptimize(predictor.Predict(request));
}
BENCHMARK(BM_FreeKvPrediction)->Unit(benchmark::kMillisecond);

// A point into the file; the file's bytes a point.
void BM_Store(benchmark::State& state) {
  Predictor predictor(Folder() / "t.kvt");
  GridPoint point{Request("freekv", "", 1), {}};
  const Prediction prediction = predictor.Predict(point.request);
  const std::filesystem::path file = Folder() / "store.sqlite";
  std::filesystem::remove(file);
  int64_t place = 0;
  {
    ResultStore store(file, true);
    const std::string key = ExpandGrid(point.request, {}).front().key;
    for (auto _ : state) {
      point.key = key + " n=" + std::to_string(place);
      store.Put(++place, Stored(point, {predictor.key(), "t.kvt"}, prediction));
    }
  }
  state.counters["bytes/point"] =
      static_cast<double>(std::filesystem::file_size(file)) / static_cast<double>(place);
}
BENCHMARK(BM_Store)->Unit(benchmark::kMicrosecond);

void BM_ParetoFront(benchmark::State& state) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> value(0, 1);
  std::vector<std::vector<double>> points(static_cast<size_t>(state.range(0)));
  for (auto& point : points) point = {value(random), value(random), value(random)};
  for (auto _ : state) benchmark::DoNotOptimize(ParetoFront(points));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_ParetoFront)->Arg(10'000)->Arg(100'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stallcast::sim

BENCHMARK_MAIN();
