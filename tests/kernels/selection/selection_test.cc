#include "kernels/selection/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"
#include "models/methods/common/page_cache.h"
#include "models/methods/common/page_scores.h"
#include "models/methods/common/ranking.h"
#include "models/methods/vector_kernels.h"
#include "tests/kernels/has_device.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using Bf16 = __nv_bfloat16;

template <class T>
Buffer<T> Uploaded(const std::vector<T>& values) {
  Buffer<T> buffer(std::max<int64_t>(1, static_cast<int64_t>(values.size())));
  Check(cudaMemcpy(buffer.get(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  return buffer;
}

template <class T>
std::vector<T> ToHost(const Buffer<T>& buffer) {
  std::vector<T> values(static_cast<size_t>(buffer.size()));
  Check(cudaMemcpy(values.data(), buffer.get(), values.size() * sizeof(T), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  return values;
}

// All bits set: NaN as a float, -1 as an integer.
template <class T>
Buffer<T> Poisoned(int64_t count) {
  Buffer<T> buffer(std::max<int64_t>(1, count));
  Check(cudaMemset(buffer.get(), 0xff, static_cast<size_t>(buffer.bytes())), "cudaMemset");
  return buffer;
}

std::vector<Bf16> Normal(int64_t count, std::mt19937_64& random, float deviation = 1) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<Bf16> values(static_cast<size_t>(count));
  for (Bf16& value : values) value = __float2bfloat16(normal(random));
  return values;
}

class Selection : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
  std::mt19937_64 random_{2025};
};

// ---- Summaries

struct Pages {
  int row_pages, first, count, rows, tokens, heads, dim;
};

void ExpectSummaries(SummaryKind kind, const Pages& p, bool hnd, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << " tokens " << p.tokens
                                  << " heads " << p.heads << " dim " << p.dim << " hnd " << hnd);
  const int slots = p.rows * p.row_pages + 3;
  const std::vector<Bf16> data = Normal(int64_t{slots} * 2 * p.tokens * p.heads * p.dim, random);
  std::vector<int32_t> slot(static_cast<size_t>(slots));
  std::iota(slot.begin(), slot.end(), 0);
  std::shuffle(slot.begin(), slot.end(), random);
  const Buffer<Bf16> device_data = Uploaded(data);
  const Buffer<int32_t> device_slots = Uploaded(slot);
  const PagedKv cache = hnd ? HndPages(device_data.get(), p.tokens, p.heads, p.dim)
                            : NhdPages(device_data.get(), p.tokens, p.heads, p.dim);
  const int vectors = kind == SummaryKind::kMean ? 1 : 2;
  const int summary_pages = p.row_pages + 2;
  const Buffer<Bf16> out = Poisoned<Bf16>(int64_t{p.rows} * summary_pages * vectors * p.dim);
  Summarize(kind, cache, device_slots.get(), p.row_pages, p.first, p.count, p.rows, out.get(),
            summary_pages, nullptr);
  const std::vector<Bf16> summaries = ToHost(out);
  for (int row = 0; row < p.rows; ++row) {
    for (int page = 0; page < summary_pages; ++page) {
      for (int i = 0; i < p.dim; ++i) {
        const size_t at = ((static_cast<size_t>(row) * summary_pages + page) * vectors) * p.dim + i;
        const double low = __bfloat162float(summaries[at]);
        const double high = __bfloat162float(summaries[at + (vectors - 1) * p.dim]);
        if (page < p.first || page >= p.first + p.count) {
          ASSERT_TRUE(std::isnan(low) && std::isnan(high)) << "page " << page;
          continue;
        }
        std::vector<double> keys;
        for (int t = 0; t < p.tokens; ++t) {
          keys.push_back(__bfloat162float(
              data[slot[row * p.row_pages + page] * cache.slot_stride + t * cache.token_stride +
                   row % p.heads * cache.head_stride + i]));
        }
        const auto [least, most] = std::minmax_element(keys.begin(), keys.end());
        switch (kind) {
          case SummaryKind::kMinMax:
            ASSERT_EQ(low, *least);
            ASSERT_EQ(high, *most);
            break;
          case SummaryKind::kMean: {
            const double mean = std::accumulate(keys.begin(), keys.end(), 0.0) / p.tokens;
            ASSERT_NEAR(low, mean, std::abs(mean) / 256 + 1e-6);
            break;
          }
          case SummaryKind::kCuboidMean: {
            const double centre = (*least + *most) / 2;
            double radius = 0;
            for (double key : keys) radius += std::abs(key - centre) / p.tokens;
            ASSERT_NEAR(low, centre - radius, std::abs(centre - radius) / 256 + 1e-6);
            ASSERT_NEAR(high, centre + radius, std::abs(centre + radius) / 256 + 1e-6);
            break;
          }
        }
      }
    }
  }
}

TEST_F(Selection, SummariesAreThoseOfThePagesKeys) {
  for (SummaryKind kind : {SummaryKind::kMinMax, SummaryKind::kCuboidMean, SummaryKind::kMean}) {
    for (bool hnd : {false, true}) {
      ExpectSummaries(kind, {37, 0, 37, 8, 32, 4, 128}, hnd, random_);
      ExpectSummaries(kind, {9, 2, 5, 3, 16, 3, 64}, hnd, random_);
      ExpectSummaries(kind, {5, 4, 1, 1, 7, 1, 256}, hnd, random_);
      ExpectSummaries(kind, {6, 1, 3, 2, 1, 2, 128}, hnd, random_);
      ExpectSummaries(kind, {4, 0, 0, 2, 32, 2, 128}, hnd, random_);
    }
  }
}

TEST_F(Selection, SummariesRefuseOddHeads) {
  const Buffer<Bf16> data(96);
  EXPECT_THROW(Summarize(SummaryKind::kMinMax, NhdPages(data.get(), 1, 1, 96), nullptr, 1, 0, 1, 1,
                         nullptr, 1, nullptr),
               Error);
}

// ---- Query similarity

TEST_F(Selection, SimilarityIsTheGroupsMeanCosine) {
  for (const auto& [rows, group, dim] : std::vector<std::array<int, 3>>{{1, 1, 64},
                                                                        {8, 4, 128},
                                                                        {5, 7, 128},
                                                                        {40, 8, 128},
                                                                        {300, 4, 64},
                                                                        {3, 16, 256},
                                                                        {2, 71, 64}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, group " << group << ", dim " << dim);
    const std::vector<Bf16> noise = Normal(int64_t{rows} * group * dim, random_);
    std::vector<Bf16> previous = Normal(int64_t{rows} * group * dim, random_);
    std::vector<Bf16> query = previous;
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < group * dim; ++i) {
        const size_t at = static_cast<size_t>(r) * group * dim + i;
        query[at] =
            __float2bfloat16(__bfloat162float(previous[at]) +
                             static_cast<float>(r % 5) * 0.3f * __bfloat162float(noise[at]));
      }
    }
    // A zero vector is like nothing.
    std::fill_n(query.begin(), dim, __float2bfloat16(0));
    std::vector<double> expected;
    for (int r = 0; r < rows; ++r) {
      double sum = 0;
      for (int h = 0; h < group; ++h) {
        double ab = 0, aa = 0, bb = 0;
        for (int i = 0; i < dim; ++i) {
          const size_t at = (static_cast<size_t>(r) * group + h) * dim + i;
          const double a = __bfloat162float(query[at]), b = __bfloat162float(previous[at]);
          ab += a * b;
          aa += a * a;
          bb += b * b;
        }
        if (aa > 0 && bb > 0) sum += ab / std::sqrt(aa * bb);
      }
      expected.push_back(sum / group);
    }
    const Buffer<Bf16> device_query = Uploaded(query), device_previous = Uploaded(previous);
    for (float tau : {-2.0f, 0.9f, 2.0f}) {
      const auto similarity = Poisoned<float>(rows);
      const auto flags = Poisoned<int32_t>(rows);
      const auto any = Poisoned<int32_t>(1);
      QuerySimilarity(device_query.get(), device_previous.get(), rows, group, dim, tau,
                      similarity.get(), flags.get(), any.get(), nullptr);
      const auto similarities = ToHost(similarity);
      const auto below = ToHost(flags);
      for (int r = 0; r < rows; ++r) {
        EXPECT_NEAR(similarities[r], expected[r], 1e-5);
        EXPECT_EQ(below[r], similarities[r] < tau ? 1 : 0);
      }
      EXPECT_EQ(ToHost(any)[0], *std::max_element(below.begin(), below.end()));
    }
  }
}

// ---- Scores

struct Shape {
  int rows, group, dim, vectors, first_page, pages;
};

struct Tensors {
  std::vector<Bf16> query, summaries;
  int summary_pages;
};

Tensors RandomTensors(const Shape& s, std::mt19937_64& random) {
  Tensors t;
  t.summary_pages = s.first_page + s.pages + 3;
  t.query = Normal(int64_t{s.rows} * s.group * s.dim, random);
  t.summaries = Normal(int64_t{s.rows} * t.summary_pages * s.vectors * s.dim, random);
  if (s.vectors == 1) return t;
  for (int64_t page = 0; page < int64_t{s.rows} * t.summary_pages; ++page) {
    for (int i = 0; i < s.dim; ++i) {
      Bf16& low = t.summaries[static_cast<size_t>(page * 2 * s.dim + i)];
      Bf16& high = t.summaries[static_cast<size_t>((page * 2 + 1) * s.dim + i)];
      if (__bfloat162float(low) > __bfloat162float(high)) std::swap(low, high);
    }
  }
  return t;
}

// [rows][group][pages]; `magnitude` is the largest sum of absolute terms.
std::vector<double> RawScores(const Shape& s, const Tensors& t, double* magnitude) {
  std::vector<double> raw;
  for (int row = 0; row < s.rows; ++row) {
    for (int h = 0; h < s.group; ++h) {
      for (int page = 0; page < s.pages; ++page) {
        const Bf16* low =
            t.summaries.data() +
            (int64_t{row} * t.summary_pages + s.first_page + page) * s.vectors * s.dim;
        const Bf16* high = low + (s.vectors - 1) * s.dim;
        double sum = 0, size = 0;
        for (int i = 0; i < s.dim; ++i) {
          const double q = __bfloat162float(t.query[(int64_t{row} * s.group + h) * s.dim + i]);
          const double term = std::max(q * __bfloat162float(low[i]), q * __bfloat162float(high[i]));
          sum += term;
          size += std::abs(term);
        }
        raw.push_back(sum);
        *magnitude = std::max(*magnitude, size);
      }
    }
  }
  return raw;
}

std::vector<float> DeviceScores(const Shape& s, const Tensors& t, Pooling pooling, float scale) {
  const Buffer<Bf16> query = Uploaded(t.query), summaries = Uploaded(t.summaries);
  const auto out =
      Poisoned<float>(int64_t{s.rows} * (pooling == Pooling::kNone ? s.group : 1) * s.pages);
  const auto workspace = Poisoned<float>(ScoreWorkspace(s.rows, s.group, s.pages));
  Score(query.get(), summaries.get(), s.rows, s.group, s.dim, s.vectors, s.first_page, s.pages,
        t.summary_pages, pooling, scale, out.get(), workspace.get(), nullptr);
  return ToHost(out);
}

double Pooled(Pooling pooling, const Shape& s, const double* raw, double scale,
              const std::vector<double>& log_sums) {
  if (pooling == Pooling::kMax || pooling == Pooling::kRawMean) {
    double sum = 0, most = -std::numeric_limits<double>::infinity();
    for (int h = 0; h < s.group; ++h) {
      sum += raw[int64_t{h} * s.pages] / s.group;
      most = std::max(most, raw[int64_t{h} * s.pages]);
    }
    return pooling == Pooling::kMax ? most : sum;
  }
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int h = 0; h < s.group; ++h) {
    most = std::max(most, scale * raw[int64_t{h} * s.pages] - log_sums[h]);
  }
  if (pooling == Pooling::kSoftmaxMax) return most;
  for (int h = 0; h < s.group; ++h) {
    sum += std::exp(scale * raw[int64_t{h} * s.pages] - log_sums[h] - most);
  }
  return most + std::log(sum / s.group);
}

