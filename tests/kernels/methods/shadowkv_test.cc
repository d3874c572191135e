// ShadowKV's kernels against the policy's own function, exact moves, and double precision.
#include "kernels/methods/shadowkv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "models/methods/shadowkv/policy.h"
#include "tests/kernels/on_device.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using Bf16 = __nv_bfloat16;

std::vector<float> Widen(const Bf16* from, int64_t count) {
  std::vector<float> wide(static_cast<size_t>(count));
  std::transform(from, from + count, wide.begin(), [](Bf16 x) { return __bfloat162float(x); });
  return wide;
}

class ShadowKv : public OnDevice {
 protected:
  // `count` of 0 .. all - 1, ascending.
  std::vector<int32_t> Some(int all, int count) {
    std::vector<int32_t> numbers(static_cast<size_t>(all));
    std::iota(numbers.begin(), numbers.end(), 0);
    std::shuffle(numbers.begin(), numbers.end(), random_);
    numbers.resize(static_cast<size_t>(count));
    std::sort(numbers.begin(), numbers.end());
    return numbers;
  }
};

TEST_F(ShadowKv, ChunksAreSummarizedAsThePolicyDoes) {
  struct Shape {
    int rows, chunks, chunk, dim;
  };
  for (const Shape& s : {Shape{3, 41, 8, 128}, {8, 7, 32, 64}, {1, 1, 1, 128}, {5, 9, 5, 64}}) {
    SCOPED_TRACE(testing::Message() << s.chunks << " x " << s.chunk << ", " << s.dim);
    // [token][row][key, value], and tokens past the last chunk.
    const int64_t tokens = int64_t{s.chunks} * s.chunk + 3;
    auto data = RandomBf16(random_, tokens * s.rows * 2 * s.dim);
    // Keys of zeros have no direction.
    for (int t = 0; t < s.chunk; ++t) {
      std::fill_n(data.begin() + int64_t{t} * s.rows * 2 * s.dim, s.dim, __float2bfloat16(0));
    }
    const auto keys = Uploaded(data);
    auto landmarks = Poisoned<Bf16>(int64_t{s.rows} * s.chunks * s.dim);
    auto cohesion = Poisoned<float>(int64_t{s.rows} * s.chunks);
    SummarizeChunks({keys.get(), int64_t{2} * s.dim, int64_t{2} * s.rows * s.dim, s.dim}, s.rows,
                    s.chunks, s.chunk, s.dim, landmarks.get(), cohesion.get(), nullptr);
    const auto got = ToHost(landmarks);
    const auto got_cohesion = ToHost(cohesion);
    for (int row = 0; row < s.rows; ++row) {
      for (int chunk = 0; chunk < s.chunks; ++chunk) {
        std::vector<float> own, mean(static_cast<size_t>(s.dim));
        for (int t = chunk * s.chunk; t < (chunk + 1) * s.chunk; ++t) {
          const auto key = Widen(&data[(int64_t{t} * s.rows + row) * 2 * s.dim], s.dim);
          own.insert(own.end(), key.begin(), key.end());
        }
        const float least = methods::SummarizeChunk(own.data(), s.chunk, s.dim, mean.data());
        const int64_t at = int64_t{row} * s.chunks + chunk;
        ASSERT_EQ(Widen(&got[at * s.dim], s.dim), mean) << row << " " << chunk;
        ASSERT_NEAR(got_cohesion[at], least, 1e-5) << row << " " << chunk;
      }
    }
  }
}

