#include "capture/calibrate/measure_translation.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels/pariskv.h"
#include "kernels/probe.h"
#include "kernels/shadowkv.h"
#include "kernels/upload.h"
#include "models/plan/host_regions.h"
#include "models/plan/work.h"
#include "traces/common/median.h"
#include "traces/common/units.h"

namespace stallcast::capture {
namespace {

using kernels::Buffer;

constexpr int kLayers = LayerPools::kLayers, kTurns = 4;  // the first turn warms up
constexpr int kFewLayers = 4;  // whose addresses stay known, where they read the same again
constexpr int32_t kDim = 128;
constexpr Bytes kRowBytes = kDim * Bytes{sizeof(__nv_bfloat16)};

/// Seconds that bring(turn, layer) takes longer a layer, which enqueues on the stream, in turns
/// over `count` layers.
template <class Bring>
double InTurn(Stopwatch& watch, const LayerPools& layers, int count, const Bring& bring) {
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
    regions +=
        2 * plan::Regions(numbers.subspan(at, static_cast<size_t>(a_row)), {}, a_region).regions;
  }
  return static_cast<double>(regions) / static_cast<double>(gathers);
}

// Random tokens of layers' pools, of others in each turn, and fetches of them.
class Tokens {
 public:
  // So many of each row of so many layers with a pool of so many bytes each: all keys of a layer,
  // then its values.
  Tokens(std::mt19937& random, const LayerPools& layers, int64_t pool, int count, int rows,
         int a_row)
      : layers_(layers),
        pool_(pool),
        count_(count),
        rows_(rows),
        a_row_(a_row),
        in_row_(pool / (int64_t{2} * rows * kRowBytes)),
        out_(int64_t{rows} * a_row * 2 * kDim) {
    const int64_t gathers = int64_t{kTurns} * count;
    const std::vector<uint32_t> numbers = Chosen(random, gathers * rows, a_row, in_row_);
    places_ = kernels::Uploaded(std::vector<int32_t>(numbers.begin(), numbers.end()));
    regions_ = Regions(numbers, gathers, a_row, kRowBytes);
  }

  double regions() const { return regions_; }  // that one reads

  /// Seconds that one takes, with the gap before it, where the first `layers` take turns.
  double Seconds(Stopwatch& watch, int layers, bool the_same) const {
    return InTurn(watch, layers_, layers, [&](int turn, int layer) {
      const kernels::TokenView from{reinterpret_cast<__nv_bfloat16*>(layers_.Pool(layer, pool_)),
                                    in_row_ * kDim, kDim, rows_ * in_row_ * kDim};
      const kernels::TokenView to{out_.get(), int64_t{a_row_} * 2 * kDim, int64_t{2} * kDim, kDim};
      const int64_t gather = int64_t{the_same ? 0 : turn} * count_ + layer;
      kernels::FetchTokens(from, places_.get() + gather * rows_ * a_row_, nullptr, rows_, 1, a_row_,
                           0, 0, to, 0, kDim, kBlocks, watch.stream());
    });
  }

 private:
  static constexpr int32_t kBlocks = 64;  // of 256 threads, as ParisKV has them
  const LayerPools& layers_;
  int64_t pool_;
  int count_, rows_, a_row_;
  int64_t in_row_;
  Buffer<__nv_bfloat16> out_;
  Buffer<int32_t> places_;
  double regions_ = 0;
};

// Random chunks of layers' pools, of others in each turn, and fetches of them by one block of the
// plan's, each of whose warps has one chunk on its way.
class Chunks {
 public:
  // So many of each row of so many layers with a pool of so many bytes each, of values alone.
  Chunks(std::mt19937& random, const LayerPools& layers, int64_t pool, int count, int rows,
         int a_row)
      : layers_(layers),
        pool_(pool),
        count_(count),
        rows_(rows),
        a_row_(a_row),
        in_row_(static_cast<int32_t>(pool / (rows * kChunkBytes))),
        out_(int64_t{rows} * a_row * kChunk * kDim),
        missed_(kernels::Uploaded(std::vector<int32_t>(static_cast<size_t>(rows), a_row))) {
    const std::vector<uint32_t> numbers =
        Chosen(random, int64_t{kTurns} * count * rows, a_row, in_row_);
    chosen_ = kernels::Uploaded(std::vector<int32_t>(numbers.begin(), numbers.end()));
    std::vector<int32_t> slots(static_cast<size_t>(rows) * static_cast<size_t>(a_row));
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i) % a_row;
    slots_ = kernels::Uploaded(slots);
    std::vector<int32_t> all(static_cast<size_t>(rows) * static_cast<size_t>(in_row_));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i) % in_row_;
    all_ = kernels::Uploaded(all);
  }

  double rounds() const {
    return static_cast<double>(plan::ZeroCopyGather::Rounds(rows_ * a_row_ * kChunkBytes, 1));
  }

  /// As Tokens::Seconds().
  double Seconds(Stopwatch& watch, int layers, bool the_same) const {
    return InTurn(watch, layers_, layers, [&](int turn, int layer) {
      const int64_t gather = int64_t{the_same ? 0 : turn} * count_ + layer;
      const kernels::MissedChunks missed{chosen_.get() + gather * rows_ * a_row_,
                                         slots_.get(),
                                         missed_.get(),
                                         all_.get(),
                                         rows_,
                                         a_row_,
                                         in_row_,
                                         kChunk,
                                         0};
      const kernels::TokenView to{out_.get(), int64_t{a_row_} * kChunk * kDim, kDim, 0};
      kernels::FetchValues(reinterpret_cast<__nv_bfloat16*>(layers_.Pool(layer, pool_)),
                           int64_t{in_row_} * kChunk, missed, to, kDim, /*blocks=*/1,
                           watch.stream());
    });
  }

 private:
  static constexpr int32_t kChunk = 8;  // tokens, as ShadowKV has them
  static constexpr Bytes kChunkBytes = kChunk * kRowBytes;
  static_assert(kChunkBytes == plan::ZeroCopyGather::kBytesAWarp);
  const LayerPools& layers_;
  int64_t pool_;
  int count_;
  int32_t rows_, a_row_, in_row_;
  Buffer<__nv_bfloat16> out_;
  Buffer<int32_t> missed_, chosen_, slots_, all_;
};

