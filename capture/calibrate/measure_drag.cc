#include "capture/calibrate/measure_drag.h"

#include <algorithm>
#include <array>
#include <utility>

#include "capture/calibrate/scattered_gather.h"
#include "kernels/fill.h"
#include "kernels/probe.h"
#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

using kernels::Buffer;
using Bf16 = __nv_bfloat16;

// A layer's products as Llama-3.1-8B has them, and its last one of a step.
struct Product {
  int64_t n, k;
};
constexpr std::array<Product, 4> kProducts = {
    {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}}};
constexpr Product kLast = {128256, 4096};
constexpr int64_t kLayerElements = [] {
  int64_t sum = 0;
  for (const Product& product : kProducts) sum += product.n * product.k;
  return sum;
}();
constexpr int64_t kMostLayers = 32, kFewestLayers = 6;  // which exceed any cache, and hold kLast
static_assert(kFewestLayers * kLayerElements > kLast.n * kLast.k);
constexpr int kTrain = 32;             // layers of a step, whether their weights are apart or not
constexpr int64_t kAhead = 3'000'000;  // ns: what most trains take to launch
// What a layer's products take longer must exceed the noise of a train's mean.
constexpr double kLeast = 0.4e-6;
constexpr int32_t kPageTokens = 16, kBlocks = 16;  // of gathers

}  // namespace

