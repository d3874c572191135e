// Speed of WG-KV's stages at Llama-3.1-8B's shape (8 KV heads of 128, groups of 4), a quarter of
// the tokens admitted at random. peers_pw.py prints the same rows for PyTorch, and dense prefill.
#include <random>
#include <string>

#include "kernels/methods/wgkv.h"
#include "tests/kernels/measure.h"

namespace stallcast::kernels {
namespace {

constexpr int kHeads = 8, kGroup = 4, kDim = 128, kHidden = 512, kWindow = 256, kPage = 16;
constexpr double kTensorRate = 989e12;  // dense bf16, NVIDIA H200 data sheet

void TensorRow(const std::string& what, double seconds, double flops) {
  std::printf("%-46s %10.2f us %12.3f TF %8.0f TF/s %6.1f %%\n", what.c_str(), seconds * 1e6,
              flops / 1e12, flops / seconds / 1e12, 100 * flops / seconds / kTensorRate);
}

void Gate(Stopwatch& watch, int tokens, double memory) {
  const auto w1 = RandomOnDevice(int64_t{kHeads} * kHidden * 2 * kDim, 0.05f);
  const auto vector = RandomOnDevice(kHeads * kHidden, 0.1f);
  const auto before = RandomOnDevice(int64_t{tokens} * kHeads * kDim);
  const auto after = RandomOnDevice(int64_t{tokens} * kHeads * kDim);
  Buffer<float> scores(int64_t{tokens} * kHeads);
  const TokenView a{before.get(), kDim, kHeads * kDim, 0}, b{after.get(), kDim, kHeads * kDim, 0};
  const GateWeights weights{w1.get(), vector.get(), vector.get(), vector.get(), nullptr,
                            nullptr,  kHeads,       kDim,         kHidden};
  const auto workspace =
      Uploaded(std::vector<float>(static_cast<size_t>(GateMlpWorkspace(weights))));
  const double seconds = watch.InGraph(
      [&](int) {
        GateMlp(weights, a, b, tokens, scores.get(), tokens, 1, workspace.get(), watch.stream());
      },
      tokens > 1'000 ? 2 : 16, 7);
  const std::string name = "gate MLP, " + std::to_string(tokens) + " tokens";
  if (tokens > 1'000) {
    TensorRow(name, seconds, double{kHeads} * tokens * 2 * kHidden * (2 * kDim + 1));
  } else {
    MemoryRow(name, seconds, static_cast<double>(w1.bytes()), memory);
  }
}

void AdmitRows(Stopwatch& watch, int rows, int tokens, double memory) {
  std::mt19937 random(3);
  std::vector<float> scores(static_cast<size_t>(rows) * tokens);
  for (float& score : scores) score = static_cast<float>(random() % 4);
  const auto d_scores = Uploaded(scores);
  const auto kv = RandomOnDevice(int64_t{rows} * tokens * 2 * kDim);
  const int pages = tokens / kPage + 2;
  std::vector<int32_t> table(static_cast<size_t>(rows) * pages);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  const auto d_table = Uploaded(table);
  const auto lengths = Uploaded(std::vector<int32_t>(static_cast<size_t>(rows)));
  Buffer<__nv_bfloat16> pool(int64_t{rows} * pages * kPage * 2 * kDim);
  Buffer<int32_t> columns(int64_t{rows} * tokens), workspace(AdmitWorkspace(rows, tokens));
  Buffer<uint8_t> admitted(int64_t{rows} * tokens);
  const double seconds = watch.InGraph(
      [&](int) {
        Check(
            cudaMemsetAsync(lengths.get(), 0, static_cast<size_t>(lengths.bytes()), watch.stream()),
            "cudaMemsetAsync");
        Admit({kv.get(), 2 * kDim, int64_t{rows} * 2 * kDim, kDim}, d_scores.get(), tokens, rows,
              tokens, 3.0f, HndPages(pool.get(), kPage, 1, kDim), d_table.get(), pages,
              lengths.get(), {columns.get(), admitted.get(), nullptr, tokens}, workspace.get(),
              watch.stream());
      },
      8);
  MemoryRow("admit a quarter of " + std::to_string(rows) + " x " + std::to_string(tokens), seconds,
            static_cast<double>(rows) * tokens * (4 + 0.25 * 1'024), memory);
}

void Evict(Stopwatch& watch, int keys) {
  constexpr int kQueries = 256;
  const auto query = RandomOnDevice(int64_t{kHeads} * kQueries * kGroup * kDim);
  const auto pages = RandomOnDevice(int64_t{kHeads} * keys * 2 * kDim);
  std::vector<int32_t> places, positions;
  for (int i = 0; i < kHeads * keys; ++i) {
    places.push_back(i);
    positions.push_back(i % keys);
  }
  const auto d_places = Uploaded(places), d_positions = Uploaded(positions);
  const auto counts = Uploaded(std::vector<int32_t>(kHeads, keys));
  Buffer<float> scores(int64_t{kHeads} * keys);
  WindowScoreArgs args{.query = query.get(),
                       .cache = HndPages(pages.get(), kPage, 1, kDim),
                       .places = d_places.get(),
                       .positions = d_positions.get(),
                       .counts = counts.get(),
                       .scores = scores.get(),
                       .workspace = nullptr,
                       .rows = kHeads,
                       .stride = keys,
                       .queries = kQueries,
                       .group = kGroup,
                       .first_position = keys - kQueries,
                       .smooth = 5,
                       .scale = 0.0883883f};
  const Buffer<float> workspace(WindowScoreWorkspace(args));
  args.workspace = workspace.get();
  TensorRow("window scores of 8 x " + std::to_string(keys) + " keys",
            watch.InGraph([&](int) { WindowScore(args, watch.stream()); }, 4),
            2.0 * kHeads * keys * kQueries * kGroup * kDim);
}

void Prefill(Stopwatch& watch, int tokens, int admitted_of_eight) {
  std::mt19937 random(5);
  std::vector<uint8_t> admitted(static_cast<size_t>(kHeads) * tokens);
  std::vector<int32_t> columns(admitted.size()), counts;
  double pairs = 0;
  for (int row = 0; row < kHeads; ++row) {
    int count = 0;
    for (int t = 0; t < tokens; ++t) {
      const auto at = static_cast<size_t>(row) * tokens + t;
      admitted[at] = static_cast<int>(random() % 8) < admitted_of_eight ? 1 : 0;
      if (admitted[at] == 0) continue;
      columns[static_cast<size_t>(row) * tokens + count++] = t;
      pairs += std::max(0, tokens - t - kWindow) * double{kGroup};
    }
    counts.push_back(count);
  }
  pairs += double{kHeads} * kGroup *
           (double{kWindow} * (tokens - kWindow) + kWindow * (kWindow + 1) / 2.0);
  const auto query = RandomOnDevice(int64_t{tokens} * kHeads * kGroup * kDim);
  const auto kv = RandomOnDevice(int64_t{tokens} * kHeads * 2 * kDim);
  const auto d_admitted = Uploaded(admitted);
  const auto d_columns = Uploaded(columns), d_counts = Uploaded(counts);
  Buffer<__nv_bfloat16> output(query.size());
  const double seconds = watch.Once(
      [&] {
        VerticalSlashAttention({.query = query.get(),
                                .kv = {kv.get(), kDim, int64_t{2} * kHeads * kDim, kHeads * kDim},
                                .columns = d_columns.get(),
                                .column_counts = d_counts.get(),
                                .admitted = d_admitted.get(),
                                .output = output.get(),
                                .sequences = 1,
                                .tokens = tokens,
                                .window = kWindow,
                                .kv_heads = kHeads,
                                .group = kGroup,
                                .head_dim = kDim,
                                .scale = 0.0883883f},
                               watch.stream());
      },
      3);
  TensorRow("prefill, " + std::to_string(tokens) + " tokens, " +
                std::to_string(admitted_of_eight * 100 / 8) + " % admitted",
            seconds, pairs * 4 * kDim);
}

void Run() {
  Stopwatch watch;
  double memory;
  {
    const Buffer<char> device(int64_t{2} << 30);
    memory = watch.ReadRate(device);
  }
  std::printf("WG-KV; shares of %.0f GB/s read from device memory, of %.0f TFLOPS dense bf16\n",
              memory / 1e9, kTensorRate / 1e12);
  for (const int tokens : {1, 4, 32'768, 131'072}) Gate(watch, tokens, memory);
  AdmitRows(watch, 256, 1, memory);
  AdmitRows(watch, 8, 32'768, memory);
  AdmitRows(watch, 8, 131'072, memory);
  for (const int keys : {4'096, 8'192}) Evict(watch, keys);
  for (const int tokens : {32'768, 131'072, 200'000}) Prefill(watch, tokens, 2);
  Prefill(watch, 32'768, 8);
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_wgkv", stallcast::kernels::Run); }
