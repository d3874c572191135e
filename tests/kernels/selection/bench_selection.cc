// How fast selection is: each kernel alone and scores + pooling + top-k in one CUDA graph, beside
// the rate at which the same device copies. Buffers rotate so that summaries do not come from L2.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/selection/selection.h"
#include "tests/kernels/measure.h"

namespace stallcast::kernels {
namespace {

constexpr int kHeadDim = 128;
constexpr int kGroup = 4;
constexpr int kPageTokens = 32;

double g_copy_rate = 0;  // bytes read and written, GB/s

void Print(const std::string& what, double bytes, double microseconds) {
  const double rate = bytes / microseconds / 1e3;
  std::printf("%-58s %9.2f us %10.3f MB %8.0f GB/s %6.1f %%\n", what.c_str(), microseconds,
              bytes / 1e6, rate, 100 * rate / g_copy_rate);
}

void MeasureCopy(Stopwatch& watch) {
  constexpr int64_t kBytes = int64_t{2} << 30;
  const Buffer<uint8_t> from(kBytes), to(kBytes);
  const double microseconds =
      1e6 * watch.InStream(
                [&](int) {
                  Check(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice,
                                        watch.stream()),
                        "cudaMemcpyAsync");
                },
                2);
  g_copy_rate = 2.0 * kBytes / microseconds / 1e3;
  Print("copy of 2 GiB (yardstick)", 2.0 * kBytes, microseconds);
}

void MeasureSelection(Stopwatch& watch, int rows, int pages, int k) {
  const int64_t elements = int64_t{rows} * pages * 2 * kHeadDim;
  const double bytes = 2.0 * static_cast<double>(elements);
  const int copies = std::max(2, static_cast<int>(256e6 / bytes));
  const auto summaries = RandomOnDevice(copies * elements);
  const auto query = RandomOnDevice(int64_t{rows} * kGroup * kHeadDim);
  const Buffer<float> scores(int64_t{rows} * kGroup * pages);
  const Buffer<float> score_workspace(ScoreWorkspace(rows, kGroup, pages));
  const Buffer<uint8_t> workspace(std::max<int64_t>(1, TopKWorkspace(rows, pages, k)));
  const Buffer<int32_t> ids(int64_t{rows} * k), missed_unit(int64_t{rows} * k),
      missed_slot(int64_t{rows} * k), missed(rows), slot_unit(int64_t{rows} * k);
  Check(cudaMemset(slot_unit.get(), 0xff, static_cast<size_t>(slot_unit.bytes())), "cudaMemset");
  const auto score = [&](int i, Pooling pooling) {
    Score(query.get(), summaries.get() + i % copies * elements, rows, kGroup, kHeadDim, 2, 0, pages,
          pages, pooling, 1 / std::sqrt(static_cast<float>(kHeadDim)), scores.get(),
          score_workspace.get(), watch.stream());
  };
  const auto top_k = [&] {
    TopK(scores.get(), rows, pages, k, ids.get(), workspace.get(), watch.stream());
  };
  const auto assign = [&] {
    AssignSlots(ids.get(), rows, k, k, slot_unit.get(), missed_unit.get(), missed_slot.get(),
                missed.get(), nullptr, {}, watch.stream());
  };
  const std::string shape = std::to_string(rows) + " x " + std::to_string(pages) + " pages, k " +
                            std::to_string(k) + ": ";
  const int calls = 64;
  const double score_bytes = 4.0 * rows * pages;
  Print(shape + "scores + pooling + top-k", bytes,
        1e6 * watch.InGraph(
                  [&](int i) {
                    score(i, Pooling::kSoftmaxMean);
                    top_k();
                  },
                  calls));
  Print(shape + "the same, and slots", bytes,
        1e6 * watch.InGraph(
                  [&](int i) {
                    score(i, Pooling::kSoftmaxMean);
                    top_k();
                    assign();
                  },
                  calls));
  Print(shape + "scores + pooling (raw mean) + top-k", bytes,
        1e6 * watch.InGraph(
                  [&](int i) {
                    score(i, Pooling::kRawMean);
                    top_k();
                  },
                  calls));
  Print(shape + "scores, not pooled", bytes,
        1e6 * watch.InGraph([&](int i) { score(i, Pooling::kNone); }, calls));
  Print(shape + "scores, raw mean", bytes,
        1e6 * watch.InGraph([&](int i) { score(i, Pooling::kRawMean); }, calls));
  Print(shape + "scores, softmax mean", bytes,
        1e6 * watch.InGraph([&](int i) { score(i, Pooling::kSoftmaxMean); }, calls));
  Print(shape + "top-k", score_bytes, 1e6 * watch.InGraph([&](int) { top_k(); }, calls));
  Print(shape + "slots", 8.0 * rows * k, 1e6 * watch.InGraph([&](int) { assign(); }, calls));
}

void MeasureSummaries(Stopwatch& watch, int rows, int pages) {
  const int64_t elements = int64_t{pages} * 2 * kPageTokens * rows * kHeadDim;
  const auto data = RandomOnDevice(elements);
  std::vector<int32_t> slots;
  for (int row = 0; row < rows; ++row) {
    for (int page = 0; page < pages; ++page) slots.push_back(page);
  }
  const auto device_slots = Uploaded(slots);
  const Buffer<__nv_bfloat16> summaries(int64_t{rows} * pages * 2 * kHeadDim);
  const PagedKv nhd = NhdPages(data.get(), kPageTokens, rows, kHeadDim);
  for (const auto& [kind, name] :
       {std::pair{SummaryKind::kMinMax, "min-max"}, std::pair{SummaryKind::kCuboidMean, "cuboid"},
        std::pair{SummaryKind::kMean, "mean"}}) {
    const double microseconds =
        1e6 * watch.InGraph(
                  [&, kind = kind](int) {
                    Summarize(kind, nhd, device_slots.get(), pages, 0, pages, rows, summaries.get(),
                              pages, watch.stream());
                  },
                  8);
    const double written = (kind == SummaryKind::kMean ? 2.0 : 4.0) * rows * pages * kHeadDim;
    Print("summaries (" + std::string(name) + ") of " + std::to_string(rows) + " x " +
              std::to_string(pages) + " pages of 32",
          static_cast<double>(elements) + written, microseconds);
  }
}

void MeasureSimilarity(Stopwatch& watch, int rows) {
  const int64_t elements = int64_t{rows} * kGroup * kHeadDim;
  const auto query = RandomOnDevice(elements), previous = RandomOnDevice(elements);
  const Buffer<float> similarity(rows);
  const Buffer<int32_t> flags(rows), any(1);
  Print("similarity of " + std::to_string(rows) + " x 4 queries",
        4.0 * static_cast<double>(elements),
        1e6 * watch.InGraph(
                  [&](int) {
                    QuerySimilarity(query.get(), previous.get(), rows, kGroup, kHeadDim, 0.9f,
                                    similarity.get(), flags.get(), any.get(), watch.stream());
                  },
                  64));
}

void Run() {
  cudaDeviceProp device;
  Check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  std::printf("%s; medians; share of the rate of a copy, read and written\n", device.name);
  Stopwatch watch;
  MeasureCopy(watch);
  MeasureSelection(watch, 8, 4096, 64);
  MeasureSelection(watch, 8, 1024, 64);
  MeasureSelection(watch, 64, 1024, 64);
  MeasureSelection(watch, 32, 4096, 64);
  MeasureSelection(watch, 8, 131072, 2048);
  MeasureSummaries(watch, 8, 4096);
  MeasureSimilarity(watch, 8);
  MeasureSimilarity(watch, 64);
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_selection", stallcast::kernels::Run); }
