// Speed of ParisKV's stages, as a share of the memory's or the link's rate, at Llama-3.1-8B's shape
// (8 KV heads of 128, groups of 4). peers_pw.py prints the same rows for PyTorch.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/executor/host_pool.h"
#include "kernels/methods/pariskv.h"
#include "kernels/runtime/held_train.h"
#include "kernels/runtime/probe.h"
#include "kernels/runtime/upload.h"
#include "kernels/selection/selection.h"
#include "models/plan/host_regions.h"
#include "tests/kernels/measure.h"
#include "traces/common/median.h"

namespace stallcast::kernels {
namespace {

constexpr int kRows = 8, kDim = 128, kParts = 16, kGroup = 4, kTopK = 100;
constexpr int kLaunches = 16;

struct Rates {
  double memory, link;
};

template <class T>
Buffer<T> Random(int64_t count, uint32_t mask) {
  std::mt19937 random(1);
  std::vector<uint32_t> words(static_cast<size_t>(count * sizeof(T) / 4 + 1));
  for (uint32_t& word : words) word = random() & mask;
  Buffer<T> buffer(count);
  Check(cudaMemcpy(buffer.get(), words.data(), static_cast<size_t>(buffer.bytes()),
                   cudaMemcpyHostToDevice),
        "cudaMemcpy");
  return buffer;
}

void Select(Stopwatch& watch, const methods::CodeBook& book, int n, double rho, double beta,
            const Rates& rates) {
  const CodeTables tables(book);
  const std::string name = std::to_string(kRows) + " x " + std::to_string(n) + ": ";
  const auto keys = Random<__nv_bfloat16>(int64_t{n} * kRows * kDim, 0xbfffbfffu);
  const auto query = Random<__nv_bfloat16>(kRows * kGroup * kDim, 0xbfffbfffu);
  const int64_t places = int64_t{kRows} * n;
  Buffer<uint8_t> ids(places * kParts), codes(places * kDim / 2);
  Buffer<__nv_bfloat16> weights(places * kParts);
  Buffer<int32_t> counts(kRows * kParts * 256);
  const KeyIndex index{ids.get(), codes.get(), weights.get(), counts.get(), n};
  const TokenView view{keys.get(), kDim, int64_t{kRows} * kDim, 0};
  const auto zero = [&] {
    Check(cudaMemsetAsync(counts.get(), 0, static_cast<size_t>(counts.bytes()), watch.stream()),
          "cudaMemsetAsync");
  };
  zero();
  const double encode = watch.InGraph(
      [&](int) { EncodeKeys(tables, view, kRows, n, 0, index, watch.stream()); }, 4, 5);
  MemoryRow(name + "encode", encode, static_cast<double>(places) * (256 + 112), rates.memory);
  zero();
  EncodeKeys(tables, view, kRows, n, 0, index, watch.stream());

  const int count = static_cast<int>(std::ceil(beta * n));
  Buffer<float> rotated(kRows * kDim), estimates(int64_t{kRows} * count);
  Buffer<uint8_t> table(kRows * kParts * 256), scores(int64_t{kRows} * ScoreStride(n));
  Buffer<int32_t> histograms(HistogramSize(kRows, n)), candidates(int64_t{kRows} * count);
  Buffer<int32_t> chosen(kRows * kTopK);
  Buffer<char> workspace(TopKWorkspace(kRows, count, kTopK) + 1);
  const auto limits = methods::TierLimits(rho, n);
  const auto make_table = [&] {
    CollisionTable(tables, query.get(), kRows, kGroup, 1, index, limits, rotated.get(), table.get(),
                   watch.stream());
  };
  const auto score = [&] {
    CollisionScores(tables, table.get(), index, kRows, 1, n, scores.get(), histograms.get(),
                    watch.stream());
  };
  const auto choose = [&] {
    BucketTopK(scores.get(), histograms.get(), kRows, n, count, candidates.get(), watch.stream());
  };
  const auto rerank = [&] {
    Rerank(tables, rotated.get(), index, candidates.get(), kRows, 1, count, estimates.get(),
           watch.stream());
  };
  const auto top = [&] {
    TopK(estimates.get(), kRows, count, kTopK, chosen.get(), workspace.get(), watch.stream());
  };
  const auto all = static_cast<double>(places), some = double{kRows} * count;
  const auto time = [&](const auto& work) {
    return watch.InGraph([&](int) { work(); }, kLaunches);
  };
  MemoryRow(name + "collision table", time(make_table), kRows * kParts * 256 * 5.0, rates.memory);
  MemoryRow(name + "collision scores", time(score), all * 17, rates.memory);
  MemoryRow(name + "bucket top-k", time(choose), all + some * 4, rates.memory);
  MemoryRow(name + "rerank", time(rerank), some * (96 + 8), rates.memory);
  MemoryRow(name + "top-k of candidates", time(top), some * 4, rates.memory);
  MemoryRow(name + "whole selection", time([&] {
              make_table();
              score();
              choose();
              rerank();
              top();
            }),
            all * 18 + some * 112, rates.memory);
}

void Fetch(Stopwatch& watch, const Rates& rates) {
  constexpr int64_t kTokens = 1 << 20;  // 4 GiB of keys and values
  const Buffer<__nv_bfloat16> pool(kTokens * kRows * 2 * kDim, Memory::kPinned);
  std::mt19937 random(2);
  // So many different tokens that the replays of a graph find none of their addresses cached.
  for (const int k : {100, 1'000}) {
    const int launches = 160'000 / (kRows * k);
    std::vector<int32_t> tokens(static_cast<size_t>(kRows * k * launches));
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % kTokens);
    Buffer<int32_t> places(static_cast<int64_t>(tokens.size()));
    Check(cudaMemcpy(places.get(), tokens.data(), static_cast<size_t>(places.bytes()),
                     cudaMemcpyHostToDevice),
          "cudaMemcpy");
    Buffer<__nv_bfloat16> out(int64_t{kRows} * k * 2 * kDim);
    const TokenView to{out.get(), int64_t{k} * 2 * kDim, 2 * kDim, kDim};
    for (const bool joined : {false, true}) {
      const TokenView from = joined ? TokenView{pool.get(), kTokens * 2 * kDim, 2 * kDim, kDim}
                                    : TokenView{pool.get(), kTokens * kDim, kDim, pool.size() / 2};
      for (const int blocks : {8, 32, 132, 528}) {
        const double seconds = watch.InGraph(
            [&](int i) {
              FetchTokens(from, places.get() + int64_t{i} * kRows * k, nullptr, kRows, 1, k, 0, 0,
                          to, 0, kDim, blocks, watch.stream());
            },
            launches, 7);
        MemoryRow("fetch " + std::to_string(kRows) + " x " + std::to_string(k) +
                      (joined ? " joined, " : " split, ") + std::to_string(blocks) + " blocks",
                  seconds, kRows * k * 512.0, rates.link);
      }
    }
  }
}

// As the layers of a step fetch, one behind the other from pools of their own, behind reads of as
// much as a layer's weights; beside it the same from one layer's pool over and over.
void FetchInTurn(Stopwatch& watch) {
  constexpr int kLayers = 32, kBlocks = 64;
  constexpr int32_t kLongest = 131'072;
  constexpr int64_t kElements = int64_t{kLongest} * kRows * 2 * kDim;
  HostPool memory;
  auto* const pool = reinterpret_cast<__nv_bfloat16*>(
      memory.Get(kLayers * kElements * int64_t{sizeof(__nv_bfloat16)}));
  const Buffer<char> weights(int64_t{400} << 20);
  const Buffer<int> sink(1);
  std::mt19937 random(3);
  std::printf(
      "\nfetches of 32 layers in turn from split pinned pools, us (one pool, over and over)\n");
  for (const int32_t tokens : {8'192, 32'768, kLongest}) {
    std::printf("%8d tokens:", tokens);
    for (const int k : {25, 100, 400}) {
      std::vector<int32_t> numbers;
      for (int row = 0; row < kLayers * kRows; ++row) {
        for (int i = 0; i < k; ++i) {
          numbers.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(tokens)));
        }
        std::sort(numbers.end() - k, numbers.end());  // as candidates are listed
      }
      const Buffer<int32_t> places = Uploaded(numbers);
      const Buffer<__nv_bfloat16> out(int64_t{kRows} * k * 2 * kDim);
      const TokenView to{out.get(), int64_t{k} * 2 * kDim, 2 * kDim, kDim};
      const int64_t layer = int64_t{tokens} * kRows * 2 * kDim;
      const auto read = [&] {
        ReadOnce(weights.get(), weights.bytes(), sink.get(), watch.stream());
      };
      const auto seconds = [&](bool in_turn) {
        return watch.InGraph(
            [&](int i) {
              read();
              const TokenView from{pool + (in_turn ? i * layer : 0), int64_t{tokens} * kDim, kDim,
                                   layer / 2};
              FetchTokens(from, places.get() + int64_t{i} * kRows * k, nullptr, kRows, 1, k, 0, 0,
                          to, 0, kDim, kBlocks, watch.stream());
            },
            kLayers, 9);
      };
      const double alone = watch.InGraph([&](int) { read(); }, kLayers, 9);
      std::printf("  8 x %3d %6.1f (%5.1f)", k, (seconds(true) - alone) * 1e6,
                  (seconds(false) - alone) * 1e6);
    }
    std::printf("\n");
  }
}

