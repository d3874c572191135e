#include "capture/calibrate/kernels/layer_trains.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "capture/calibrate/timing/recording.h"
#include "capture/calibrate/transfers/scattered_gather.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/probe.h"
#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

using hardware::How;
using hardware::Site;

constexpr int kTrain = 32;                         // layers of a step
constexpr int64_t kAhead = 3'000'000;              // ns: what most trains take to launch
constexpr int32_t kPageTokens = 16, kBlocks = 16;  // of gathers

// Seconds of a layer among others, untraced, from the start of one to that of the next.
double TimeLayer(Stopwatch& watch, ProductLayers& layers) {
  constexpr int kFew = 8, kMany = 24, kTrials = 9;
  return Stopwatch::WithoutEnds(kFew, kMany, [&](int count) {
    return count * watch.Period(
                       count, [&](int i) { layers.Run(i, watch.stream()); }, kTrials);
  });
}

}  // namespace

LayerTrains::LayerTrains(GpuRecorder& recorder, cudaStream_t stream, ProductLayers& layers)
    : recorder_(recorder), stream_(stream), layers_(layers), stamps_(2) {}

// Records two steps: what is launched, and behind it the products, whose step it returns. The host
// is ahead by kAhead: one that others use leaves gaps between launches, as long as a layer. Not a
// HeldTrain, which what CUPTI does amid a recording can wait for.
int32_t LayerTrains::Train(const Launch& before, const Launch& launch) {
  const int32_t launches = next_step_++, products = next_step_++;
  kernels::Stamp(stamps_.get(), kAhead, stream_);
  layers_.RunLast(stream_);
  for (int layer = 0; layer < kTrain; ++layer) {
    if (before) before(layer, stream_);
    if (launch) {
      recorder_.PushOp(launches, layer);
      launch(layer, stream_);
      recorder_.PopOp();
    }
    recorder_.PushOp(products, layer);
    layers_.Run(layer, stream_);
    recorder_.PopOp();
  }
  kernels::Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  return products;
}

void LayerTrains::RecordNothing() {
  if (layers_.fits()) nothing_.push_back(Train({}, {}));
}

void LayerTrains::RecordProbe(size_t i, const Prepared& prepared) {
  if (!layers_.fits()) return;
  probes_[i] = Train(prepared.before, prepared.launch);
}

void LayerTrains::RecordGathers(const CopyEnds& ends) {
  if (!layers_.fits()) return;
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

// Mean seconds of a layer's products in a train.
double LayerTrains::Products(int32_t step, const std::map<int32_t, OpSpans>& spans) const {
  const auto train = spans.find(step);
  return train == spans.end() ? 0 : MeanTime(train->second).value_or(0);
}

double LayerTrains::Nothing(const std::map<int32_t, OpSpans>& spans) const {
  std::vector<double> seconds;
  for (const int32_t step : nothing_) seconds.push_back(Products(step, spans));
  return seconds.empty() ? 0 : Median(std::move(seconds));
}

std::optional<double> LayerTrains::SecondsOf(size_t i,
                                             const std::map<int32_t, OpSpans>& spans) const {
  const auto found = probes_.find(i);
  if (found == probes_.end()) return std::nullopt;
  const auto launches = spans.find(found->second - 1);
  return launches == spans.end() ? std::nullopt : MeanTime(launches->second);
}

std::optional<double> LayerTrains::Gap(const std::map<int32_t, OpSpans>& spans) const {
  std::vector<double> gaps;
  for (const int32_t step : nothing_) {
    const auto train = spans.find(step);
    if (train == spans.end()) continue;
    const OpSpans& layers = train->second;
    for (auto next = layers.begin(), layer = next; ++next != layers.end(); ++layer) {
      gaps.push_back(next->second.start - layer->second.end);
    }
  }
  if (gaps.empty()) return std::nullopt;
  return Median(std::move(gaps));
}

void LayerTrains::ReadGathers(const std::map<int32_t, OpSpans>& spans,
                              hardware::Profile& profile) const {
  const double alone = Nothing(spans);
  if (alone <= 0) return;
  std::vector<double> bytes, drags;
  for (const Gathered& gather : gathers_) {
    const double drag = Products(gather.step, spans) - alone;
    if (drag < kLeastDrag) continue;
    bytes.push_back(gather.bytes);
    drags.push_back(drag);
  }
  if (bytes.empty()) return;
  profile.zero_copy.drag = hardware::Curve(bytes, drags);
  profile.memory.drag_most = *std::ranges::max_element(drags);
  profile.memory.drag_share = std::min(1.0, profile.memory.drag_most / alone);
}

void MeasureKernelGap(Stopwatch& watch, ProductLayers& layers, hardware::Profile& profile) {
  // In turn, over the same weights: a half percent of a layer is all there is to be seen.
  constexpr int kRounds = 5, kTrains = 5;
  if (!layers.fits()) return;
  watch.Settle();
  std::vector<double> gaps, more;
  for (int round = 0; round < kRounds; ++round) {
    const double layer = TimeLayer(watch, layers);
    const std::unique_ptr<Recording> recording = Recording::Begin();
    if (!recording) return;
    LayerTrains trains(recording->recorder(), watch.stream(), layers);
    for (int train = 0; train < kTrains; ++train) trains.RecordNothing();
    const auto spans = DeviceSpans(recording->End());
    const std::optional<double> gap = trains.Gap(spans);
    if (!gap) continue;
    gaps.push_back(*gap);
    more.push_back((trains.Nothing(spans) + *gap - layer) / ProductLayers::kProducts);
  }
  if (gaps.empty()) return;
  const double recorded = Median(std::move(gaps));
  profile.recorder.kernel = std::max(Median(std::move(more)), 0.0);
  profile.handoff(Site::kKernel, Site::kKernel, How::kStream) =
      std::max(recorded - profile.recorder.kernel, 1e-8);
}

}  // namespace stallcast::capture
