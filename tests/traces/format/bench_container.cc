// Reading and writing in memory; tensors beside memcpy and plain zstd of the same bytes.
#include <benchmark/benchmark.h>
#include <zstd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "traces/convert/export.h"
#include "traces/format/trace_file.h"

namespace stallcast::traces {
namespace {

constexpr int kLayers = 8;

TensorSpec KeySpec(int layer) {
  TensorSpec spec;
  spec.kind = TensorKind::kKey;
  spec.layer = layer;
  spec.heads = 8;
  spec.head_dim = 128;
  spec.tokens = 8192;
  return spec;
}

// bf16 keys as models have them: Gaussian, with a scale a channel and a few channels far larger.
const std::vector<std::byte>& Keys() {
  static const std::vector<std::byte> keys = [] {
    const TensorSpec spec = KeySpec(0);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> scale(static_cast<size_t>(spec.head_dim));
    for (float& value : scale) value = std::exp(0.7f * normal(random));
    scale[7] *= 20;
    std::vector<std::byte> bytes(static_cast<size_t>(spec.bytes()));
    for (int64_t i = 0; i < spec.elements(); ++i) {
      const float key = normal(random) * scale[static_cast<size_t>(i % spec.head_dim)];
      const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(key) >> 16);
      std::memcpy(bytes.data() + 2 * i, &bits, sizeof bits);
    }
    return bytes;
  }();
  return keys;
}

int64_t RawBytes() { return kLayers * KeySpec(0).bytes(); }

void WriteAll(std::vector<std::byte>* file) {
  file->clear();
  TraceWriter writer(file, {});
  for (int layer = 0; layer < kLayers; ++layer) writer.Write(KeySpec(layer), Keys());
  writer.Finish();
}

void BM_Write(benchmark::State& state) {
  std::vector<std::byte> file;
  WriteAll(&file);  // makes the keys
  for (auto _ : state) WriteAll(&file);
  state.SetBytesProcessed(state.iterations() * RawBytes());
  state.counters["stored/raw"] = static_cast<double>(file.size()) / static_cast<double>(RawBytes());
}
BENCHMARK(BM_Write)->UseRealTime()->Unit(benchmark::kMillisecond);

void BM_Read(benchmark::State& state) {
  std::vector<std::byte> file;
  WriteAll(&file);
  for (auto _ : state) {
    const Trace trace = ReadTrace(file, "bench");
    benchmark::DoNotOptimize(trace.tensors.data());
  }
  state.SetBytesProcessed(state.iterations() * RawBytes());
}
BENCHMARK(BM_Read)->UseRealTime()->Unit(benchmark::kMillisecond);

// Into fresh memory, as the reader's results are.
void BM_ReferenceMemcpy(benchmark::State& state) {
  for (auto _ : state) {
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<std::byte> copy(Keys());
      benchmark::DoNotOptimize(copy.data());
    }
  }
  state.SetBytesProcessed(state.iterations() * RawBytes());
}
BENCHMARK(BM_ReferenceMemcpy)->UseRealTime()->Unit(benchmark::kMillisecond);

void BM_ReferenceZstd1Write(benchmark::State& state) {
  std::vector<std::byte> packed(ZSTD_compressBound(Keys().size()));
  size_t size = 0;
  for (auto _ : state) {
    for (int layer = 0; layer < kLayers; ++layer) {
      size = ZSTD_compress(packed.data(), packed.size(), Keys().data(), Keys().size(), 1);
    }
  }
  state.SetBytesProcessed(state.iterations() * RawBytes());
  state.counters["stored/raw"] = static_cast<double>(size) / static_cast<double>(Keys().size());
}
BENCHMARK(BM_ReferenceZstd1Write)->UseRealTime()->Unit(benchmark::kMillisecond);

void BM_ReferenceZstd1Read(benchmark::State& state) {
  std::vector<std::byte> packed(ZSTD_compressBound(Keys().size()));
  const size_t size = ZSTD_compress(packed.data(), packed.size(), Keys().data(), Keys().size(), 1);
  for (auto _ : state) {
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<std::byte> raw(Keys().size());
      benchmark::DoNotOptimize(ZSTD_decompress(raw.data(), raw.size(), packed.data(), size));
    }
  }
  state.SetBytesProcessed(state.iterations() * RawBytes());
}
BENCHMARK(BM_ReferenceZstd1Read)->UseRealTime()->Unit(benchmark::kMillisecond);