TEST_F(Selection, ScoresAreTheFormulasForEachPooling) {
  for (const Shape& s : std::vector<Shape>{{8, 4, 128, 2, 0, 1000},
                                           {1, 1, 128, 2, 3, 1},
                                           {3, 7, 128, 2, 2, 17},
                                           {2, 8, 64, 2, 0, 65},
                                           {2, 16, 128, 2, 1, 200},
                                           {2, 9, 256, 2, 1, 63},
                                           {3, 4, 128, 1, 1, 129},
                                           {1, 12, 64, 1, 0, 64},
                                           {2, 5, 256, 1, 0, 15},
                                           {1, 2, 64, 2, 5, 40000}}) {
    const Tensors t = RandomTensors(s, random_);
    double magnitude = 0;
    const std::vector<double> raw = RawScores(s, t, &magnitude);
    const double rounding = 2e-6 * magnitude;
    for (Pooling pooling : {Pooling::kNone, Pooling::kRawMean, Pooling::kMax, Pooling::kSoftmaxMean,
                            Pooling::kSoftmaxMeanUnscaled, Pooling::kSoftmaxMax}) {
      SCOPED_TRACE(testing::Message() << s.rows << " rows, group " << s.group << ", dim " << s.dim
                                      << ", vectors " << s.vectors << ", pages " << s.pages
                                      << ", pooling " << static_cast<int>(pooling));
      const float scale = 1 / std::sqrt(static_cast<float>(s.dim));
      const std::vector<float> scores = DeviceScores(s, t, pooling, scale);
      if (pooling == Pooling::kNone) {
        ASSERT_EQ(scores.size(), raw.size());
        for (size_t i = 0; i < raw.size(); ++i) ASSERT_NEAR(scores[i], raw[i], rounding);
        continue;
      }
      const double used = pooling == Pooling::kSoftmaxMeanUnscaled ? 1.0 : double{scale};
      for (int row = 0; row < s.rows; ++row) {
        const double* first = raw.data() + int64_t{row} * s.group * s.pages;
        std::vector<double> log_sums;
        for (int h = 0; h < s.group; ++h) {
          const std::span<const double> of_head(first + int64_t{h} * s.pages,
                                                static_cast<size_t>(s.pages));
          const double most = used * *std::max_element(of_head.begin(), of_head.end());
          double sum = 0;
          for (double score : of_head) sum += std::exp(used * score - most);
          log_sums.push_back(most + std::log(sum));
        }
        for (int page = 0; page < s.pages; ++page) {
          ASSERT_NEAR(scores[int64_t{row} * s.pages + page],
                      Pooled(pooling, s, first + page, used, log_sums), 2 * rounding + 1e-5)
              << "row " << row << " page " << page;
        }
      }
    }
  }
}

