// Decode attention at Llama-3.1-8B's shape (8 KV heads, group 4, d 128), dense and sparse, beside
// what the same device reads. A layer's keys and values lie in pages of its own, handed out in any
// order; launches go from layer to layer as a step does, so that what one left in L2 does not serve
// the next. Sparse attention reads some of each row's pages, its own, of a longer context. Two
// times, both medians: of a launch among 16 that follow one another in a stream, and among 16 in a
// CUDA graph.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/attention/decode_attention.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"
#include "tests/kernels/measure.h"

namespace stallcast::kernels {
namespace {

constexpr int kHeads = 8, kGroup = 4, kHeadDim = 128;
constexpr int kLaunches = 16;
constexpr int64_t kPoolBytes = int64_t{4} << 30;

struct Bench {
  Bench() : pool(RandomOnDevice(kPoolBytes / 2)), bandwidth(watch.ReadRate(pool)) {
    std::printf("read bandwidth, 4 GiB: %.0f GB/s\n\n", bandwidth * 1e-9);
    std::printf("%-6s %5s %6s %8s %8s | %8s %9s | %8s %8s %6s\n", "layout", "page", "batch",
                "context", "tokens", "MiB", "stream us", "graph us", "GB/s", "share");
  }

  /// Attends all of `context` tokens, or `tokens` of them that each row picked.
  void Row(bool hnd, int page, int sequences, int context, int tokens) {
    const PagedKv cache = (hnd ? HndPages : NhdPages)(pool.get(), page, kHeads, kHeadDim);
    const int rows = sequences * kHeads;
    const int pages = tokens / page;
    const int context_pages = context / page;
    const int64_t slots = pool.size() / cache.slot_stride;
    const int64_t layer_slots = int64_t{sequences} * context_pages;
    const int layers = static_cast<int>(std::clamp<int64_t>(slots / layer_slots, 1, kLaunches));
    std::mt19937 random(2);
    std::vector<int32_t> table;
    std::vector<int32_t> of_layer(layer_slots), order(context_pages);
    std::iota(order.begin(), order.end(), 0);
    for (int layer = 0; layer < layers; ++layer) {
      std::iota(of_layer.begin(), of_layer.end(), static_cast<int32_t>(layer * layer_slots));
      std::shuffle(of_layer.begin(), of_layer.end(), random);
      for (int row = 0; row < rows; ++row) {
        if (tokens < context) std::shuffle(order.begin(), order.end(), random);
        const auto own = of_layer.begin() + int64_t{row / kHeads} * context_pages;
        for (int i = 0; i < pages; ++i) table.push_back(own[order[i]]);
      }
    }
    const auto device_table = Uploaded(table);
    const auto device_tokens = Uploaded(std::vector<int32_t>(rows, tokens));
    const int64_t queries = int64_t{rows} * kGroup * kHeadDim;
    Buffer<__nv_bfloat16> query(queries), output(queries);
    Check(cudaMemcpy(query.get(), pool.get(), query.bytes(), cudaMemcpyDeviceToDevice), "query");
    DecodeAttentionArgs args{.query = query.get(),
                             .cache = cache,
                             .pages = {nullptr, device_tokens.get(), pages, tokens},
                             .output = output.get(),
                             .workspace = nullptr,
                             .sequences = sequences,
                             .group = kGroup,
                             .scale = 1 / std::sqrt(static_cast<float>(kHeadDim))};
    Buffer<float> workspace(DecodeAttentionWorkspace(args));
    Check(cudaMemset(workspace.get(), 0, workspace.bytes()), "memset");
    args.workspace = workspace.get();
    const auto launch = [&](int i) {
      args.pages.table = device_table.get() + int64_t{i % layers} * rows * pages;
      DecodeAttention(args, watch.stream());
    };
    const double queued = watch.InStream(launch, kLaunches);
    const double chained = watch.InGraph(launch, kLaunches);
    const double bytes = 2.0 * rows * tokens * kHeadDim * 2;
    const double rate = bytes / chained;
    std::printf("%-6s %5d %6d %8d %8d | %8.1f %9.1f | %8.1f %8.0f %5.0f%%\n", hnd ? "HND" : "NHD",
                page, sequences, context, tokens, bytes / (1 << 20), queued * 1e6, chained * 1e6,
                rate * 1e-9, 100 * rate / bandwidth);
  }

  Stopwatch watch;
  Buffer<__nv_bfloat16> pool;
  double bandwidth;
};

void Run() {
  Bench bench;
  for (const bool hnd : {false, true}) {
    for (const int tokens : {2048, 8192, 32768, 131072}) bench.Row(hnd, 16, 1, tokens, tokens);
    for (const int page : {32, 64}) bench.Row(hnd, page, 1, 2048, 2048);
    bench.Row(hnd, 16, 4, 2048, 2048);
    bench.Row(hnd, 16, 4, 32768, 32768);
    bench.Row(hnd, 16, 8, 32768, 32768);
    bench.Row(hnd, 32, 8, 32768, 32768);
    for (const int context : {8192, 32768, 131072}) bench.Row(hnd, 16, 1, context, 2048);
    for (const int page : {32, 64}) bench.Row(hnd, page, 1, 32768, 2048);
    for (const int page : {16, 32, 64}) bench.Row(hnd, page, 4, 32768, 2048);
  }
}

}  // namespace
}  // namespace stallcast::kernels

int main() {
  return stallcast::kernels::Benchmark("bench_decode_attention", stallcast::kernels::Run);
}
