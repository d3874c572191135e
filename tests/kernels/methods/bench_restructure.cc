// PRKV's kernels: choosing the static set, restructuring a layer's pages and its bounds, and a
// recall gathered in a pinned buffer beside one page by page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "kernels/methods/restructure.h"
#include "kernels/movement/movement.h"
#include "kernels/selection/selection.h"
#include "tests/kernels/measure.h"
#include "tests/kernels/stage.h"

namespace stallcast::kernels {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int kHeads = 8, kGroup = 4, kDim = 128, kPage = 32, kWindow = 64;
// NVIDIA's data sheets, dense: 989 TFLOPS of bf16 on H100 SXM and H200.
constexpr double kBf16 = 989e12;

void MeasureRestructuring(Stopwatch& watch, int tokens, int chosen, double memory) {
  const int pages = tokens / kPage;
  const auto data = Uploaded(Random(int64_t{tokens} * 2 * kHeads * kDim));
  const Buffer<Bf16> moved(data.size());
  const auto query = Uploaded(Random(int64_t{kWindow} * kHeads * kGroup * kDim));
  const Buffer<float> scores(int64_t{kHeads} * tokens);
  const PageRuns from{HndPages(data.get(), kPage, kHeads, kDim), pages};
  const PageRuns to{HndPages(moved.get(), kPage, kHeads, kDim), pages};
  const ObservationScoreArgs observe{.keys = from,
                                     .rows = kHeads,
                                     .tokens = tokens,
                                     .query = query.get(),
                                     .queries = kWindow,
                                     .group = kGroup,
                                     .scale = 1 / std::sqrt(static_cast<float>(kDim)),
                                     .scores = scores.get()};
  const Buffer<char> workspace(ObservationScoreWorkspace(observe));
  const Buffer<char> ranking(std::max<int64_t>(1, TopKWorkspace(kHeads, tokens, chosen)));
  const Buffer<int32_t> ids(int64_t{kHeads} * chosen);
  std::vector<int32_t> slots;
  for (int row = 0; row < kHeads; ++row) {
    for (int page = 0; page < pages; ++page) slots.push_back(page);
  }
  const auto d_slots = Uploaded(slots);
  const Buffer<Bf16> bounds(int64_t{kHeads} * pages * 2 * kDim);
  const auto score = [&] { ObservationScore(observe, workspace.get(), watch.stream()); };
  const auto choose = [&] {
    TopK(scores.get(), kHeads, tokens, chosen, ids.get(), ranking.get(), watch.stream());
  };
  const auto move = [&] {
    Restructure(from, to, ids.get(), chosen, kHeads, tokens, watch.stream());
  };
  const auto summarise = [&] {
    Summarize(SummaryKind::kCuboidMean, to.cache, d_slots.get(), pages, 0, pages, kHeads,
              bounds.get(), pages, watch.stream());
  };
  const std::string shape = fmt::format("8 x {} tokens, {} static: ", tokens, chosen);
  const double operations =
      8.0 * kHeads * kGroup * kWindow * static_cast<double>(tokens) * kDim / 2;
  const double bytes = 4.0 * tokens * kHeads * kDim;  // keys and values
  double seconds = watch.Once(score);
  Print(shape + "observation scores", seconds, operations / seconds * 1e-12, "TFLOPS",
        kBf16 * 1e-12, "bf16");
  seconds = watch.InGraph([&](int) { choose(); }, 16);
  Print(shape + "choice", seconds, 4.0 * kHeads * tokens / seconds * 1e-9, "GB/s", memory * 1e-9,
        "memory reads");
  seconds = watch.Once(move);
  Print(shape + "pages restructured", seconds, 2 * bytes / seconds * 1e-9, "GB/s", memory * 1e-9,
        "memory reads");
  seconds = watch.Once(summarise);
  Print(shape + "bounds", seconds, bytes / 2 / seconds * 1e-9, "GB/s", memory * 1e-9,
        "memory reads");
  seconds = watch.Once([&] {
    score();
    choose();
    move();
    summarise();
  });
  Print(shape + "all four", seconds, (3.5 * bytes) / seconds * 1e-9, "GB/s", memory * 1e-9,
        "memory reads");
}

void MeasureRecall(Stopwatch& watch, int missed) {
  constexpr int64_t kPieceBytes = int64_t{2} * kPage * kDim * 2;
  constexpr int64_t kPieces = int64_t{32768} / kPage * kHeads;
  const Buffer<char> pool(kPieces * kPieceBytes, Memory::kPinned);
  const Buffer<char> staging(missed * kPieceBytes, Memory::kPinned);
  std::memset(pool.get(), 1, static_cast<size_t>(pool.bytes()));
  const Buffer<char> landing(missed * kPieceBytes);
  const Buffer<Bf16> cache(int64_t{missed} * kHeads * kPieceBytes / 2);
  std::mt19937_64 random(3);
  // The same heads' rows where a page holds a token's heads together.
  const PlaceShape nhd{kDim * 2, 2 * kPage, kHeads * kDim * 2};
  std::vector<int64_t> source, nhd_source;
  std::vector<int32_t> slot, head;
  for (int i = 0; i < missed; ++i) {
    source.push_back(static_cast<int64_t>(random() % kPieces));
    nhd_source.push_back(source.back() / kHeads * nhd.rows * kHeads + source.back() % kHeads);
    slot.push_back(i);
    head.push_back(i % kHeads);
  }
  const auto d_slot = Uploaded(slot), d_head = Uploaded(head);
  const PagedKv target = HndPages(cache.get(), kPage, kHeads, kDim);
  const double bytes = static_cast<double>(missed) * kPieceBytes;
  const auto copy = [&](char* to, const char* from, int64_t count) {
    Check(cudaMemcpyAsync(to, from, static_cast<size_t>(count), cudaMemcpyHostToDevice,
                          watch.stream()),
          "cudaMemcpyAsync");
  };
  const auto dispatch = [&] {
    ScatterPages(reinterpret_cast<const Bf16*>(landing.get()), d_slot.get(), d_head.get(), missed,
                 nullptr, target, watch.stream());
  };
  const std::string shape = fmt::format("{} pages of 16 KiB: ", missed);
  const double engine =
      watch.Once([&] { copy(landing.get(), staging.get(), missed * kPieceBytes); });
  const auto line = [&](const std::string& what, double seconds) {
    Print(shape + what, seconds, bytes / seconds * 1e-9, "GB/s", bytes / engine * 1e-9,
          "one copy of as much");
  };
  line("one copy of as much", engine);
  for (const int threads : {1, 4, 8}) {
    line(fmt::format("gathered by {}, one copy, dispatch", threads), watch.Once([&] {
      HostGather(pool.get(), source.data(), missed, {kPieceBytes}, staging.get(), threads);
      copy(landing.get(), staging.get(), missed * kPieceBytes);
      dispatch();
    }));
    line(fmt::format("NHD rows gathered by {}, one copy, dispatch", threads), watch.Once([&] {
      HostGather(pool.get(), nhd_source.data(), missed, nhd, staging.get(), threads);
      copy(landing.get(), staging.get(), missed * kPieceBytes);
      dispatch();
    }));
  }
  line("a copy each", watch.Once([&] {
    for (int i = 0; i < missed; ++i) {
      copy(landing.get() + i * kPieceBytes,
           pool.get() + source[static_cast<size_t>(i)] * kPieceBytes, kPieceBytes);
    }
  }));
}

void Run() {
  Stopwatch watch;
  const double memory = PrintDevice(watch);
  for (const int tokens : {8192, 32768, 131072}) MeasureRestructuring(watch, tokens, 256, memory);
  for (const int missed : {32, 192}) MeasureRecall(watch, missed);
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_restructure", stallcast::kernels::Run); }