/// The same tokens in each turn of the layers, and others in each: how many regions of the host's
/// memory (plan::kHostRegion) may lie between two fetches of a layer before their addresses must be
/// translated again.
void FetchAgain(Stopwatch& watch) {
  constexpr int kLayers = 32, kBlocks = 64, kTurns = 8, kWarm = 3;
  constexpr int32_t kLongest = 131'072;
  constexpr int64_t kElements = int64_t{kLongest} * kRows * 2 * kDim;
  constexpr std::array kRead = {25, 50, 100, 200, 400};  // tokens of a head
  HostPool memory;
  auto* const pool = reinterpret_cast<__nv_bfloat16*>(
      memory.Get(kLayers * kElements * int64_t{sizeof(__nv_bfloat16)}));
  // As many bytes in turn as a decoder's products read.
  constexpr int64_t kWeights = int64_t{400} << 20, kOthers = 8;
  const Buffer<char> weights(kOthers * kWeights);
  const Buffer<int> sink(1);
  const Buffer<__nv_bfloat16> out(int64_t{kRows} * kRead.back() * 2 * kDim);
  HeldTrain train;
  std::mt19937 random(4);
  const auto read = [&](int layer) {
    ReadOnce(weights.get() + layer % kOthers * kWeights, kWeights, sink.get(), watch.stream());
  };
  const auto turn_time = [&](const auto& work) {
    return train.Seconds(watch.stream(), kLayers, work) / kLayers;
  };
  std::printf(
      "\nfetches by 32 layers in turn, us: the same tokens in each turn, others in each (thousands "
      "of regions of 32 KiB in a turn)\n%24s",
      "");
  for (const int count : kRead) std::printf("         8 x %3d       ", count);
  for (const int32_t tokens : {8'192, 32'768, kLongest}) {
    std::printf("\n%8d tokens a layer:  ", tokens);
    const int64_t layer_elements = int64_t{tokens} * kRows * 2 * kDim;
    for (const int count : kRead) {
      const int64_t a_turn = int64_t{kLayers} * kRows * count;
      std::vector<int32_t> numbers(static_cast<size_t>(kTurns * a_turn));
      for (int32_t& of : numbers) of = static_cast<int32_t>(random() % uint32_t{kLongest}) % tokens;
      int64_t regions = 0;
      for (auto row = numbers.begin(); row != numbers.end(); row += count) {
        std::sort(row, row + count);  // as candidates are listed
        if (row - numbers.begin() >= a_turn) continue;
        const std::vector<uint32_t> now(row, row + count);
        regions += 2 * plan::Regions(now, {}, plan::kHostRegion / (2 * kDim)).regions;
      }
      const Buffer<int32_t> places = Uploaded(numbers);
      const TokenView to{out.get(), int64_t{count} * 2 * kDim, 2 * kDim, kDim};
      const auto fetch = [&](int turn, int layer) {
        const TokenView from{pool + layer * layer_elements, int64_t{tokens} * kDim, kDim,
                             layer_elements / 2};
        FetchTokens(from, places.get() + turn * a_turn + int64_t{layer} * kRows * count, nullptr,
                    kRows, 1, count, 0, 0, to, 0, kDim, kBlocks, watch.stream());
      };
      fetch(0, 0);  // loads it
      const auto longer = [&](bool same) {
        std::vector<double> with, alone;
        for (int turn = 0; turn < kTurns; ++turn) {
          const double seconds = turn_time([&](int layer) {
            read(layer);
            fetch(same ? 0 : turn, layer);
          });
          if (turn < kWarm) continue;
          with.push_back(seconds);
          alone.push_back(turn_time(read));
        }
        return (Median(std::move(with)) - Median(std::move(alone))) * 1e6;
      };
      const double same = longer(true), others = longer(false);
      std::printf("  %6.1f %6.1f (%3.0f)", same, others, static_cast<double>(regions) * 1e-3);
    }
  }
  std::printf("\n");
}