TEST_F(ShadowKv, CandidatesAreTheChunksThatAreNoOutliers) {
  constexpr int kRows = 5, kChunks = 300, kDim = 128;
  const auto landmarks = RandomBf16(random_, int64_t{kRows} * kChunks * kDim);
  const auto d_landmarks = Uploaded(landmarks);
  for (const int outliers : {0, 1, 48, 299}) {
    const int candidates = std::max(1, kChunks - outliers - 7);
    std::vector<int32_t> outlier;
    for (int row = 0; row < kRows; ++row) {
      const auto own = Some(kChunks, outliers);
      outlier.insert(outlier.end(), own.begin(), own.end());
    }
    const auto d_outlier = Uploaded(outlier.empty() ? std::vector<int32_t>(1) : outlier);
    auto chunk_of = Poisoned<int32_t>(int64_t{kRows} * candidates);
    auto kept = Poisoned<Bf16>(int64_t{kRows} * candidates * kDim);
    KeepCandidates(d_landmarks.get(), kChunks, d_outlier.get(), outliers, kRows, candidates, kDim,
                   chunk_of.get(), kept.get(), nullptr);
    const auto got = ToHost(chunk_of);
    const auto got_kept = ToHost(kept);
    for (int row = 0; row < kRows; ++row) {
      const std::set<int32_t> out(outlier.begin() + int64_t{row} * outliers,
                                  outlier.begin() + int64_t{row + 1} * outliers);
      int chunk = 0;
      for (int i = 0; i < candidates; ++i, ++chunk) {
        while (out.contains(chunk)) ++chunk;
        const int64_t at = int64_t{row} * candidates + i;
        ASSERT_EQ(got[at], chunk) << outliers << " outliers, row " << row;
        ASSERT_EQ(Widen(&got_kept[at * kDim], kDim),
                  Widen(&landmarks[(int64_t{row} * kChunks + chunk) * kDim], kDim));
      }
    }
  }
  EXPECT_THROW(KeepCandidates(d_landmarks.get(), 10, nullptr, 4, 1, 7, kDim, nullptr, nullptr, {}),
               Error);
}

// A selection of random candidates, of which rows miss different numbers: none, some, and all.
struct Selection {
  Selection(std::mt19937& random, int of_rows, int of_k, int of_candidates, int of_chunk, int of_at)
      : rows(of_rows), k(of_k), candidates(of_candidates), chunk(of_chunk), at(of_at) {
    for (int row = 0; row < rows; ++row) {
      count.push_back(row == 0 ? k : row == 1 ? 0 : static_cast<int>(random() % (k + 1)));
      std::vector<int32_t> units(static_cast<size_t>(candidates)), slots(static_cast<size_t>(k));
      std::iota(units.begin(), units.end(), 0);
      std::iota(slots.begin(), slots.end(), 0);
      std::shuffle(units.begin(), units.end(), random);
      std::shuffle(slots.begin(), slots.end(), random);
      // What is past a row's count must not be used.
      for (int i = 0; i < k; ++i) {
        unit.push_back(i < count.back() ? units[i] : -1);
        slot.push_back(i < count.back() ? slots[i] : -1);
      }
      // Ascending, with gaps, as outliers leave them.
      for (int i = 0, number = 0; i < candidates; ++i) {
        number += 1 + static_cast<int>(random() % 3);
        chunk_of.push_back(number);
        most = std::max(most, number);
      }
    }
    d_unit = Uploaded(unit), d_slot = Uploaded(slot), d_count = Uploaded(count);
    d_chunk_of = Uploaded(chunk_of);
  }
  MissedChunks Missed() const {
    return {d_unit.get(),     d_slot.get(), d_count.get(),
            d_chunk_of.get(), rows,         k,
            candidates,       chunk,        at};
  }
  // Calls each(row, token, place) of all missed tokens: its number and its place in the cache.
  template <class Each>
  void ForTokens(const Each& each) const {
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < count[row]; ++i) {
        const int64_t of = int64_t{row} * k + i;
        for (int t = 0; t < chunk; ++t) {
          each(row, int64_t{chunk_of[int64_t{row} * candidates + unit[of]]} * chunk + t,
               at + int64_t{slot[of]} * chunk + t);
        }
      }
    }
  }
  int64_t tokens() const { return int64_t{most + 1} * chunk; }
  int64_t capacity() const { return at + int64_t{k} * chunk + 5; }

  int rows, k, candidates, chunk, at, most = 0;
  std::vector<int32_t> unit, slot, count, chunk_of;
  Buffer<int32_t> d_unit, d_slot, d_count, d_chunk_of;
};

