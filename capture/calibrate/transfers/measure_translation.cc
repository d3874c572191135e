#include "capture/calibrate/transfers/measure_translation.h"

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels/methods/pariskv.h"
#include "kernels/methods/shadowkv.h"
#include "kernels/runtime/probe.h"
#include "kernels/runtime/upload.h"
#include "models/plan/host_regions.h"
#include "models/plan/work.h"
#include "traces/common/median.h"
#include "traces/common/units.h"

namespace stallcast::capture {
namespace {

using hardware::How;
using hardware::Site;

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

// Fetches of random places of layers' pools, of others in each turn.
class Fetches {
 protected:
  // Each of so many of each row's `in_row` places of `place` elements, from the pools of so many
  // layers, of so many bytes each.
  Fetches(std::mt19937& random, const LayerPools& layers, int64_t pool, int count, int rows,
          int a_row, int64_t in_row, int64_t place)
      : rows_(rows),
        a_row_(a_row),
        in_row_(in_row),
        numbers_(Chosen(random, int64_t{kTurns} * count * rows, a_row, in_row)),
        out_(int64_t{rows} * a_row * place),
        layers_(layers),
        pool_(pool),
        count_(count),
        places_(kernels::Uploaded(std::vector<int32_t>(numbers_.begin(), numbers_.end()))) {}

  /// Seconds that fetch(pool, places [rows][a_row]) takes, with the gap before it, where the first
  /// `layers` take turns.
  template <class Fetch>
  double InTurns(Stopwatch& watch, int layers, bool the_same, const Fetch& fetch) const {
    return InTurn(watch, layers_, layers, [&](int turn, int layer) {
      const int64_t number = int64_t{the_same ? 0 : turn} * count_ + layer;
      fetch(reinterpret_cast<__nv_bfloat16*>(layers_.Pool(layer, pool_)),
            places_.get() + number * rows_ * a_row_);
    });
  }

  const int32_t rows_, a_row_;
  const int64_t in_row_;
  const std::vector<uint32_t> numbers_;
  const Buffer<__nv_bfloat16> out_;

 private:
  const LayerPools& layers_;
  const int64_t pool_;
  const int count_;
  const Buffer<int32_t> places_;
};

// Of tokens: a row's keys and values, all keys of a layer before its values.
class Tokens : Fetches {
 public:
  Tokens(std::mt19937& random, const LayerPools& layers, int64_t pool, int count, int rows,
         int a_row)
      : Fetches(random, layers, pool, count, rows, a_row, pool / (int64_t{2} * rows * kRowBytes),
                int64_t{2} * kDim),
        regions_(Regions(numbers_, int64_t{kTurns} * count, a_row, kRowBytes)) {}

  double regions() const { return regions_; }  // that one reads

  double Seconds(Stopwatch& watch, int layers, bool the_same) const {
    const kernels::TokenView to{out_.get(), int64_t{a_row_} * 2 * kDim, int64_t{2} * kDim, kDim};
    return InTurns(watch, layers, the_same, [&](__nv_bfloat16* pool, const int32_t* places) {
      const kernels::TokenView from{pool, in_row_ * kDim, kDim, rows_ * in_row_ * kDim};
      kernels::FetchTokens(from, places, nullptr, rows_, 1, a_row_, 0, 0, to, 0, kDim, kBlocks,
                           watch.stream());
    });
  }

 private:
  static constexpr int32_t kBlocks = 64;  // of 256 threads, as ParisKV has them
  double regions_;
};

// Of chunks of values, by one block of the plan's, each of whose warps has one on its way.
class Chunks : Fetches {
 public:
  Chunks(std::mt19937& random, const LayerPools& layers, int64_t pool, int count, int rows,
         int a_row)
      : Fetches(random, layers, pool, count, rows, a_row, pool / (rows * kChunkBytes),
                int64_t{kChunk} * kDim),
        missed_(kernels::Uploaded(std::vector<int32_t>(static_cast<size_t>(rows), a_row))),
        slots_(EachRow(a_row)),
        all_(EachRow(in_row_)) {}

