// Replay of an 8K prompt and 256 decoded tokens: 6 layers of 8 query and 2 KV heads, 128
// dimensions. Target: 2 s a method on two cores, and within 3x of what the machine's arithmetic
// allows.
//
// Two references run beside it: the same attention mass as three plain loops in double precision
// (on a slice, scaled up), and the machine's measured multiply-add rate. The limit printed with
// each replay is
//   time = multiply-adds / (threads * multiply-adds a second a thread)
// (times_limit compares processor time with it, which other users of the machine do not disturb),
// where the multiply-adds are those of the true attention weights, query heads * dim * tokens seen,
// summed over steps, as many for the outputs where there are values, and those of the page scores,
// twice dim for each full page. Exponentials, sums, ranking and the widening of bf16 are not in the
// limit: they are what the factor is for.
#include <benchmark/benchmark.h>
#include <tbb/task_arena.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <ctime>
#include <random>

#include "models/methods/method.h"
#include "models/methods/vector_kernels.h"

namespace stallcast::methods {
namespace {

constexpr int kLayers = 6, kKvHeads = 2, kGroup = 4, kDim = 128, kSteps = 256;
constexpr int64_t kPrompt = 8192, kTokens = kPrompt + kSteps;

traces::Tensor RandomTensor(traces::TensorKind kind, int layer, int heads, int64_t first,
                            uint32_t seed) {
  traces::Tensor tensor;
  tensor.spec = {kind, traces::DType::kBf16, layer, heads, kDim, first, kTokens - first};
  tensor.data.resize(static_cast<size_t>(tensor.spec.bytes()));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  auto* out = reinterpret_cast<uint16_t*>(tensor.data.data());
  for (int h = 0; h < heads; ++h) {
    float at[kDim] = {};
    for (int64_t t = first; t < kTokens; ++t) {
      for (float& x : at) {
        x = 0.9f * x + 0.6f * normal(random);
        *out++ = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
      }
    }
  }
  return tensor;
}

traces::Trace MakeTrace(bool values) {
  traces::Trace t;
  t.info.set_prompt_tokens(kPrompt);
  t.info.set_decode_steps(kSteps);
  for (int layer = 0; layer < kLayers; ++layer) {
    t.tensors.push_back(RandomTensor(traces::TensorKind::kKey, layer, kKvHeads, 0, layer));
    t.tensors.push_back(RandomTensor(traces::TensorKind::kQuery, layer, kKvHeads * kGroup,
                                     kPrompt - 1, 100 + layer));
    if (values) {
      t.tensors.push_back(
          RandomTensor(traces::TensorKind::kValue, layer, kKvHeads, 0, 200 + layer));
    }
  }
  return t;
}

const traces::Trace& Trace(bool values = false) {
  static const traces::Trace without = MakeTrace(false), with = MakeTrace(true);
  return values ? with : without;
}

double MassMultiplyAdds(int64_t steps) {
  double seen = 0;
  for (int64_t s = 0; s < steps; ++s) seen += static_cast<double>(kPrompt + s + 1);
  return seen * kKvHeads * kGroup * kDim;
}

// Multiply-adds a second of one thread, from registers and L1 only: the kernel of the replay on
// data that never leaves L1. Eight rows by two vectors keep both units of any current core busy.
double PeakRate() {
  static const double rate = [] {
    constexpr int64_t kSmall = 32, kColumns = 64;
    std::vector<float> rows(kRowBlock * kSmall, 1.0f), panel(kSmall * kPanel, 1.0f),
        out(kRowBlock * kPanel);
    double best = 0;
    for (int round = 0; round < 20; ++round) {
      constexpr int kCalls = 2000;
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i) {
        PanelDots(rows.data(), kRowBlock, kSmall, panel.data(), kColumns, out.data(), kPanel);
        benchmark::ClobberMemory();
      }
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
      best = std::max(best,
                      static_cast<double>(kCalls * kRowBlock * kSmall * kColumns) / time.count());
    }
    return best;
  }();
  return rate;
}

void MachinePeak(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(PeakRate());
  state.counters["multiply_adds_per_s_a_thread"] = PeakRate();
}
BENCHMARK(MachinePeak)->Iterations(1);

void ReplayMethod(benchmark::State& state, const std::string& name, double page_tokens,
                  bool values = false) {
  const std::unique_ptr<Method> method = MakeMethod(name, {}).method;
  const int layers = kLayers - method->DenseLayers();
  const traces::Trace& trace = Trace(values);
  const std::clock_t begin = std::clock();
  for (auto _ : state) benchmark::DoNotOptimize(Replay(trace, "", name, *method));
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC /
                         static_cast<double>(state.iterations());
  double work = MassMultiplyAdds(kSteps) * (values ? 2 : 1);  // values have the keys' dimensions
  if (page_tokens > 0) {
    work += kSteps * std::floor(kTokens / page_tokens) * kKvHeads * kGroup * 2.0 * kDim;
  }
  const double threads = tbb::this_task_arena::max_concurrency();
  state.counters["threads"] = threads;
  state.counters["multiply_adds"] = layers * work;
  state.counters["limit_s"] = layers * work / (threads * PeakRate());
  state.counters["times_limit"] = seconds / (layers * work / PeakRate());
}
BENCHMARK_CAPTURE(ReplayMethod, streaming, "streaming", 0)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, quest, "quest", 16)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, arkvale, "arkvale", 32)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, arkvale_freekv, "arkvale-freekv", 32)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, freekv, "freekv", 32)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