TEST_F(Selection, ScoresRefuseOddShapes) {
  EXPECT_THROW(
      Score(nullptr, nullptr, 1, 17, 128, 2, 0, 1, 1, Pooling::kMax, 1, nullptr, nullptr, nullptr),
      Error);
  EXPECT_THROW(
      Score(nullptr, nullptr, 1, 4, 96, 2, 0, 1, 1, Pooling::kMax, 1, nullptr, nullptr, nullptr),
      Error);
}

TEST_F(Selection, MeanOverRowsIsTheMeanOfEachSet) {
  std::normal_distribution<float> normal;
  for (const auto& [sets, rows_a_set, pages] : std::vector<std::array<int, 3>>{
           {1, 1, 1}, {1, 8, 4096}, {4, 8, 1000}, {3, 5, 257}, {2, 40, 33}}) {
    std::vector<float> scores(static_cast<size_t>(sets) * rows_a_set * pages);
    for (float& score : scores) score = normal(random_);
    const Buffer<float> device_scores = Uploaded(scores);
    const auto mean = Poisoned<float>(int64_t{sets} * pages);
    MeanOverRows(device_scores.get(), sets, rows_a_set, pages, mean.get(), nullptr);
    const std::vector<float> means = ToHost(mean);
    for (int set = 0; set < sets; ++set) {
      for (int page = 0; page < pages; ++page) {
        double sum = 0;
        for (int row = set * rows_a_set; row < (set + 1) * rows_a_set; ++row) {
          sum += scores[row * pages + page];
        }
        ASSERT_NEAR(means[set * pages + page], sum / rows_a_set, 1e-6) << set << " " << page;
      }
    }
  }
}