  double rounds() const {
    return static_cast<double>(plan::ZeroCopyGather::Rounds(rows_ * a_row_ * kChunkBytes, 1));
  }

  double Seconds(Stopwatch& watch, int layers, bool the_same) const {
    const kernels::TokenView to{out_.get(), int64_t{a_row_} * kChunk * kDim, kDim, 0};
    return InTurns(watch, layers, the_same, [&](__nv_bfloat16* pool, const int32_t* places) {
      kernels::MissedChunks missed{places, slots_.get(), missed_.get(), all_.get()};
      missed.rows = rows_, missed.k = a_row_;
      missed.candidates = static_cast<int32_t>(in_row_), missed.chunk = kChunk;
      kernels::FetchValues(pool, in_row_ * kChunk, missed, to, kDim, /*blocks=*/1, watch.stream());
    });
  }

 private:
  static constexpr int32_t kChunk = 8;  // tokens, as ShadowKV has them
  static constexpr Bytes kChunkBytes = kChunk * kRowBytes;

  // The numbers below `end`, for each row.
  Buffer<int32_t> EachRow(int64_t end) const {
    std::vector<int32_t> numbers(static_cast<size_t>(rows_ * end));
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<int32_t>(static_cast<int64_t>(i) % end);
    }
    return kernels::Uploaded(numbers);
  }

  const Buffer<int32_t> missed_, slots_, all_;
};

// By the bytes of a layer's pool, the median of what of(fetches, layers) gives for a Kind of 100
// of each of so many rows.
template <class Kind, class Of>
hardware::Curve ByPool(const LayerPools& layers, unsigned seed, std::span<const int> rows,
                       const Of& of) {
  std::mt19937 random(seed);
  std::vector<double> pools, times;
  for (const int64_t pool : layers.Sizes()) {
    const int count = layers.Count(pool);
    std::vector<double> seconds;
    for (const int some : rows) {
      seconds.push_back(of(Kind(random, layers, pool, count, some, /*a_row=*/100), count));
    }
    pools.push_back(static_cast<double>(pool));
    times.push_back(std::max(Median(std::move(seconds)), 1e-12));
  }
  return {std::move(pools), std::move(times)};
}

hardware::Curve Translation(Stopwatch& watch, const LayerPools& layers,
                            const hardware::Profile& profile) {
  constexpr std::array kRows = {2, 8, 32};
  const double fixed =
      profile.handoff(Site::kKernel, Site::kKernel, How::kStream) + profile.zero_copy.start;
  return ByPool<Tokens>(layers, /*seed=*/2, kRows, [&](const Tokens& tokens, int count) {
    return (tokens.Seconds(watch, count, /*the_same=*/false) - fixed) / tokens.regions();
  });
}

// A round of a block that looks ahead, of known addresses: what more of them take longer.
double RoundAhead(Stopwatch& watch, const LayerPools& layers) {
  constexpr int kFewRows = 2, kManyRows = 16, kChunksARow = 100;
  std::mt19937 random(5);
  const auto timed = [&](int rows) {
    const Chunks chunks(random, layers, layers.Sizes().front(), kFewLayers, rows, kChunksARow);
    return std::pair(chunks.rounds(), chunks.Seconds(watch, kFewLayers, /*the_same=*/true));
  };
  const auto few = timed(kFewRows), many = timed(kManyRows);
  return std::max(many.second - few.second, 1e-9) / (many.first - few.first);
}

}  // namespace

void MeasureTranslation(Stopwatch& watch, const LayerPools& layers, hardware::Profile& profile) {
  profile.zero_copy.translation = Translation(watch, layers, profile);
  profile.zero_copy.round_ahead = RoundAhead(watch, layers);
}

}  // namespace stallcast::capture
