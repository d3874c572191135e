// What the recorder costs its caller, beside a plain copy of the same bytes. Files go to /dev/shm.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include "capture/recorder_c.h"

namespace {

constexpr int kHeads = 8;
constexpr int kHeadDim = 128;
constexpr char kPath[] = "/dev/shm/stallcast_bench_recorder.kvt";

/// bf16 elements with the narrow spread of exponents that real keys have.
std::vector<uint16_t> KeyLike(size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> out(count);
  for (uint16_t& value : out) {
    const float x = normal(random);
    uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    value = static_cast<uint16_t>(bits >> 16);
  }
  return out;
}

stallcast_recorder* Open(int layers) {
  stallcast_trace_info info = {};
  info.layers = layers;
  info.query_heads = kHeads;
  info.kv_heads = kHeads;
  info.head_dim = kHeadDim;
  stallcast_recorder* recorder = nullptr;
  stallcast_recorder_open(kPath, &info, nullptr, &recorder);
  return recorder;
}

stallcast_rows Rows(const std::vector<uint16_t>& data, int64_t tokens) {
  stallcast_rows rows = {};
  rows.kind = STALLCAST_KEY;
  rows.dtype = STALLCAST_BF16;
  rows.heads = kHeads;
  rows.head_dim = kHeadDim;
  rows.tokens = tokens;
  rows.head_stride = tokens * kHeadDim;
  rows.token_stride = kHeadDim;
  rows.data = data.data();
  return rows;
}

void CopyPrompt(benchmark::State& state) {
  const std::vector<uint16_t> data = KeyLike(size_t{8192} * kHeads * kHeadDim);
  for (auto _ : state) {
    std::vector<uint16_t> copy(data.size());
    std::memcpy(copy.data(), data.data(), 2 * data.size());
    benchmark::DoNotOptimize(copy.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(data.size()) * 2);
}
BENCHMARK(CopyPrompt)->UseRealTime();

/// A prompt of 8,192 tokens, 16 MiB a layer, until it is in the file.
void RecordPrompt(benchmark::State& state) {
  const std::vector<uint16_t> data = KeyLike(size_t{8192} * kHeads * kHeadDim);
  for (auto _ : state) {
    stallcast_recorder* recorder = Open(4);
    for (int layer = 0; layer < 4; ++layer) {
      stallcast_rows rows = Rows(data, 8192);
      rows.layer = layer;
      stallcast_recorder_write(recorder, &rows);
    }
    stallcast_recorder_close(recorder);
    stallcast_recorder_free(recorder);
  }
  state.SetBytesProcessed(state.iterations() * 4 * static_cast<int64_t>(data.size()) * 2);
  state.counters["stored"] =
      static_cast<double>(std::filesystem::file_size(kPath)) / (4.0 * 2.0 * data.size());
  std::filesystem::remove(kPath);
}
BENCHMARK(RecordPrompt)->UseRealTime()->MeasureProcessCPUTime();

/// One decoded token of one layer: what the model's thread waits.
void RecordToken(benchmark::State& state) {
  const std::vector<uint16_t> data = KeyLike(size_t{kHeads} * kHeadDim);
  stallcast_recorder* recorder = Open(1);
  stallcast_recorder_begin_decode(recorder, 0);
  stallcast_rows rows = Rows(data, 1);
  for (auto _ : state) {
    if (stallcast_recorder_write(recorder, &rows) != STALLCAST_OK) state.SkipWithError("write");
    ++rows.first_token;
  }
  stallcast_recorder_free(recorder);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(data.size()) * 2);
  std::filesystem::remove(kPath);
}
BENCHMARK(RecordToken)->UseRealTime()->Iterations(100'000);

}  // namespace

BENCHMARK_MAIN();