// ---- Top-k

std::vector<int32_t> Largest(std::span<const float> scores, int k) {
  std::vector<int32_t> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto better = [&](int32_t a, int32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  };
  if (k > 0) std::nth_element(ids.begin(), ids.begin() + k - 1, ids.end(), better);
  ids.resize(static_cast<size_t>(k));
  std::sort(ids.begin(), ids.end());
  return ids;
}

// `last` is what row 0 ends with, row 1 with the next number, and so on; -1: nothing.
void ExpectTopK(const std::vector<float>& scores, int rows, int k, int32_t last = -1) {
  const int candidates = static_cast<int>(scores.size()) / rows;
  SCOPED_TRACE(testing::Message() << rows << " rows, " << k << " of " << candidates);
  const Buffer<float> device = Uploaded(scores);
  const int written = k + (last >= 0 ? 1 : 0);
  const auto ids = Poisoned<int32_t>(int64_t{rows} * written);
  const auto workspace = Poisoned<uint8_t>(TopKWorkspace(rows, candidates, k));
  std::vector<int32_t> lasts(static_cast<size_t>(rows));
  std::iota(lasts.begin(), lasts.end(), last);
  const Buffer<int32_t> device_lasts = Uploaded(lasts);
  TopK(device.get(), rows, candidates, k, ids.get(), workspace.get(), nullptr,
       last >= 0 ? device_lasts.get() : nullptr);
  const std::vector<int32_t> chosen = ToHost(ids);
  for (int row = 0; row < rows; ++row) {
    const auto first = chosen.begin() + int64_t{row} * written;
    std::vector<int32_t> expected =
        Largest(std::span(scores).subspan(static_cast<size_t>(row) * candidates,
                                          static_cast<size_t>(candidates)),
                k);
    if (last >= 0) expected.push_back(last + row);
    ASSERT_EQ(std::vector<int32_t>(first, first + written), expected) << "row " << row;
  }
}

