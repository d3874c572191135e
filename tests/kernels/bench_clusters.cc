// LouisKV's kernels: clustering a prompt's keys, alone and behind the products of its layer, and a
// retrieval: centroid scores, selection under a token budget, rows read from pinned memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>

#include "kernels/clusters.h"
#include "kernels/decoder.h"
#include "kernels/movement.h"
#include "kernels/selection.h"
#include "tests/kernels/measure.h"
#include "tests/kernels/stage.h"

namespace stallcast::kernels {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int kHeads = 8, kGroup = 4, kDim = 128, kCluster = 16, kIterations = 5;
// NVIDIA's data sheets, dense: 1,979 TOPS of int8 on H100 SXM and H200.
constexpr double kInt8 = 1979e12;

/// Clusters of a prompt, and where they lie.
struct Prompt {
  Prompt(int sequences, int tokens)
      : clusters(tokens / kCluster),
        data(Uploaded(Random(int64_t{sequences} * tokens * 2 * kHeads * kDim))),
        centroids(int64_t{sequences} * kHeads * clusters * kDim),
        offsets(int64_t{sequences} * kHeads * (clusters + 1)),
        members(int64_t{sequences} * kHeads * tokens),
        args{.keys = {NhdPages(data.get(), kCluster, kHeads, kDim), tokens / kCluster},
             .rows = sequences * kHeads,
             .tokens = tokens,
             .clusters = clusters,
             .iterations = kIterations,
             .centroids = centroids.get(),
             .centroid_stride = clusters,
             .lists = {offsets.get(), members.get(), clusters + 1, tokens}},
        workspace(KMeansWorkspace(args)) {}

  void Cluster(cudaStream_t stream) const { KMeans(args, workspace.get(), stream); }

