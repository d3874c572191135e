// Causal attention of prompts at Llama-3.1-8B's shape (8 KV heads, group 4, d 128). Launches in a
// graph walk through several prompts' pages, in random order, as caches have them.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/attention/prefill_attention.h"
#include "tests/kernels/measure.h"

namespace stallcast::kernels {
namespace {

constexpr int kHeads = 8, kGroup = 4, kHeadDim = 128, kPageTokens = 16;

void Row(Stopwatch& watch, std::mt19937& random, int sequences, int tokens, int past) {
  const PagedKv shape = NhdPages(nullptr, kPageTokens, kHeads, kHeadDim);
  const int launches = std::clamp(65536 / tokens, 1, 8);
  const int pages = (past + tokens) / kPageTokens;
  const int64_t kv_elements = int64_t{launches} * sequences * pages * shape.slot_stride;
  const int64_t queries = int64_t{sequences} * tokens * kHeads * kGroup * kHeadDim;
  const auto kv = RandomOnDevice(kv_elements), query = RandomOnDevice(queries);
  const Buffer<__nv_bfloat16> output(queries);
  std::vector<int32_t> order(static_cast<size_t>(launches) * sequences * pages);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  const auto slots = Uploaded(order);
  const auto attend = [&](bool portable) {
    return watch.InGraph(
        [&](int i) {
          PrefillAttention({.query = query.get(),
                            .cache = NhdPages(kv.get(), kPageTokens, kHeads, kHeadDim),
                            .slots = slots.get() + int64_t{i} * sequences * pages,
                            .max_pages = pages,
                            .output = output.get(),
                            .sequences = sequences,
                            .tokens = tokens,
                            .past = past,
                            .group = kGroup,
                            .scale = 1 / std::sqrt(static_cast<float>(kHeadDim)),
                            .portable = portable},
                           watch.stream());
        },
        launches, 7);
  };
  const double pairs = sequences * (double{1} * tokens * past + 0.5 * tokens * (tokens + 1.0));
  for (const bool portable : {false, true}) {
    const double seconds = attend(portable);
    std::printf("%-10s %6d %8d %8d %12.1f %8.0f\n", portable ? "portable" : "ours", sequences,
                tokens, past, seconds * 1e6,
                4 * kHeads * kGroup * kHeadDim * pairs / seconds * 1e-12);
  }
}

void Run() {
  Stopwatch watch;
  std::mt19937 random(1);
  std::printf("%-10s %6s %8s %8s %12s %8s\n", "prefill", "batch", "tokens", "past", "us",
              "TFLOP/s");
  for (const int tokens : {2048, 8192, 32768}) Row(watch, random, 1, tokens, 0);
  Row(watch, random, 4, 8192, 0);
  Row(watch, random, 1, 4096, 28672);
}

}  // namespace
}  // namespace stallcast::kernels

int main() {
  return stallcast::kernels::Benchmark("bench_prefill_attention", stallcast::kernels::Run);
}