TEST_F(Selection, TopKIsASortWithTiesToTheSmallerId) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> few(0, 3);
  std::uniform_int_distribution<uint32_t> any_bits;
  const std::vector<std::function<float()>> sources = {
      [&] { return normal(random_); },
      [&] { return normal(random_) - 20; },
      [&] { return 0.25f; },
      [&] { return static_cast<float>(few(random_)); },
      [&] { return few(random_) == 0 ? normal(random_) : -kInfinity; },
      [&] { return few(random_) == 0 ? std::exp(20 * normal(random_)) : normal(random_) * 1e-3f; },
      // Every finite float, and neither zero: whether -0 ties with 0 does not matter here.
      [&] {
        const uint32_t bits = any_bits(random_);
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return std::isfinite(value) && value != 0 ? value : 1.0f;
      },
  };
  for (size_t source = 0; source < sources.size(); ++source) {
    SCOPED_TRACE(testing::Message() << "source " << source);
    for (const auto& [rows, candidates] : std::vector<std::array<int, 2>>{{1, 1},
                                                                          {3, 2},
                                                                          {2, 33},
                                                                          {8, 1023},
                                                                          {8, 4096},
                                                                          {2, 4097},
                                                                          {3, 8192},
                                                                          {2, 8193},
                                                                          {2, 16384},
                                                                          {3, 16385},
                                                                          {2, 20011},
                                                                          {1, 131072}}) {
      std::vector<float> scores(static_cast<size_t>(rows) * candidates);
      for (float& score : scores) score = sources[source]();
      for (int k : std::set<int>{1, 2, 31, 64, candidates / 3, candidates - 1, candidates}) {
        if (k < 1 || k > candidates || (candidates > 16384 && k > 8192)) continue;
        ExpectTopK(scores, rows, k);
      }
      if (candidates > 16384) ExpectTopK(scores, rows, 8192);
    }
  }
}

