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
#include "models/plan/host_regions.h"
#include "traces/common/median.h"
#include "traces/common/units.h"

namespace stallcast::capture {
namespace {

using kernels::Buffer;

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

// Regions that a layer's gather reads, on average: of each row's keys, and of its values as many.
double Regions(std::span<const uint32_t> numbers, int64_t gathers, int a_row, int64_t row_bytes) {
  const auto a_region = static_cast<uint32_t>(plan::kHostRegion / row_bytes);
  int64_t regions = 0;
  for (size_t at = 0; at < numbers.size(); at += static_cast<size_t>(a_row)) {
    regions += 2 * plan::Regions(numbers.subspan(at, static_cast<size_t>(a_row)), a_region);
  }
  return static_cast<double>(regions) / static_cast<double>(gathers);
}

}  // namespace

void MeasureTranslation(Stopwatch& watch, hardware::Profile& profile) {
  const Layers layers(profile);
  constexpr int32_t kDim = 128, kTokens = 100;
  constexpr int32_t kBlocks = 64;  // of 256 threads, as ParisKV has them
  constexpr std::array kRows = {2, 8, 32};
  constexpr Bytes kRowBytes = kDim * Bytes{sizeof(__nv_bfloat16)};
  const Buffer<__nv_bfloat16> out(int64_t{kRows.back()} * kTokens * 2 * kDim);
  const kernels::TokenView to{out.get(), int64_t{kTokens} * 2 * kDim, int64_t{2} * kDim, kDim};
  std::mt19937 random(2);
  std::vector<double> pools, times;
  for (int64_t pool = kSmallestLayer; pool <= layers.largest(); pool *= 2) {
    const int count = layers.Count(pool);
    std::vector<double> of_region;
    for (const int rows : kRows) {
      // All keys of a layer, then its values.
      const int64_t in_row = pool / (int64_t{2} * rows * kRowBytes);
      const std::vector<uint32_t> numbers =
          Chosen(random, int64_t{kTurns} * count * rows, kTokens, in_row);
      const Buffer<int32_t> places =
          kernels::Uploaded(std::vector<int32_t>(numbers.begin(), numbers.end()));
      const double seconds = InTurn(watch, layers, count, [&](int turn, int layer) {
        const kernels::TokenView from{reinterpret_cast<__nv_bfloat16*>(layers.Pool(layer, pool)),
                                      in_row * kDim, kDim, rows * in_row * kDim};
        const int64_t launch = int64_t{turn} * count + layer;
        kernels::FetchTokens(from, places.get() + launch * rows * kTokens, nullptr, rows, 1,
                             kTokens, 0, 0, to, 0, kDim, kBlocks, watch.stream());
      });
      of_region.push_back((seconds - profile.device_gap - profile.zero_copy_start) /
                          Regions(numbers, int64_t{kTurns} * count, kTokens, kRowBytes));
    }
    pools.push_back(static_cast<double>(pool));
    times.push_back(std::max(Median(std::move(of_region)), 1e-12));
  }
  profile.zero_copy_translation = hardware::Curve(std::move(pools), std::move(times));
  profile.zero_copy_scattered = {};  // of the profile that this one began as
}

}  // namespace stallcast::capture