TEST_F(ShadowKv, ValuesOfMissedChunksComeToTheirSlotsAndNothingElseChanges) {
  for (const int dim : {64, 128}) {
    for (const int chunk : {1, 8, 13, 32}) {
      SCOPED_TRACE(testing::Message() << dim << ", chunks of " << chunk);
      const Selection selection(random_, 9, 37, 150, chunk, 11);
      const int64_t tokens = selection.tokens(), capacity = selection.capacity();
      const auto values = RandomBf16(random_, selection.rows * tokens * dim);
      Buffer<Bf16> pool(static_cast<int64_t>(values.size()), Memory::kPinned);
      std::copy(values.begin(), values.end(), pool.get());
      const int64_t offset = selection.rows * capacity * dim;
      auto cache = Poisoned<Bf16>(2 * offset);
      auto expected = ToHost(cache);
      FetchValues(pool.get(), tokens, selection.Missed(),
                  {cache.get(), capacity * dim, dim, offset}, dim, 3, nullptr);
      selection.ForTokens([&](int row, int64_t token, int64_t place) {
        std::copy_n(&values[(row * tokens + token) * dim], dim,
                    &expected[offset + (row * capacity + place) * dim]);
      });
      const auto got = ToHost(cache);
      for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(Bits(got[i]), Bits(expected[i])) << i;
    }
  }
}

TEST_F(ShadowKv, KeysAreTheProductOfTheirFactorsTurnedByRope) {
  struct Shape {
    int dim, rank, chunk, kv_heads, sequences, k;
  };
  for (const Shape& s : {Shape{128, 160, 8, 4, 2, 60},
                         {64, 256, 32, 3, 1, 5},
                         {128, 16, 1, 1, 3, 7},
                         {64, 48, 5, 2, 2, 33}}) {
    SCOPED_TRACE(testing::Message() << s.dim << ", rank " << s.rank << ", chunks of " << s.chunk);
    const int rows = s.kv_heads * s.sequences;
    const Selection selection(random_, rows, s.k, 200, s.chunk, 4);
    const int64_t tokens = selection.tokens(), capacity = selection.capacity();
    const auto u = RandomBf16(random_, s.sequences * tokens * s.rank, 0.1F);
    const auto basis = RandomBf16(random_, int64_t{rows} * s.dim * s.rank);
    std::vector<float> frequencies;
    for (int i = 0; i < s.dim / 2; ++i) {
      frequencies.push_back(std::pow(10000.0F, -2.0F * static_cast<float>(i) / s.dim));
    }
    const auto d_u = Uploaded(u), d_basis = Uploaded(basis);
    const auto d_frequencies = Uploaded(frequencies);
    const int64_t offset = rows * capacity * s.dim;
    auto cache = Poisoned<Bf16>(2 * offset);
    const float scaling = 1.25F;
    RebuildKeys({d_u.get(), d_basis.get(), tokens, s.rank}, selection.Missed(), s.kv_heads,
                d_frequencies.get(), scaling, {cache.get(), capacity * s.dim, s.dim, offset}, s.dim,
                nullptr);
    const auto got = ToHost(cache);
    std::vector<bool> written(got.size());
    selection.ForTokens([&](int row, int64_t token, int64_t place) {
      const Bf16* factor = &u[(row / s.kv_heads * tokens + token) * s.rank];
      const auto half = static_cast<size_t>(s.dim / 2);
      std::vector<double> key(2 * half);
      double size = 0;
      for (int channel = 0; channel < s.dim; ++channel) {
        for (int r = 0; r < s.rank; ++r) {
          const double term =
              double{__bfloat162float(factor[r])} *
              double{__bfloat162float(basis[(int64_t{row} * s.dim + channel) * s.rank + r])};
          key[channel] += term;
          size = std::max(size, std::abs(term));
        }
      }
      for (size_t i = 0; i < half; ++i) {
        // The angle in single precision, as models compute it.
        const double angle = static_cast<float>(token) * frequencies[i];
        const double low = key[i] * std::cos(angle) - key[i + half] * std::sin(angle);
        const double high = key[i + half] * std::cos(angle) + key[i] * std::sin(angle);
        key[i] = scaling * low, key[i + half] = scaling * high;
      }
      const int64_t at = (row * capacity + place) * s.dim;
      for (int channel = 0; channel < s.dim; ++channel) {
        ExpectRounded(key[channel], got[at + channel], 10 * s.rank * size, at + channel);
        written[at + channel] = true;
      }
    });
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(written[i] || Bits(got[i]) == 0xFFFF) << "wrote to " << i;
    }
  }
}