// A cached access log as `predict` reads it: 32 layers, 256 steps, 8 heads, 64 units a cell.
void BM_ReadAccessLog(benchmark::State& state) {
  AccessLog log;
  log.steps = 256;
  std::mt19937 random(1);
  for (int i = 0; i < 32; ++i) {
    LayerAccess layer;
    layer.layer = i;
    layer.heads = 8;
    for (int cell = 0; cell < log.steps * layer.heads; ++cell) {
      std::vector<uint32_t> ids(64);
      uint32_t id = 0;
      for (uint32_t& unit : ids) unit = id += 1 + random() % 16;
      layer.selected.Append(ids);
      layer.recalled_now.Append(std::span(ids).first(random() % 16));
      layer.recalled_ahead.Append(std::span(ids).first(random() % 16));
      layer.flags.push_back(kSelectedAhead);
      layer.similarity.push_back(0.9f);
      layer.attended_tokens.push_back(2048);
    }
    layer.attention_mass.assign(256, 0.97f);
    log.layers.push_back(std::move(layer));
  }
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(log);
  writer.Finish();
  for (auto _ : state) {
    const Trace trace = ReadTrace(file, "bench");
    benchmark::DoNotOptimize(trace.access_logs.data());
  }
  state.counters["stored_bytes"] = static_cast<double>(file.size());
}
BENCHMARK(BM_ReadAccessLog)->UseRealTime()->Unit(benchmark::kMillisecond);

Timeline LongTimeline() {
  Timeline timeline;
  timeline.lanes = {{"host", LaneKind::kHost, false}, {"compute", LaneKind::kStream, true}};
  timeline.names = {"launch", "run"};
  for (int64_t row = 0; row < 1'000'000; ++row) {
    timeline.lane.push_back(static_cast<uint16_t>(row % 2));
    timeline.op.push_back(row / 2);
    timeline.step.push_back(static_cast<int32_t>(row / 4000));
    timeline.layer.push_back(static_cast<int16_t>(row / 100 % 32));
    timeline.role.push_back(static_cast<Role>(row / 2 % kRoles));
    timeline.name.push_back(static_cast<uint32_t>(row % 2));
    timeline.start.emplace_back(row * 2'345'678);
    timeline.duration.emplace_back(1'000'000 + row % 977 * 1000);
    timeline.bytes.push_back(0);
    if (row % 10 == 0) timeline.flows.push_back({row / 2, row / 2 + 1});
  }
  return timeline;
}

void BM_WriteTimeline(benchmark::State& state) {
  const Timeline timeline = LongTimeline();
  std::vector<std::byte> file;
  for (auto _ : state) {
    file.clear();
    TraceWriter writer(&file, {});
    writer.Write(timeline);
    writer.Finish();
  }
  state.SetItemsProcessed(state.iterations() * timeline.rows());
  state.counters["bytes/row"] =
      static_cast<double>(file.size()) / static_cast<double>(timeline.rows());
}
BENCHMARK(BM_WriteTimeline)->UseRealTime()->Unit(benchmark::kMillisecond);

void BM_ReadTimeline(benchmark::State& state) {
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(LongTimeline());
  writer.Finish();
  for (auto _ : state) {
    const Trace trace = ReadTrace(file, "bench");
    benchmark::DoNotOptimize(trace.timelines.data());
  }
  state.SetItemsProcessed(state.iterations() * 1'000'000);
}
BENCHMARK(BM_ReadTimeline)->UseRealTime()->Unit(benchmark::kMillisecond);

void BM_ExportPerfetto(benchmark::State& state) {
  const Timeline timeline = LongTimeline();
  for (auto _ : state) ExportPerfetto(timeline, "/dev/null");
  state.SetItemsProcessed(state.iterations() * timeline.rows());
}
BENCHMARK(BM_ExportPerfetto)->UseRealTime()->Unit(benchmark::kMillisecond);

void BM_ExportChromeJson(benchmark::State& state) {
  const Timeline timeline = LongTimeline();
  for (auto _ : state) ExportChromeJson(timeline, "/dev/null");
  state.SetItemsProcessed(state.iterations() * timeline.rows());
}
BENCHMARK(BM_ExportChromeJson)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stallcast::traces

BENCHMARK_MAIN();
