// ShadowKV's kernels: a prompt's chunks and factors, and what a selection brings.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "kernels/methods/shadowkv.h"
#include "tests/kernels/measure.h"
#include "tests/kernels/stage.h"

namespace stallcast::kernels {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int kHeads = 8, kDim = 128, kChunk = 8, kRank = 160, kOutliers = 48;

void MeasurePrompt(Stopwatch& watch, int tokens, double memory) {
  const int chunks = tokens / kChunk - 4, candidates = chunks - kOutliers;
  const auto keys = RandomOnDevice(int64_t{kHeads} * tokens * kDim);
  const TokenView view{keys.get(), int64_t{tokens} * kDim, kDim, 0};
  const Buffer<Bf16> landmarks(int64_t{kHeads} * chunks * kDim), kept(landmarks.size());
  const Buffer<float> cohesion(int64_t{kHeads} * chunks);
  std::vector<int32_t> outlier;
  for (int i = 0; i < kHeads * kOutliers; ++i) outlier.push_back(i % kOutliers * 7);
  const auto d_outlier = Uploaded(outlier);
  const Buffer<int32_t> chunk_of(int64_t{kHeads} * candidates);
  const std::string shape = fmt::format("8 x {} tokens: ", tokens);
  const double bytes = 2.0 * static_cast<double>(keys.size());
  double seconds = watch.Once([&] {
    SummarizeChunks(view, kHeads, chunks, kChunk, kDim, landmarks.get(), cohesion.get(),
                    watch.stream());
  });
  Print(shape + "mean keys and cohesion", seconds, bytes * (1 + 1.0 / kChunk) / seconds * 1e-9,
        "GB/s", memory * 1e-9, "memory reads");
  seconds = watch.Once([&] {
    KeepCandidates(landmarks.get(), chunks, d_outlier.get(), kOutliers, kHeads, candidates, kDim,
                   chunk_of.get(), kept.get(), watch.stream());
  });
  Print(shape + "candidates kept", seconds, 2 * bytes / kChunk / seconds * 1e-9, "GB/s",
        memory * 1e-9, "memory reads");
  if (!KeyFactorizer::Available()) return;
  KeyFactorizer factorizer(tokens, kHeads, kDim, kRank);
  const Buffer<Bf16> u(int64_t{tokens} * kRank), basis(int64_t{kHeads} * kDim * kRank);
  const auto factorize = [&](const char* of) {
    seconds = watch.Once([&] { factorizer.Run(view, u.get(), basis.get(), watch.stream()); },
                         /*trials=*/1);
    fmt::print("{:<52} {:>10.2f} ms, {} sweeps of cuSOLVER's\n", shape + of, seconds * 1e3,
               factorizer.Sweeps());
  };
  factorize("factors of rank 160");
  // As a trace of a model with fewer heads gives them.
  const int64_t two = int64_t{2} * tokens * kDim;
  for (int64_t at = two; at < keys.size(); at += two) {
    Check(cudaMemcpy(keys.get() + at, keys.get(), static_cast<size_t>(two) * sizeof(Bf16),
                     cudaMemcpyDeviceToDevice),
          "cudaMemcpy");
  }
  factorize("factors of two heads' keys four times");
}

void MeasureRecall(Stopwatch& watch, int rows, int missed, double memory) {
  constexpr int kTokens = 32768, kCandidates = kTokens / kChunk;
  std::mt19937_64 random(3);
  std::vector<int32_t> unit, slot, chunk_of;
  for (int i = 0; i < rows * missed; ++i) {
    unit.push_back(static_cast<int32_t>(random() % kCandidates));
    slot.push_back(i % missed);
  }
  for (int i = 0; i < rows * kCandidates; ++i) chunk_of.push_back(i % kCandidates);
  const auto d_unit = Uploaded(unit), d_slot = Uploaded(slot), d_chunk_of = Uploaded(chunk_of);
  const auto count = Uploaded(std::vector<int32_t>(static_cast<size_t>(rows), missed));
  const MissedChunks chunks{d_unit.get(),     d_slot.get(), count.get(),
                            d_chunk_of.get(), rows,         missed,
                            kCandidates,      kChunk,       0};
  const int64_t capacity = int64_t{missed} * kChunk;
  const Buffer<Bf16> cache(2 * rows * capacity * kDim);
  const TokenView view{cache.get(), capacity * kDim, kDim, rows * capacity * kDim};
  const std::string shape = fmt::format("{} x {} chunks: ", rows, missed);
  const double moved = 2.0 * static_cast<double>(rows * capacity * kDim);

  const Buffer<Bf16> pool(int64_t{rows} * kTokens * kDim, Memory::kPinned);
  std::memset(pool.get(), 0, static_cast<size_t>(pool.bytes()));
  const double copy = watch.Once([&] {
    Check(cudaMemcpyAsync(cache.get(), pool.get(), static_cast<size_t>(moved),
                          cudaMemcpyHostToDevice, watch.stream()),
          "cudaMemcpyAsync");
  });
  const int blocks = (rows * 128 + 1023) / 1024;
  for (const int of : {blocks, 16}) {
    const double seconds = watch.Once(
        [&] { FetchValues(pool.get(), kTokens, chunks, view, kDim, of, watch.stream()); });
    Print(shape + fmt::format("values fetched, {} blocks", of), seconds, moved / seconds * 1e-9,
          "GB/s", moved / copy * 1e-9, "one copy of as much");
  }

  const auto u = RandomOnDevice(int64_t{rows} / kHeads * kTokens * kRank, 0.1F);
  const auto basis = RandomOnDevice(int64_t{rows} * kDim * kRank);
  std::vector<float> turns;
  for (int i = 0; i < kDim / 2; ++i) turns.push_back(std::exp(-0.14F * static_cast<float>(i)));
  const auto frequencies = Uploaded(turns);
  const double seconds = watch.InGraph(
      [&](int) {
        RebuildKeys({u.get(), basis.get(), kTokens, kRank}, chunks, kHeads, frequencies.get(), 1,
                    view, kDim, watch.stream());
      },
      16);
  const double bytes =
      moved + 2.0 * kRank * (static_cast<double>(rows * capacity) + double{kDim} * rows);
  Print(shape + "keys rebuilt", seconds, bytes / seconds * 1e-9, "GB/s", memory * 1e-9,
        "memory reads");
}

void Run() {
  Stopwatch watch;
  const double memory = PrintDevice(watch);
  for (const int tokens : {8192, 32768}) MeasurePrompt(watch, tokens, memory);
  for (const int rows : {8, 32}) {
    for (const int missed : {16, 64, 256}) MeasureRecall(watch, rows, missed, memory);
  }
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_shadowkv", stallcast::kernels::Run); }
