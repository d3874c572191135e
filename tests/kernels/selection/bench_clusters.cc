// LouisKV's kernels: clustering a prompt's keys, alone and beside the prefill of its layer, and a
// retrieval: centroid scores, selection under a token budget, rows read from pinned memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention/prefill_attention.h"
#include "kernels/decoder/decoder.h"
#include "kernels/movement/movement.h"
#include "kernels/selection/clusters.h"
#include "kernels/selection/selection.h"
#include "tests/kernels/measure.h"
#include "tests/kernels/stage.h"
#include "traces/common/median.h"

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

/// A layer of Llama-3.1-8B in prefill, of random data that cost the power of real ones.
class Layer {
 public:
  explicit Layer(const Prompt& prompt)
      : prompt_(prompt),
        tokens_(prompt.args.tokens),
        a_(RandomOnDevice(int64_t{tokens_} * kIntermediate)),
        weights_(RandomOnDevice(int64_t{2} * kIntermediate * kHidden, 1.0F / 64)),
        query_(RandomOnDevice(int64_t{tokens_} * kHidden)),
        residual_(RandomOnDevice(int64_t{tokens_} * kHidden)),
        c_(int64_t{tokens_} * 2 * kIntermediate),
        activated_(int64_t{tokens_} * kIntermediate) {
    std::vector<int32_t> slots(static_cast<size_t>(tokens_)), places(slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      slots[i] = static_cast<int32_t>(i) / kCluster;
      places[i] = static_cast<int32_t>(i) % kCluster;
    }
    slots_ = Uploaded(slots), places_ = Uploaded(places);
    frequencies_ = Uploaded(std::vector<float>(kDim / 2, 0));
  }

  /// What the keys come from.
  void Begin(cudaStream_t stream) {
    Norm(stream);
    Multiply(kHidden + 2 * kHeads * kDim, kHidden, stream);
    RopeAppend(c_.get(), tokens_, kHeads * kGroup, prompt_.args.keys.cache, slots_.get(),
               places_.get(), places_.get(), frequencies_.get(), 1, query_.get(), {}, stream);
  }
  /// The rest, beside which k-means may run.
  void End(cudaStream_t stream) {
    PrefillAttention({.query = query_.get(),
                      .cache = prompt_.args.keys.cache,
                      .max_pages = prompt_.args.keys.sequence_pages,
                      .output = c_.get(),
                      .sequences = 1,
                      .tokens = tokens_,
                      .group = kGroup,
                      .scale = 1 / std::sqrt(static_cast<float>(kDim))},
                     stream);
    Multiply(kHidden, kHidden, stream);
    Norm(stream);
    Multiply(2 * kIntermediate, kHidden, stream);
    Activate(stream);
    Multiply(kHidden, kIntermediate, stream);
  }
  void Norm(cudaStream_t stream) {
    AddRmsNorm(a_.get(), residual_.get(), weights_.get(), 1e-5F, tokens_, kHidden, c_.get(),
               stream);
  }
  void Activate(cudaStream_t stream) {
    SwiGlu(c_.get(), tokens_, kIntermediate, activated_.get(), stream);
  }
  static constexpr double NormBytes(double tokens) { return tokens * kHidden * 4 * sizeof(Bf16); }
  static constexpr double ActivationBytes(double tokens) {
    return tokens * kIntermediate * 3 * sizeof(Bf16);
  }

 private:
  static constexpr int kHidden = 4096, kIntermediate = 14336;
  void Multiply(int64_t n, int64_t k, cudaStream_t stream) {
    gemm_.Run(a_.get(), weights_.get(), c_.get(), tokens_, n, k, stream);
  }
  const Prompt& prompt_;
  int tokens_;
  Buffer<Bf16> a_, weights_, query_, residual_, c_, activated_;
  Buffer<int32_t> slots_, places_;
  Buffer<float> frequencies_;
  Gemm gemm_;
};

/// Whether clustering hides behind the prefill of its layer: some layers one after the other, with
/// and without it in turn, each time until all is done.
void MeasureHiding(Stopwatch& watch, int tokens) {
  constexpr int kLayers = 4;
  const Prompt prompt(1, tokens);
  Layer layer(prompt);
  int lowest = 0, highest = 0;
  Check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t first = nullptr, equal = nullptr, side = nullptr;
  for (const auto& [stream, priority] :
       {std::pair{&first, highest}, std::pair{&equal, lowest}, std::pair{&side, lowest}}) {
    Check(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, priority),
          "cudaStreamCreateWithPriority");
  }
  const Event fork(cudaEventDisableTiming), keys(cudaEventDisableTiming),
      clustered(cudaEventDisableTiming), join(cudaEventDisableTiming);
  const auto behind = [](cudaEvent_t event, cudaStream_t before, cudaStream_t after) {
    Check(cudaEventRecord(event, before), "cudaEventRecord");
    Check(cudaStreamWaitEvent(after, event, 0), "cudaStreamWaitEvent");
  };
  const auto run = [&](cudaStream_t prefill, bool clusters) {
    behind(fork, watch.stream(), prefill);
    for (int i = 0; i < kLayers; ++i) {
      layer.Begin(prefill);
      if (clusters) {
        behind(keys, prefill, side);
        prompt.Cluster(side);
      }
      layer.End(prefill);
    }
    if (clusters) behind(clustered, side, prefill);
    behind(join, prefill, watch.stream());
  };
  const double k_means = watch.Once([&] { prompt.Cluster(watch.stream()); });
  const double norm = watch.Once([&] { layer.Norm(watch.stream()); });
  const double activation = watch.Once([&] { layer.Activate(watch.stream()); });
  fmt::print("of a layer's prefill: a norm {:.0f} us, {:.0f} GB/s; SwiGLU {:.0f} us, {:.0f} GB/s\n",
             norm * 1e6, Layer::NormBytes(tokens) / norm * 1e-9, activation * 1e6,
             Layer::ActivationBytes(tokens) / activation * 1e-9);
  for (const cudaStream_t prefill : {equal, first}) {
    // In turn, so that both see the clock that the power limit leaves.
    std::vector<double> without, with;
    for (int i = 0; i < 5; ++i) {
      without.push_back(watch.Once([&] { run(prefill, false); }, 1) / kLayers);
      with.push_back(watch.Once([&] { run(prefill, true); }, 1) / kLayers);
    }
    const double alone = Median(std::move(without)), both = Median(std::move(with));
    fmt::print(
        "a layer's prefill of {} tokens ({}): {:.2f} ms, {:.2f} ms with its k-means of {:.2f} ms "
        "({:+.1f} %): {:.0f} % hidden\n",
        tokens, prefill == first ? "before k-means" : "beside k-means", alone * 1e3, both * 1e3,
        k_means * 1e3, 100 * (both / alone - 1),
        100 * std::clamp(1 - (both - alone) / k_means, 0.0, 1.0));
  }
  for (const cudaStream_t stream : {equal, first, side}) cudaStreamDestroy(stream);
}

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
  MeasureHiding(watch, 32768);
  MeasureRetrieval(watch, 1, 32768, 1728, true, memory);
  MeasureRetrieval(watch, 1, 131072, 1728, false, memory);
  MeasureRetrieval(watch, 4, 32768, 1728, false, memory);
  MeasureRegions(watch);
  MeasureSegments(watch);
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_clusters", stallcast::kernels::Run); }