// By the bytes of a layer's pool, the median of what of(fetches, layers) gives for Fetches of 100
// of each of so many rows.
template <class Fetches, class Of>
hardware::Curve ByPool(const LayerPools& layers, unsigned seed, std::span<const int> rows,
                       const Of& of) {
  std::mt19937 random(seed);
  std::vector<double> pools, times;
  for (const int64_t pool : layers.Sizes()) {
    const int count = layers.Count(pool);
    std::vector<double> seconds;
    for (const int some : rows) {
      seconds.push_back(of(Fetches(random, layers, pool, count, some, /*a_row=*/100), count));
    }
    pools.push_back(static_cast<double>(pool));
    times.push_back(std::max(Median(std::move(seconds)), 1e-12));
  }
  return {std::move(pools), std::move(times)};
}

hardware::Curve Translation(Stopwatch& watch, const LayerPools& layers,
                            const hardware::Profile& profile) {
  constexpr std::array kRows = {2, 8, 32};
  const double fixed = profile.device_gap + profile.zero_copy_start;
  return ByPool<Tokens>(layers, /*seed=*/2, kRows, [&](const Tokens& tokens, int count) {
    return (tokens.Seconds(watch, count, /*the_same=*/false) - fixed) / tokens.regions();
  });
}

// By a block each of whose warps needs an address that is not known, round by round.
hardware::Curve TranslationWait(Stopwatch& watch, const LayerPools& layers) {
  constexpr std::array kRows = {2, 8};
  return ByPool<Chunks>(layers, /*seed=*/4, kRows, [&](const Chunks& chunks, int count) {
    const double known = chunks.Seconds(watch, kFewLayers, /*the_same=*/true);
    const double anew = chunks.Seconds(watch, count, /*the_same=*/false);
    return (anew - known) / chunks.rounds();
  });
}

// Where few layers take turns nothing is translated anew that was read in the turn before; where
// all read others, everything is.
hardware::Curve Kept(Stopwatch& watch, const LayerPools& layers) {
  constexpr int kRows = 8;
  constexpr double kLeast = 1e-3;
  const int64_t pool = layers.bytes() / kLayers;
  std::mt19937 random(3);
  std::map<double, double> by_regions;
  for (const int a_row : {100, 200}) {
    const Tokens tokens(random, layers, pool, kLayers, kRows, a_row);
    const double anew = tokens.Seconds(watch, kLayers, /*the_same=*/false);
    const double known = tokens.Seconds(watch, kFewLayers, /*the_same=*/true);
    for (const int count : {8, 16, 20, 24, 28, kLayers}) {
      const double seconds = tokens.Seconds(watch, count, /*the_same=*/true);
      // On a host with little memory all addresses may stay known.
      by_regions[count * tokens.regions()] =
          anew > known ? std::clamp((anew - seconds) / (anew - known), kLeast, 1.0) : 1.0;
    }
  }
  std::vector<double> regions, kept;
  for (const auto& [some, share] : by_regions) {
    regions.push_back(some);
    // More regions between leave no more of them known.
    kept.push_back(kept.empty() ? share : std::min(share, kept.back()));
  }
  return {std::move(regions), std::move(kept)};
}

}  // namespace

void MeasureTranslation(Stopwatch& watch, const LayerPools& layers, hardware::Profile& profile) {
  profile.zero_copy_translation = Translation(watch, layers, profile);
  profile.zero_copy_translation_wait = TranslationWait(watch, layers);
  profile.zero_copy_kept = Kept(watch, layers);
  profile.zero_copy_scattered = {};  // of the profile that this one began as
}

}  // namespace stallcast::capture