DragTrains::DragTrains(GpuRecorder& recorder, cudaStream_t stream, int32_t first_step)
    : recorder_(recorder), stream_(stream), next_step_(first_step) {
  size_t free = 0, all = 0;
  kernels::Check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  const int64_t fit =
      static_cast<int64_t>(free) / 2 / (kLayerElements * static_cast<int64_t>(sizeof(Bf16)));
  if (fit < kFewestLayers) return;
  layers_ = std::min(fit, kMostLayers);
  weights_ = Buffer<Bf16>(layers_ * kLayerElements);
  input_ = Buffer<Bf16>(kProducts[3].k);
  output_ = Buffer<Bf16>(kLast.n);
  stamps_ = Buffer<uint64_t>(2);
  kernels::FillRandom(weights_.get(), weights_.size(), 1, 2, stream_);
  kernels::FillRandom(input_.get(), input_.size(), 1, 3, stream_);
  kernels::Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

// Records two steps: what is launched, and behind it the products, whose step it returns. The host
// is ahead by kAhead: one that others use leaves gaps between launches, as long as a layer. Not a
// HeldTrain, which what CUPTI does amid a recording can wait for.
int32_t DragTrains::Train(const Launch& before, const Launch& launch) {
  const int32_t launches = next_step_++, products = next_step_++;
  kernels::Stamp(stamps_.get(), kAhead, stream_);
  // Over the weights of the last layers: those of the first ones are not left in the cache.
  gemm_.Run(input_.get(), weights_.get() + layers_ * kLayerElements - kLast.n * kLast.k,
            output_.get(), 1, kLast.n, kLast.k, stream_);
  for (int layer = 0; layer < kTrain; ++layer) {
    if (before) before(layer, stream_);
    if (launch) {
      recorder_.PushOp(launches, layer);
      launch(layer, stream_);
      recorder_.PopOp();
    }
    recorder_.PushOp(products, layer);
    const Bf16* weights = weights_.get() + layer % layers_ * kLayerElements;
    for (const Product& product : kProducts) {
      gemm_.Run(input_.get(), weights, output_.get(), 1, product.n, product.k, stream_);
      weights += product.n * product.k;
    }
    recorder_.PopOp();
  }
  kernels::Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  return products;
}

void DragTrains::RecordNothing() {
  if (fits()) nothing_.push_back(Train({}, {}));
}

void DragTrains::RecordProbe(size_t i, const Prepared& prepared) {
  if (!fits()) return;
  Recorded& recorded = probes_[i];
  if (prepared.before) recorded.without = Train(prepared.before, {});
  recorded.with = Train(prepared.before, prepared.launch);
}

void DragTrains::RecordGathers(const CopyEnds& ends) {
  if (!fits()) return;
  constexpr int64_t kMost = int64_t{8} << 20;
  const ScatteredGather all(ends, kPageTokens, /*rows=*/false, kMost);
  for (int64_t bytes = kMost / 32; bytes <= kMost; bytes *= 2) {
    const auto gather = [&](int layer, cudaStream_t stream) {
      all.Run(kBlocks, static_cast<int32_t>(all.pieces() * bytes / kMost), stream, 0,
              layer * kMost);
    };
    gathers_.push_back({static_cast<double>(bytes), Train({}, gather)});
  }
}

// Mean seconds of a layer's products in a train; one that others on the machine held up does not
// count.
double DragTrains::Products(int32_t step, const std::map<int32_t, OpSpans>& spans) const {
  const auto train = spans.find(step);
  if (train == spans.end()) return 0;
  const double most = 1.3 * MedianTime(train->second).value_or(0);
  double sum = 0;
  int64_t count = 0;
  for (const auto& [layer, span] : train->second) {
    if (span.end - span.start > most) continue;
    sum += span.end - span.start;
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : 0;
}

double DragTrains::Nothing(const std::map<int32_t, OpSpans>& spans) const {
  std::vector<double> seconds;
  for (const int32_t step : nothing_) seconds.push_back(Products(step, spans));
  return seconds.empty() ? 0 : Median(std::move(seconds));
}

std::optional<double> DragTrains::SecondsOf(size_t i,
                                            const std::map<int32_t, OpSpans>& spans) const {
  const auto found = probes_.find(i);
  if (found == probes_.end()) return std::nullopt;
  const auto launches = spans.find(found->second.with - 1);
  return launches == spans.end() ? std::nullopt : MedianTime(launches->second);
}

std::optional<double> DragTrains::Gap(const std::map<int32_t, OpSpans>& spans) const {
  double gaps = 0;
  int64_t pairs = 0;
  for (const auto& [i, recorded] : probes_) {
    const auto products = spans.find(recorded.with), launches = spans.find(recorded.with - 1);
    // Else another kernel is between the two.
    if (recorded.without >= 0 || products == spans.end() || launches == spans.end()) continue;
    for (const auto& [layer, span] : launches->second) {
      const auto before = products->second.find(layer - 1);
      if (before == products->second.end()) continue;
      gaps += span.start - before->second.end;
      ++pairs;
    }
  }
  if (pairs == 0) return std::nullopt;
  return gaps / static_cast<double>(pairs);
}

double DragTrains::DragOf(size_t i, const std::map<int32_t, OpSpans>& spans) const {
  const auto found = probes_.find(i);
  if (found == probes_.end()) return 0;
  const Recorded& recorded = found->second;
  const double without = recorded.without >= 0 ? Products(recorded.without, spans) : Nothing(spans);
  const double drag = Products(recorded.with, spans) - without;
  return drag < kLeast ? 0 : drag;
}

void DragTrains::ReadGathers(const std::map<int32_t, OpSpans>& spans,
                             hardware::Profile& profile) const {
  profile.zero_copy_drag = {};
  profile.memory_drag_most = profile.memory_drag_share = 0;
  const double alone = Nothing(spans);
  if (alone <= 0) return;
  std::vector<double> bytes, drags;
  for (const Gathered& gather : gathers_) {
    const double drag = Products(gather.step, spans) - alone;
    if (drag < kLeast) continue;
    bytes.push_back(gather.bytes);
    drags.push_back(drag);
  }
  if (bytes.empty()) return;
  profile.zero_copy_drag = hardware::Curve(bytes, drags);
  profile.memory_drag_most = *std::ranges::max_element(drags);
  profile.memory_drag_share = std::min(1.0, profile.memory_drag_most / alone);
}

}  // namespace stallcast::capture