  int clusters;
  Buffer<Bf16> data, centroids;
  Buffer<int32_t> offsets, members;
  KMeansArgs args;
  Buffer<char> workspace;
};

/// The matrix products of a layer of Llama-3.1-8B in prefill.
struct LayerProducts {
  explicit LayerProducts(int64_t rows)
      : tokens(rows), a(rows * 14336), c(rows * 28672), weights(int64_t{28672} * 4096) {
    Check(cudaMemset(a.get(), 0, static_cast<size_t>(a.bytes())), "cudaMemset");
    Check(cudaMemset(weights.get(), 0, static_cast<size_t>(weights.bytes())), "cudaMemset");
  }
  void Run(cudaStream_t stream) {
    for (const auto& [n, k] :
         {std::pair<int64_t, int64_t>{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}}) {
      gemm.Run(a.get(), weights.get(), c.get(), tokens, n, k, stream);
    }
  }
  int64_t tokens;
  Buffer<Bf16> a, c, weights;
  Gemm gemm;
};

void MeasureClustering(Stopwatch& watch) {
  for (const int tokens : {8192, 32768, 65536}) {
    const Prompt prompt(1, tokens);
    const double seconds = watch.Once([&] { prompt.Cluster(watch.stream()); });
    const double operations =
        2.0 * kIterations * kHeads * tokens * static_cast<double>(prompt.clusters) * kDim;
    Print(fmt::format("k-means of 8 x {} keys, {} clusters, {} passes", tokens, prompt.clusters,
                      kIterations),
          seconds, operations / seconds * 1e-12, "TOPS", kInt8 * 1e-12, "int8");
  }
  // Beside the products of the layer, whose causal attention is left out.
  constexpr int kTokens = 32768;
  const Prompt prompt(1, kTokens);
  LayerProducts layer(kTokens);
  cudaStream_t side = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  Check(cudaStreamCreate(&side), "cudaStreamCreate");
  Check(cudaEventCreateWithFlags(&begin, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  Check(cudaEventCreateWithFlags(&end, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  const double alone = watch.Once([&] { layer.Run(watch.stream()); });
  const double both = watch.Once([&] {
    Check(cudaEventRecord(begin, watch.stream()), "cudaEventRecord");
    Check(cudaStreamWaitEvent(side, begin, 0), "cudaStreamWaitEvent");
    prompt.Cluster(side);
    Check(cudaEventRecord(end, side), "cudaEventRecord");
    layer.Run(watch.stream());
    Check(cudaStreamWaitEvent(watch.stream(), end, 0), "cudaStreamWaitEvent");
  });
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaStreamDestroy(side);
  fmt::print(
      "a layer's products of 32768 tokens: {:.2f} ms, {:.2f} ms with its k-means beside them "
      "(+{:.1f} %)\n",
      alone * 1e3, both * 1e3, 100 * (both / alone - 1));
}

void MeasureRetrieval(Stopwatch& watch, int sequences, int tokens, int budget, bool gathers,
                      double memory) {
  const int rows = sequences * kHeads;
  const Prompt prompt(sequences, tokens);
  prompt.Cluster(watch.stream());
  const auto query = Uploaded(Random(int64_t{rows} * kGroup * kDim));
  const Buffer<float> scores(int64_t{rows} * kGroup * prompt.clusters);
  const Buffer<int32_t> ids(int64_t{rows} * budget), id_count(rows), token_count(rows);
  const Buffer<int64_t> source(int64_t{rows} * budget);
  const float scale = 1 / std::sqrt(static_cast<float>(kDim));
  const SelectUnitsArgs select{.scores = scores.get(),
                               .rows = rows,
                               .group = kGroup,
                               .units = prompt.clusters,
                               .scale = scale,
                               .lists = prompt.args.lists,
                               .budget = budget,
                               .heads = kHeads,
                               .kv_heads = kHeads,
                               .pool_tokens = tokens,
                               .unit_ids = ids.get(),
                               .unit_count = id_count.get(),
                               .source = source.get(),
                               .token_count = token_count.get()};
  const Buffer<char> workspace(SelectUnitsWorkspace(select));
  const auto score = [&](int) {
    Score(query.get(), prompt.centroids.get(), rows, kGroup, kDim, 1, 0, prompt.clusters,
          prompt.clusters, Pooling::kNone, scale, scores.get(), nullptr, watch.stream());
  };
  const auto choose = [&](int) { SelectUnits(select, workspace.get(), watch.stream()); };
  const std::string shape =
      fmt::format("{} x {} units, {} tokens: ", rows, prompt.clusters, budget);
  const double summaries = 2.0 * rows * prompt.clusters * kDim;
  const double scored = 4.0 * rows * prompt.clusters * kGroup;
  const auto line = [&](const char* what, double bytes, double seconds) {
    Print(shape + what, seconds, bytes / seconds * 1e-9, "GB/s", memory * 1e-9, "memory reads");
  };
  line("centroid scores", summaries + scored, watch.InGraph(score, 32));
  line("selection", scored + 12.0 * rows * budget, watch.InGraph(choose, 32));
  line("both", summaries + 2 * scored + 12.0 * rows * budget,
       watch.InGraph(
           [&](int i) {
             score(i);
             choose(i);
           },
           32));

  // The rows chosen, read from a pinned pool of so many layers, one after the other: neither the
  // host's caches nor the device's address translation know them.
  const int64_t chosen = int64_t{rows} * budget;
  const int64_t layer = int64_t{sequences} * tokens * 2 * kHeads * kDim;
  const int layers = static_cast<int>((int64_t{4} << 30) / 2 / layer);
  if (!gathers) return;
  const Buffer<Bf16> pool(layers * layer, Memory::kPinned);
  std::memset(static_cast<void*>(pool.get()), 1, static_cast<size_t>(pool.bytes()));
  const Buffer<Bf16> cache(chosen * 2 * kDim);
  std::vector<int32_t> slot(static_cast<size_t>(chosen)), zero(slot.size());
  std::iota(slot.begin(), slot.end(), 0);
  const auto d_slot = Uploaded(slot), d_zero = Uploaded(zero);
  PagedKv target = HndPages(cache.get(), 1, 1, kDim);
  // Pool rows count heads, the target has one row a slot.
  target.kv_heads = kHeads;
  const double bytes = 4.0 * static_cast<double>(chosen) * kDim;
  const double engine = watch.Once([&] {
    Check(cudaMemcpyAsync(cache.get(), pool.get(), static_cast<size_t>(bytes),
                          cudaMemcpyHostToDevice, watch.stream()),
          "cudaMemcpyAsync");
  });
  Print(shape + "one copy of as much", engine, bytes / engine * 1e-9, "GB/s", bytes / engine * 1e-9,
        "itself");
  for (const bool rows_apart : {true, false}) {
    for (const int blocks : {8, 32, 132}) {
      const double seconds = watch.InStream(
          [&](int i) {
            ZeroCopyGather(pool.get() + i % layers * layer, source.get(), d_slot.get(),
                           d_zero.get(), static_cast<int32_t>(chosen), nullptr, target, rows_apart,
                           blocks, watch.stream());
          },
          layers, 5);
      Print(shape + fmt::format("rows of {}, {} blocks", rows_apart ? "256 B" : "512 B", blocks),
            seconds, bytes / seconds * 1e-9, "GB/s", bytes / engine * 1e-9, "the copy engine");
    }
  }
}

/// How far apart the rows lie: a layer of one sequence's 32K tokens is 128 MiB.
void MeasureRegions(Stopwatch& watch) {
  constexpr int64_t kPool = int64_t{4} << 30, kRowBytes = 2 * kDim;
  constexpr int32_t kPieces = 8 * 1728;
  const Buffer<Bf16> pool(kPool / 2, Memory::kPinned), cache(int64_t{kPieces} * 2 * kDim);
  std::memset(static_cast<void*>(pool.get()), 1, static_cast<size_t>(kPool));
  std::vector<int32_t> slot(kPieces), zero(kPieces);
  std::iota(slot.begin(), slot.end(), 0);
  const auto d_slot = Uploaded(slot), d_zero = Uploaded(zero);
  PagedKv target = HndPages(cache.get(), 1, 1, kDim);
  target.kv_heads = kHeads;
  std::mt19937_64 random(5);
  for (int64_t region = int64_t{64} << 20; region <= kPool; region *= 2) {
    constexpr int kDraws = 16;
    std::vector<int64_t> source(int64_t{kDraws} * kPieces);
    for (int64_t& s : source) s = static_cast<int64_t>(random() % (region / (2 * kRowBytes)));
    const auto d_source = Uploaded(source);
    const int64_t regions = kPool / region;
    for (const int blocks : {8, 32}) {
      const double seconds = watch.InStream(
          [&](int i) {
            ZeroCopyGather(pool.get() + i % regions * (region / 2),
                           d_source.get() + i % kDraws * int64_t{kPieces}, d_slot.get(),
                           d_zero.get(), kPieces, nullptr, target, true, blocks, watch.stream());
          },
          32, 5);
      Print(fmt::format("13,824 pairs of 256 B from {} MiB, {} blocks", region >> 20, blocks),
            seconds, kPieces * 2.0 * kRowBytes / seconds * 1e-9, "GB/s", 52.8, "52.8 GB/s");
    }
  }
}

void MeasureSegments(Stopwatch& watch) {
  constexpr int kTokens = 16, kUnits = 64;
  const auto data = Uploaded(Random(int64_t{kUnits} * 2 * kTokens * kHeads * kDim));
  const Buffer<int32_t> slots(kUnits * kHeads);
  Check(cudaMemset(slots.get(), 0, static_cast<size_t>(slots.bytes())), "cudaMemset");
  const Buffer<Bf16> means(int64_t{kUnits} * kHeads * kDim);
  const double seconds = watch.InGraph(
      [&](int i) {
        Summarize(SummaryKind::kMean,
                  NhdPages(data.get() + int64_t{i % kUnits} * 2 * kTokens * kHeads * kDim, kTokens,
                           kHeads, kDim),
                  slots.get(), 1, 0, 1, kHeads, means.get(), kUnits, watch.stream());
      },
      kUnits);
  Print("mean key of a segment of 16 tokens, 8 heads", seconds,
        2.0 * kTokens * kHeads * kDim / seconds * 1e-9, "GB/s", 1e9, "nothing: a launch");
}

void Run() {
  Stopwatch watch;
  const double memory = PrintDevice(watch);
  MeasureClustering(watch);
  MeasureRetrieval(watch, 1, 32768, 1728, true, memory);
  MeasureRetrieval(watch, 1, 131072, 1728, false, memory);
  MeasureRetrieval(watch, 4, 32768, 1728, false, memory);
  MeasureRegions(watch);
  MeasureSegments(watch);
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_clusters", stallcast::kernels::Run); }
