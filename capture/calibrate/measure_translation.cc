#include "capture/calibrate/measure_translation.h"

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels/executor/host_pool.h"
#include "kernels/pariskv.h"
#include "kernels/probe.h"
#include "kernels/upload.h"
#include "models/hardware/cost_model.h"
#include "models/plan/host_regions.h"
#include "models/plan/work.h"
#include "traces/common/median.h"
#include "traces/common/units.h"

namespace stallcast::capture {
namespace {

using kernels::Buffer;
using kernels::Check;

constexpr int kLayers = 32, kTurns = 4;  // the first turn warms up
constexpr int64_t kSmallestLayer = int64_t{32} << 20, kLargestLayer = int64_t{2} << 30;

/// The pools of layers, and weights that are read between what two of them bring.
class Layers {
 public:
  explicit Layers(const hardware::Profile& profile) {
    while (static_cast<double>(bytes_) > profile.host_bytes / 4) bytes_ /= 2;
    host_ = memory_.Get(bytes_);
  }

  int64_t largest() const { return std::min(kLargestLayer, bytes_); }
  /// Layers that have pools of so many bytes.
  int Count(int64_t pool) const {
    return static_cast<int>(std::min<int64_t>(kLayers, bytes_ / pool));
  }
  std::byte* Pool(int layer, int64_t bytes) const { return host_ + layer * bytes; }

  /// Those of a layer.
  void ReadWeights(int layer, cudaStream_t stream) const {
    kernels::ReadOnce(weights_.get() + layer % kWeights * kLayerWeights, kLayerWeights, sink_.get(),
                      stream);
  }

 private:
  static constexpr int64_t kLayerWeights = int64_t{400} << 20, kWeights = 8;
  kernels::HostPool memory_;
  int64_t bytes_ = int64_t{16} << 30;
  std::byte* host_ = nullptr;
  Buffer<std::byte> weights_{kWeights * kLayerWeights};
  Buffer<int> sink_{1};
};

/// Seconds that bring(turn, layer) takes longer a layer, which enqueues on the stream, in turns
/// over `count` layers.
template <class Bring>
double InTurn(Stopwatch& watch, const Layers& layers, int count, const Bring& bring) {
  const auto read = [&](int layer) { layers.ReadWeights(layer, watch.stream()); };
  const double alone = watch.Period(count, read, kTurns - 1);
  int turn = 0;
  const auto both = [&](int layer) {
    read(layer);
    bring(turn, layer);
    if (layer == count - 1) ++turn;
  };
  return watch.Period(count, both, kTurns - 1) - alone;
}

// Numbers below `end`, of each of `rows` so many in ascending order, as they are chosen.
std::vector<uint32_t> Chosen(std::mt19937& random, int64_t rows, int a_row, int64_t end) {
  std::vector<uint32_t> numbers;
  numbers.reserve(static_cast<size_t>(rows * a_row));
  for (int64_t row = 0; row < rows; ++row) {
    for (int i = 0; i < a_row; ++i) {
      numbers.push_back(static_cast<uint32_t>(random() % static_cast<uint64_t>(end)));
    }
    std::sort(numbers.end() - a_row, numbers.end());
  }
  return numbers;
}

// Of the tokens of a layer's gather, in each row so many, in so many turns of all layers.
class Places {
 public:
  Places(std::mt19937& random, int layers, int rows, int a_row, int64_t in_row)
      : layers_(layers),
        rows_(rows),
        a_row_(a_row),
        numbers_(Chosen(random, int64_t{kTurns} * layers * rows, a_row, in_row)),
        on_device_(kernels::Uploaded(std::vector<int32_t>(numbers_.begin(), numbers_.end()))) {}

  const int32_t* Of(int turn, int layer) const {
    return on_device_.get() + (int64_t{turn} * layers_ + layer) * rows_ * a_row_;
  }

  struct Mean {
    double read = 0, anew = 0;
  };
  /// Regions of a layer's keys and values, over all turns but the first.
  Mean Regions(int64_t row_bytes) const {
    const auto a_region = static_cast<uint32_t>(plan::kHostRegion / row_bytes);
    const int64_t of_turn = int64_t{layers_} * rows_;
    Mean mean;
    for (int64_t row = of_turn; row < kTurns * of_turn; ++row) {
      const plan::HostRegions regions = plan::RegionsOf(Row(row), Row(row - of_turn), a_region);
      mean.read += static_cast<double>(regions.read);
      mean.anew += static_cast<double>(regions.anew);
    }
    const double a_layer = 2.0 / ((kTurns - 1) * layers_);  // keys, and as many of values
    return {mean.read * a_layer, mean.anew * a_layer};
  }

 private:
  std::span<const uint32_t> Row(int64_t row) const {
    return std::span(numbers_).subspan(static_cast<size_t>(row * a_row_),
                                       static_cast<size_t>(a_row_));
  }

