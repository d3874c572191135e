// Decode attention at Llama-3.1-8B's shape (8 KV heads, group 4, d 128), dense and sparse, beside
// what the same device reads. Keys and values lie in random pages of a pool; launches walk through
// it, so that what one left in L2 does not serve the next. Two times, both medians: of a launch
// among 16 that follow one another in a stream, and among 16 in a CUDA graph.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/cuda_error.h"
#include "kernels/decode_attention.h"
#include "tests/kernels/measure.h"

namespace stallcast::kernels {
namespace {

constexpr int kHeads = 8, kGroup = 4, kHeadDim = 128;
constexpr int kGraphLaunches = 16;
constexpr int64_t kPoolBytes = int64_t{4} << 30;

struct Bench {
  Bench() : pool(RandomOnDevice(kPoolBytes / 2)), bandwidth(watch.ReadRate(pool)) {
    std::printf("read bandwidth, 4 GiB: %.0f GB/s\n\n", bandwidth * 1e-9);
    std::printf("%-8s %-6s %5s %6s %8s | %8s %9s | %8s %8s %6s\n", "kind", "layout", "page",
                "batch", "tokens", "MiB", "stream us", "graph us", "GB/s", "share");
  }

  void Row(const char* kind, bool hnd, int page, int sequences, int tokens, bool dense) {
    const PagedKv cache = (hnd ? HndPages : NhdPages)(pool.get(), page, kHeads, kHeadDim);
    const int64_t slots = pool.size() / cache.slot_stride;
    const int rows = sequences * kHeads;
    const int pages = tokens / page;
    const int64_t turn = dense ? int64_t{sequences} * pages : int64_t{rows} * pages;
    const int turns = static_cast<int>(std::clamp<int64_t>(slots / turn, 1, kGraphLaunches));
    std::vector<int32_t> order(slots);
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(2);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<int32_t> table;
    for (int t = 0; t < turns; ++t) {
      for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < pages; ++i) {
          const int64_t owner = dense ? row / kHeads : row;
          table.push_back(order[(t * turn + owner * pages + i) % slots]);
        }
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
      args.pages.table = device_table.get() + int64_t{i % turns} * rows * pages;
      DecodeAttention(args, watch.stream());
    };
    const double queued = watch.InStream(launch, kGraphLaunches);
    const double chained = watch.InGraph(launch, kGraphLaunches);
    const double bytes = 2.0 * rows * tokens * kHeadDim * 2;
    const double rate = bytes / chained;
    std::printf("%-8s %-6s %5d %6d %8d | %8.1f %9.1f | %8.1f %8.0f %5.0f%%\n", kind,
                hnd ? "HND" : "NHD", page, sequences, tokens, bytes / (1 << 20), queued * 1e6,
                chained * 1e6, rate * 1e-9, 100 * rate / bandwidth);
  }

  Stopwatch watch;
  Buffer<__nv_bfloat16> pool;
  double bandwidth;
};

void Run() {
  Bench bench;
  for (const bool hnd : {false, true}) {
    for (const int tokens : {2048, 8192, 32768, 131072}) {
      bench.Row("dense", hnd, 16, 1, tokens, true);
    }
    bench.Row("dense", hnd, 16, 4, 32768, true);
    bench.Row("dense", hnd, 16, 8, 32768, true);
    bench.Row("dense", hnd, 32, 8, 32768, true);
    for (const int sequences : {1, 4}) {
      for (const int page : {16, 32, 64}) bench.Row("sparse", hnd, page, sequences, 2048, false);
    }
  }
}

}  // namespace
}  // namespace stallcast::kernels

int main() {
  return stallcast::kernels::Benchmark("bench_decode_attention", stallcast::kernels::Run);
}