TEST_F(ShadowKv, WhatCannotBeLaunchedIsRefused) {
  const Selection selection(random_, 2, 3, 20, 8, 0);
  const TokenView cache{nullptr, 4096, 128, 8192};
  EXPECT_THROW(FetchValues(nullptr, 100, selection.Missed(), cache, 96, 4, nullptr), Error);
  EXPECT_THROW(FetchValues(nullptr, 100, selection.Missed(), cache, 128, 0, nullptr), Error);
  for (const int rank : {0, 8, 100, 272}) {
    EXPECT_THROW(RebuildKeys({nullptr, nullptr, 100, rank}, selection.Missed(), 2, nullptr, 1,
                             cache, 128, nullptr),
                 Error)
        << rank;
    EXPECT_THROW(KeyFactorizer(100, 2, 64, rank), Error) << rank;
  }
}

// Columns of unit length that are orthogonal to one another, [column][size].
std::vector<std::vector<double>> Orthonormal(std::mt19937& random, int columns, int size) {
  std::normal_distribution<double> normal;
  std::vector<std::vector<double>> all;
  for (int c = 0; c < columns; ++c) {
    std::vector<double> own(static_cast<size_t>(size));
    for (double& x : own) x = normal(random);
    // Twice: once leaves rounding errors of what has been taken off.
    for (int pass = 0; pass < 2; ++pass) {
      for (const auto& other : all) {
        const double along = std::inner_product(own.begin(), own.end(), other.begin(), 0.0);
        for (int i = 0; i < size; ++i) own[i] -= along * other[i];
      }
    }
    const double length = std::sqrt(std::inner_product(own.begin(), own.end(), own.begin(), 0.0));
    for (double& x : own) x /= length;
    all.push_back(std::move(own));
  }
  return all;
}

// No factors of a rank are nearer than what the smaller singular values add up to (Eckart and
// Young).
TEST_F(ShadowKv, FactorsAreTheBestOfTheirRank) {
  if (!KeyFactorizer::Available()) GTEST_SKIP() << "no cuSOLVER";
  struct Shape {
    int tokens, heads, dim, rank, sources;
  };
  for (const Shape& s : {Shape{700, 2, 128, 48, 96}, {96, 3, 64, 32, 80}, {300, 2, 64, 64, 40}}) {
    SCOPED_TRACE(testing::Message() << s.tokens << " tokens, rank " << s.rank);
    const int width = s.heads * s.dim;
    const auto left = Orthonormal(random_, s.sources, s.tokens);
    const auto right = Orthonormal(random_, s.sources, width);
    std::vector<double> exact(static_cast<size_t>(s.tokens * width));
    double rest = 0, all = 0;
    for (int i = 0; i < s.sources; ++i) {
      const double value = 100 * std::pow(0.96, i);
      all += value * value;
      if (i >= s.rank) rest += value * value;
      for (int t = 0; t < s.tokens; ++t) {
        for (int c = 0; c < width; ++c) exact[t * width + c] += value * left[i][t] * right[i][c];
      }
    }
    // Keys of a head lie together: [head][token][dim].
    std::vector<Bf16> keys(exact.size());
    for (int t = 0; t < s.tokens; ++t) {
      for (int c = 0; c < width; ++c) {
        keys[(c / s.dim * s.tokens + t) * s.dim + c % s.dim] =
            __float2bfloat16(static_cast<float>(exact[t * width + c]));
      }
    }
    const auto d_keys = Uploaded(keys);
    auto u = Poisoned<Bf16>(int64_t{s.tokens} * s.rank);
    auto basis = Poisoned<Bf16>(int64_t{width} * s.rank);
    KeyFactorizer factorizer(s.tokens, s.heads, s.dim, s.rank);
    factorizer.Run({d_keys.get(), int64_t{s.tokens} * s.dim, s.dim, 0}, u.get(), basis.get(),
                   nullptr);
    const auto got_u = Widen(ToHost(u).data(), u.size());
    const auto got_basis = Widen(ToHost(basis).data(), basis.size());
    double missing = 0;
    for (int t = 0; t < s.tokens; ++t) {
      for (int c = 0; c < width; ++c) {
        double key = 0;
        for (int r = 0; r < s.rank; ++r) {
          key += double{got_u[t * s.rank + r]} * double{got_basis[c * s.rank + r]};
        }
        missing += (key - exact[t * width + c]) * (key - exact[t * width + c]);
      }
    }
    // Keys and factors are rounded to 2^-9 of them at most, twice.
    EXPECT_NEAR(std::sqrt(missing), std::sqrt(rest), std::sqrt(all) / 256);
  }
}

}  // namespace
}  // namespace stallcast::kernels