  int layers_, rows_, a_row_;
  std::vector<uint32_t> numbers_;  // [turn][layer][row][a_row]
  Buffer<int32_t> on_device_;
};

void MeasureTokens(Stopwatch& watch, const Layers& layers, hardware::Profile& profile) {
  constexpr int32_t kDim = 128, kTokens = 100;
  constexpr int32_t kBlocks = 64;        // of 256 threads, as ParisKV has them
  constexpr int32_t kGatherBlocks = 16;  // of 1,024 threads, as many
  constexpr std::array kRows = {2, 8, 32};
  constexpr Bytes kRowBytes = kDim * Bytes{sizeof(__nv_bfloat16)};
  const Buffer<__nv_bfloat16> out(int64_t{kRows.back()} * kTokens * 2 * kDim);
  const kernels::TokenView to{out.get(), int64_t{kTokens} * 2 * kDim, 2 * kDim, kDim};
  const hardware::CostModel near_each_other(profile);
  std::mt19937 random(2);
  std::vector<double> pools, read, anew;
  for (int64_t pool = kSmallestLayer; pool <= layers.largest(); pool *= 2) {
    const int count = layers.Count(pool);
    std::vector<double> of_region, of_new_region;
    for (const int rows : kRows) {
      // All keys of a layer, then its values.
      const int64_t in_row = pool / (2 * rows * kRowBytes);
      const Places places(random, count, rows, kTokens, in_row);
      const auto fetch = [&](int turn, int layer) {
        const kernels::TokenView from{reinterpret_cast<__nv_bfloat16*>(layers.Pool(layer, pool)),
                                      in_row * kDim, kDim, rows * in_row * kDim};
        kernels::FetchTokens(from, places.Of(turn, layer), nullptr, rows, 1, kTokens, 0, 0, to, 0,
                             kDim, kBlocks, watch.stream());
      };
      const double again = InTurn(watch, layers, count, [&](int, int layer) { fetch(0, layer); });
      const double others = InTurn(watch, layers, count, fetch);
      const Picoseconds near = near_each_other
                                   .Cost(plan::ZeroCopyGather{.pieces = int64_t{2} * rows * kTokens,
                                                              .piece_bytes = kRowBytes,
                                                              .blocks = kGatherBlocks})
                                   .Alone();
      const Places::Mean regions = places.Regions(kRowBytes);
      of_region.push_back((again - profile.device_gap - Seconds(near)) / regions.read);
      of_new_region.push_back((others - again) / regions.anew);
    }
    pools.push_back(static_cast<double>(pool));
    read.push_back(std::max(Median(std::move(of_region)), 1e-12));
    anew.push_back(std::max(Median(std::move(of_new_region)), 1e-12));
  }
  profile.zero_copy_translation = hardware::Curve(pools, std::move(read));
  profile.zero_copy_translation_anew = hardware::Curve(std::move(pools), std::move(anew));
  profile.zero_copy_scattered = {};  // of the profile that this one began as
}

void MeasurePages(Stopwatch& watch, const CopyEnds& ends, const Layers& layers,
                  hardware::Profile& profile) {
  constexpr int64_t kPage = 16384, kHeads = 8;
  constexpr int kPagesAHead = 32, kCopies = kHeads * kPagesAHead;
  const Buffer<std::byte> cache(kLayers * kCopies * kPage);
  // The same pages over and over, as copies are calibrated.
  int64_t again = 0;
  const double known = watch.Period(
      kCopies, [&](int) { ends.CopyPage(again++ % kCopies, kPage, true, watch.stream()); });
  std::mt19937 random(3);
  std::vector<double> pools, longer;
  for (int64_t pool = kSmallestLayer; pool <= layers.largest(); pool *= 2) {
    const int count = layers.Count(pool);
    std::vector<double> seconds;
    for (int turn = 0; turn < kTurns; ++turn) {
      const std::vector<uint32_t> pages =
          Chosen(random, count * kHeads, kPagesAHead, pool / kPage / kHeads);
      for (int layer = 0; layer < count; ++layer) {
        layers.ReadWeights(layer, watch.stream());
        watch.Finish();
        seconds.push_back(watch.PeriodBeside(kCopies, [&](int i) {
          const int64_t head = i / kPagesAHead, at = int64_t{layer} * kCopies + i;
          const int64_t page = pages[static_cast<size_t>(at)];
          Check(cudaMemcpyAsync(cache.get() + at * kPage,
                                layers.Pool(layer, pool) + (page * kHeads + head) * kPage, kPage,
                                cudaMemcpyHostToDevice, watch.stream()),
                "cudaMemcpyAsync");
        }));
        watch.Finish();
      }
    }
    pools.push_back(static_cast<double>(pool));
    longer.push_back(std::max(Median(std::move(seconds)) - known, 1e-12));
  }
  profile.copy_h2d_translation = hardware::Curve(std::move(pools), std::move(longer));
}

}  // namespace

void MeasureTranslation(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile) {
  const Layers layers(profile);
  MeasureTokens(watch, layers, profile);
  MeasurePages(watch, ends, layers, profile);
}

}  // namespace stallcast::capture