TEST_F(Selection, LowestKGivesEachRowItsOwnNumber) {
  std::normal_distribution<float> normal;
  for (const auto& [rows, candidates, most] :
       std::vector<std::array<int, 3>>{{1, 1, 1},
                                       {5, 33, 33},
                                       {8, 1'023, 200},
                                       {8, 4'096, 4'096},
                                       {3, 16'384, 9'000},
                                       {3, 16'385, 8'192},
                                       {2, 131'072, 5'000}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, " << most << " of " << candidates);
    std::vector<float> scores(static_cast<size_t>(rows) * candidates);
    for (size_t i = 0; i < scores.size(); ++i) {
      // Many tie, as after max-pooling; what lies behind a row's own candidates is infinity.
      const size_t row = i / static_cast<size_t>(candidates), at = i % candidates;
      const bool own =
          static_cast<int>(at) < std::max(most, candidates - 7 * static_cast<int>(row));
      scores[i] =
          own ? std::round(normal(random_) * 64) / 64 : std::numeric_limits<float>::infinity();
    }
    std::vector<int32_t> k_of(static_cast<size_t>(rows), most);
    for (int row = 1; row < rows; ++row) {
      k_of[static_cast<size_t>(row)] = row == 1 ? 0 : static_cast<int32_t>(random_() % (most + 1));
    }
    const auto device = Uploaded(scores);
    const auto device_k = Uploaded(k_of);
    const auto ids = Poisoned<int32_t>(int64_t{rows} * most);
    const auto workspace = Poisoned<uint8_t>(TopKWorkspace(rows, candidates, most));
    LowestK(device.get(), rows, candidates, most, device_k.get(), ids.get(), workspace.get(),
            nullptr);
    const std::vector<int32_t> chosen = ToHost(ids);
    std::vector<float> negated = scores;
    for (float& score : negated) score = -score;
    for (int row = 0; row < rows; ++row) {
      const int k = k_of[static_cast<size_t>(row)];
      std::vector<int32_t> expected =
          Largest(std::span(negated).subspan(static_cast<size_t>(row) * candidates,
                                             static_cast<size_t>(candidates)),
                  k);
      expected.resize(static_cast<size_t>(most), -1);  // untouched
      const auto first = chosen.begin() + int64_t{row} * most;
      ASSERT_EQ(std::vector<int32_t>(first, first + most), expected) << "row " << row;
    }
  }
}

TEST_F(Selection, TopKOfAMillion) {
  std::normal_distribution<float> normal;
  std::vector<float> scores(size_t{1} << 20);
  // Rounded, so that many tie.
  for (float& score : scores) score = std::round(normal(random_) * 1024) / 1024;
  for (int k : {1, 64, 2048, 8191, 8192}) ExpectTopK(scores, 1, k);
}

TEST_F(Selection, TopKEndsWithTheLastPageWhereThereIsOne) {
  std::normal_distribution<float> normal;
  for (const auto& [rows, candidates] :
       std::vector<std::array<int, 2>>{{1, 0}, {1, 1}, {32, 127}, {8, 4097}, {2, 20011}}) {
    std::vector<float> scores(static_cast<size_t>(rows) * candidates);
    for (float& score : scores) score = normal(random_);
    for (int k : std::set<int>{0, std::min(1, candidates), candidates / 3}) {
      ExpectTopK(scores, rows, k, candidates);
    }
  }
}

TEST_F(Selection, TopKRefusesWhatItCannotDo) {
  EXPECT_THROW(TopK(nullptr, 1, 10, 11, nullptr, nullptr, nullptr), Error);
  EXPECT_THROW(TopK(nullptr, 1, (1 << 20) + 1, 1, nullptr, nullptr, nullptr), Error);
  EXPECT_THROW(TopK(nullptr, 1, 1 << 20, 8193, nullptr, nullptr, nullptr), Error);
  EXPECT_THROW(LowestK(nullptr, 1, 10, 11, nullptr, nullptr, nullptr, nullptr), Error);
}

// ---- Slots

TEST_F(Selection, SlotsFollowTheRule) {
  for (const auto& [rows, k, slots, units] : std::vector<std::array<int, 4>>{{1, 1, 1, 5},
                                                                             {8, 64, 64, 200},
                                                                             {8, 64, 100, 4000},
                                                                             {3, 33, 33, 40},
                                                                             {2, 64, 64, 64},
                                                                             {4, 1000, 1700, 3000},
                                                                             {2, 8192, 8192, 20000},
                                                                             {2, 0, 10, 20}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, " << k << " in " << slots << " slots");
    std::vector<int32_t> held(static_cast<size_t>(rows) * slots, -1);
    std::vector<int32_t> enabled(static_cast<size_t>(rows), 1);
    const Buffer<int32_t> slot_unit = Uploaded(held);
    for (int step = 0; step < 12; ++step) {
      std::vector<int32_t> ids;
      for (int row = 0; row < rows; ++row) {
        // Of a part of the units that moves on, so that some are found again.
        std::vector<int32_t> pool(static_cast<size_t>(units));
        std::iota(pool.begin(), pool.end(), 0);
        std::rotate(pool.begin(), pool.begin() + step * units / 24, pool.end());
        pool.resize(static_cast<size_t>(std::max(k, std::min(units, 2 * k))));
        std::vector<int32_t> chosen;
        std::shuffle(pool.begin(), pool.end(), random_);
        chosen.assign(pool.begin(), pool.begin() + k);
        std::sort(chosen.begin(), chosen.end());
        ids.insert(ids.end(), chosen.begin(), chosen.end());
        enabled[row] = step % 3 == 2 && row % 2 == 0 ? 0 : 1;
      }
      const Buffer<int32_t> device_ids = Uploaded(ids), device_enabled = Uploaded(enabled);
      const auto missed_unit = Poisoned<int32_t>(int64_t{rows} * k);
      const auto missed_slot = Poisoned<int32_t>(int64_t{rows} * k);
      const auto missed = Poisoned<int32_t>(rows);
      AssignSlots(device_ids.get(), rows, k, slots, slot_unit.get(), missed_unit.get(),
                  missed_slot.get(), missed.get(), step == 0 ? nullptr : device_enabled.get(), {},
                  nullptr);
      std::vector<int32_t> units_expected(ToHost(missed_unit).size(), -1);
      std::vector<int32_t> slots_expected(units_expected), counts_expected(enabled.size(), -1);
      for (int row = 0; row < rows; ++row) {
        if (enabled[row] == 0) {
          counts_expected[row] = 0;
          continue;
        }
        const std::set<int32_t> wanted(ids.begin() + row * k, ids.begin() + (row + 1) * k);
        const std::span<int32_t> of_row(held.data() + row * slots, static_cast<size_t>(slots));
        const std::set<int32_t> before(of_row.begin(), of_row.end());
        int count = 0, slot = 0;
        for (int32_t unit : wanted) {
          if (before.contains(unit)) continue;
          while (wanted.contains(of_row[slot])) ++slot;
          units_expected[row * k + count] = unit;
          slots_expected[row * k + count] = slot;
          of_row[slot] = unit;
          ++count;
        }
        counts_expected[row] = count;
      }
      ASSERT_EQ(ToHost(missed), counts_expected);
      ASSERT_EQ(ToHost(missed_unit), units_expected);
      ASSERT_EQ(ToHost(missed_slot), slots_expected);
      ASSERT_EQ(ToHost(slot_unit), held);
    }
  }
}

// Each row beside the cache that predictions are made from: the same units missed and kept, those
// that stay where they were.
TEST_F(Selection, VictimsAreThoseOfThePageCache) {
  for (const auto& [rows, k, slots, units] : std::vector<std::array<int, 4>>{
           {1, 1, 1, 5}, {8, 20, 32, 90}, {5, 64, 64, 300}, {3, 40, 700, 900}, {2, 0, 10, 20}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, " << k << " in " << slots << " slots");
    std::vector<methods::PageCache> caches(static_cast<size_t>(rows), methods::PageCache(slots));
    std::vector<int32_t> held(static_cast<size_t>(rows) * slots, -1);
    std::uniform_int_distribution<int> score_of(0, units / 3);  // many tie
    for (int step = 0; step < 20; ++step) {
      std::vector<float> scores(static_cast<size_t>(rows) * units);
      for (float& score : scores) score = static_cast<float>(score_of(random_));
      std::vector<int32_t> ids, enabled;
      std::vector<std::vector<uint32_t>> missing;
      for (int row = 0; row < rows; ++row) {
        methods::PageCache& cache = caches[row];
        const std::span<int32_t> of_row(held.data() + row * slots, static_cast<size_t>(slots));
        if (step % 7 == 6 && !cache.pages().empty()) {  // one slot is freed
          std::vector<uint32_t> pages(cache.pages().begin(), cache.pages().end());
          const auto freed = pages.begin() + static_cast<int64_t>(random_() % pages.size());
          *std::find(of_row.begin(), of_row.end(), static_cast<int32_t>(*freed)) = -1;
          pages.erase(freed);
          cache.Fill(std::move(pages));
        }
        const std::span<const float> row_scores(scores.data() + row * units,
                                                static_cast<size_t>(units));
        const std::vector<uint32_t> wanted = methods::Best(row_scores, 0, k);
        ids.insert(ids.end(), wanted.begin(), wanted.end());
        enabled.push_back(step > 0 && random_() % 4 == 0 ? 0 : 1);
        missing.push_back(enabled[row] != 0 ? cache.Recall(wanted, row_scores, 0)
                                            : std::vector<uint32_t>{});
      }
      const Buffer<int32_t> device_ids = Uploaded(ids), device_enabled = Uploaded(enabled);
      const Buffer<int32_t> slot_unit = Uploaded(held);
      const Buffer<float> device_scores = Uploaded(scores);
      const auto missed_unit = Poisoned<int32_t>(int64_t{rows} * k);
      const auto missed_slot = Poisoned<int32_t>(int64_t{rows} * k);
      const auto missed = Poisoned<int32_t>(rows);
      AssignSlots(device_ids.get(), rows, k, slots, slot_unit.get(), missed_unit.get(),
                  missed_slot.get(), missed.get(), step == 0 ? nullptr : device_enabled.get(),
                  {device_scores.get(), units}, nullptr);
      const std::vector<int32_t> after = ToHost(slot_unit), counts = ToHost(missed);
      const std::vector<int32_t> recalled = ToHost(missed_unit), taken = ToHost(missed_slot);
      for (int row = 0; row < rows; ++row) {
        ASSERT_EQ(counts[row], static_cast<int32_t>(missing[row].size())) << "row " << row;
        for (int i = 0; i < counts[row]; ++i) {
          const int32_t slot = taken[row * k + i];
          ASSERT_EQ(recalled[row * k + i], static_cast<int32_t>(missing[row][i]));
          ASSERT_TRUE(slot >= 0 && slot < slots) << slot;
          held[row * slots + slot] = recalled[row * k + i];
        }
        std::vector<int32_t> kept(after.begin() + row * slots, after.begin() + (row + 1) * slots);
        ASSERT_TRUE(std::equal(kept.begin(), kept.end(), held.begin() + row * slots));
        std::erase(kept, -1);
        std::sort(kept.begin(), kept.end());
        const auto expected = caches[row].pages();
        ASSERT_EQ(kept, std::vector<int32_t>(expected.begin(), expected.end())) << "row " << row;
      }
    }
  }
}

TEST_F(Selection, SlotsMustSuffice) {
  EXPECT_THROW(
      AssignSlots(nullptr, 1, 5, 4, nullptr, nullptr, nullptr, nullptr, nullptr, {}, nullptr),
      Error);
}

// ---- All together, against what predictions are made from

struct Agreement {
  int64_t selected = 0, equal = 0;
  double worst = 0;  // by how much a page that only one of them chose missed the other's choice
};

constexpr int kRows = 8, kGroup = 4, kDim = 128, kPage = 32, kPages = 1024, kBest = 64;

// Keys to summaries, scores and ids on the device; the same by the policies' own code.
void Compare(methods::PageSummary summary, Pooling pooling, methods::Pooling host_pooling,
             const std::vector<Bf16>& data, const std::vector<Bf16>& query, Agreement& agreement) {
  const float scale = 1 / std::sqrt(static_cast<float>(kDim));
  std::vector<int32_t> slots;
  for (int row = 0; row < kRows; ++row) {
    for (int page = 0; page < kPages; ++page) slots.push_back(page);
  }
  const Buffer<Bf16> device_data = Uploaded(data), device_query = Uploaded(query);
  const Buffer<int32_t> device_slots = Uploaded(slots);
  const PagedKv cache = NhdPages(device_data.get(), kPage, kRows, kDim);
  const auto summaries = Poisoned<Bf16>(int64_t{kRows} * kPages * 2 * kDim);
  const auto scores = Poisoned<float>(int64_t{kRows} * kPages);
  const auto workspace = Poisoned<float>(ScoreWorkspace(kRows, kGroup, kPages));
  const auto ids = Poisoned<int32_t>(kRows * kBest);
  Summarize(
      summary == methods::PageSummary::kMinMax ? SummaryKind::kMinMax : SummaryKind::kCuboidMean,
      cache, device_slots.get(), kPages, 0, kPages, kRows, summaries.get(), kPages, nullptr);
  Score(device_query.get(), summaries.get(), kRows, kGroup, kDim, 2, 0, kPages, kPages, pooling,
        scale, scores.get(), workspace.get(), nullptr);
  TopK(scores.get(), kRows, kPages, kBest, ids.get(), nullptr, nullptr);
  const std::vector<int32_t> chosen = ToHost(ids);

  for (int row = 0; row < kRows; ++row) {
    std::vector<std::vector<float>> raw(kGroup, std::vector<float>(kPages + methods::kPanel));
    std::vector<float> keys(kPage * kDim), upper(kDim), lower(kDim), pooled;
    for (int page = 0; page < kPages; ++page) {
      for (int t = 0; t < kPage; ++t) {
        for (int i = 0; i < kDim; ++i) {
          keys[t * kDim + i] =
              __bfloat162float(data[page * cache.slot_stride + t * cache.token_stride +
                                    row * cache.head_stride + i]);
        }
      }
      methods::SummarizePage(summary, keys.data(), kPage, kDim, upper.data(), lower.data());
      // The device keeps its summaries in bf16.
      for (std::vector<float>* bound : {&upper, &lower}) {
        for (float& value : *bound) value = __bfloat162float(__float2bfloat16(value));
      }
      for (int h = 0; h < kGroup; ++h) {
        for (int i = 0; i < kDim; ++i) {
          const float q = __bfloat162float(query[(row * kGroup + h) * kDim + i]);
          raw[h][page] += std::max(q * upper[i], q * lower[i]);
        }
      }
    }
    std::vector<const float*> rows;
    for (const auto& head : raw) rows.push_back(head.data());
    methods::PoolScores(host_pooling, rows, kPages, scale, pooled);
    const std::vector<uint32_t> best = methods::Best(pooled, 0, kBest);
    float last = std::numeric_limits<float>::infinity();
    for (uint32_t id : best) last = std::min(last, pooled[id]);
    const std::set<uint32_t> expected(best.begin(), best.end());
    for (int i = 0; i < kBest; ++i) {
      const auto id = static_cast<uint32_t>(chosen[row * kBest + i]);
      ASSERT_LT(id, static_cast<uint32_t>(kPages));
      ++agreement.selected;
      if (expected.contains(id)) {
        ++agreement.equal;
      } else {
        agreement.worst = std::max(agreement.worst, static_cast<double>(last - pooled[id]));
      }
    }
  }
}

TEST_F(Selection, ChoosesWhatThePoliciesChoose) {
  Agreement agreement;
  for (methods::PageSummary summary :
       {methods::PageSummary::kMinMax, methods::PageSummary::kCuboidMean}) {
    const std::vector<Bf16> data = Normal(int64_t{kPages} * 2 * kPage * kRows * kDim, random_);
    const std::vector<Bf16> query = Normal(int64_t{kRows} * kGroup * kDim, random_);
    for (const auto& [pooling, host_pooling] :
         {std::pair{Pooling::kSoftmaxMean, methods::Pooling::kSoftmaxMean},
          std::pair{Pooling::kSoftmaxMeanUnscaled, methods::Pooling::kSoftmaxMeanUnscaled},
          std::pair{Pooling::kRawMean, methods::Pooling::kMean},
          std::pair{Pooling::kMax, methods::Pooling::kMax},
          std::pair{Pooling::kSoftmaxMax, methods::Pooling::kSoftmaxMax}}) {
      Compare(summary, pooling, host_pooling, data, query, agreement);
    }
  }
  const double share =
      static_cast<double>(agreement.equal) / static_cast<double>(agreement.selected);
  std::printf("%ld of %ld selected pages equal (%.4f %%), the others within %.2g of a tie\n",
              static_cast<long>(agreement.equal), static_cast<long>(agreement.selected),
              100 * share, agreement.worst);
  EXPECT_GE(share, 0.999);
  EXPECT_LE(agreement.worst, 1e-3);
}

}  // namespace
}  // namespace stallcast::kernels