BENCHMARK_CAPTURE(ReplayMethod, hisparse, "hisparse", 16)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, snapkv, "snapkv", 0)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, h2o, "h2o", 0)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, raas, "raas", 16)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, rkv, "rkv", 0)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, duoattention, "duoattention", 0)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, retroinfer, "retroinfer", 0)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, pqcache, "pqcache", 0)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, magicpig, "magicpig", 0)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

BENCHMARK_CAPTURE(ReplayMethod, clusterkv, "clusterkv", 0)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, sparq, "sparq", 0)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(ReplayMethod, twilight, "twilight", 16)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

BENCHMARK_CAPTURE(ReplayMethod, freekv_with_values, "freekv", 32, true)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

// The attention mass of streaming's tokens in three plain loops of doubles, for two steps of one
// layer; the counter scales it to all steps and layers of `streaming` above, one thread.
void PlainLoops(benchmark::State& state) {
  const LayerTensors tensors(Trace(), 1);
  constexpr int kSlice = 2;
  std::vector<std::vector<float>> all_keys(kKvHeads, std::vector<float>(kTokens * kDim));
  for (int h = 0; h < kKvHeads; ++h) tensors.ReadKeys(h, 0, kTokens, all_keys[h].data());
  for (auto _ : state) {
    double mass = 0;
    for (int step = 0; step < kSlice; ++step) {
      for (int head = 0; head < kKvHeads * kGroup; ++head) {
        const std::span<const float> q = tensors.Query(head, kPrompt + step);
        const float* keys = all_keys[head / kGroup].data();
        std::vector<double> logits;
        for (int64_t t = 0; t <= kPrompt + step; ++t) {
          double sum = 0;
          for (int i = 0; i < kDim; ++i) sum += static_cast<double>(q[i]) * keys[t * kDim + i];
          logits.push_back(sum * tensors.softmax_scale());
        }
        const double max = *std::max_element(logits.begin(), logits.end());
        double total = 0, covered = 0;
        for (size_t t = 0; t < logits.size(); ++t) {
          const double weight = std::exp(logits[t] - max);
          total += weight;
          if (t < 4 || t + 2044 >= logits.size()) covered += weight;
        }
        mass += covered / total;
      }
    }
    benchmark::DoNotOptimize(mass);
  }
  state.counters["whole_s_one_thread"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * kSlice / (kSteps * kLayers * 1.0),
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(PlainLoops)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stallcast::methods

BENCHMARK_MAIN();