void Run() {
  Stopwatch watch;
  Rates rates{};
  {
    const Buffer<char> device(int64_t{2} << 30);
    rates.memory = watch.ReadRate(device);
    const Buffer<char> host(int64_t{256} << 20, Memory::kPinned);
    rates.link = static_cast<double>(host.bytes()) / watch.Once([&] {
      Check(cudaMemcpyAsync(device.get(), host.get(), static_cast<size_t>(host.bytes()),
                            cudaMemcpyHostToDevice, watch.stream()),
            "cudaMemcpyAsync");
    });
  }
  std::printf("ParisKV; shares of %.0f GB/s read from device memory, of %.1f GB/s copied (fetch)\n",
              rates.memory / 1e9, rates.link / 1e9);
  const methods::CodeBook book(kDim, kParts, true, 1);
  Select(watch, book, 16'384, 0.25, 0.2, rates);
  Select(watch, book, 32'768, 0.2, 0.1, rates);
  Select(watch, book, 131'072, 0.2, 0.1, rates);
  Select(watch, book, 262'144, 0.2, 0.1, rates);
  Select(watch, book, 1'048'576, 0.2, 0.1, rates);
  Fetch(watch, rates);
  FetchInTurn(watch);
  FetchAgain(watch);
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_pariskv", stallcast::kernels::Run); }
