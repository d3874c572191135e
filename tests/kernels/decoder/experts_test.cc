#include "kernels/decoder/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "kernels/executor/expert_choices.h"
#include "tests/kernels/on_device.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

class Experts : public OnDevice {};

double Value(__nv_bfloat16 value) { return __bfloat162float(value); }

// Each row's best experts, ties to the smaller.
std::vector<int32_t> Best(const std::vector<__nv_bfloat16>& logits, int rows, int count,
                          int active) {
  std::vector<int32_t> best;
  for (int row = 0; row < rows; ++row) {
    std::vector<int32_t> ranked(static_cast<size_t>(count));
    std::iota(ranked.begin(), ranked.end(), 0);
    std::ranges::stable_sort(ranked, [&](int a, int b) {
      return Value(logits[row * count + a]) > Value(logits[row * count + b]);
    });
    best.insert(best.end(), ranked.begin(), ranked.begin() + active);
  }
  return best;
}

// `taken`: experts of the pairs, [row][active].
void ExpectSorted(const Routing& routing, const std::vector<int32_t>& taken) {
  const int pairs = routing.pairs();
  std::vector<int> order(static_cast<size_t>(pairs));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int pair) { return taken[pair]; });
  const auto row_of = Downloaded(static_cast<const int32_t*>(routing.row_of), pairs);
  const auto place_of = Downloaded(static_cast<const int32_t*>(routing.place_of), pairs);
  const auto group = Downloaded(static_cast<const ExpertGroup*>(routing.group), pairs);
  const int32_t groups = Downloaded(static_cast<const int32_t*>(routing.groups), 1).front();
  for (int place = 0; place < pairs; ++place) {
    ASSERT_EQ(row_of[place], order[place] / routing.active) << place;
    ASSERT_EQ(place_of[order[place]], place);
  }
  int32_t place = 0;
  for (int32_t i = 0; i < groups; ++i) {
    ASSERT_EQ(group[i].first, place);
    ASSERT_GE(group[i].rows, 1);
    ASSERT_LE(group[i].rows, ExpertGroup::kRowsMax);
    for (int32_t row = 0; row < group[i].rows; ++row) {
      ASSERT_EQ(taken[order[place++]], group[i].expert);
    }
    // Another group of the same expert only where this one is full.
    if (i > 0 && group[i].expert == group[i - 1].expert) {
      ASSERT_EQ(group[i - 1].rows, ExpertGroup::kRowsMax);
    }
  }
  ASSERT_EQ(place, pairs);
}

struct RouteShape {
  int32_t rows, experts, active;
};

TEST_F(Experts, RouteTakesTheBestAndSortsByExpert) {
  for (const auto& [rows, experts, active] :
       {RouteShape{1, 8, 2}, RouteShape{3, 32, 4}, RouteShape{8, 128, 8}, RouteShape{33, 128, 8},
        RouteShape{5, 512, 10}, RouteShape{64, 60, 4}, RouteShape{200, 256, 8},
        RouteShape{2, 33, 32}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, " << active << " of " << experts);
    auto logits = RandomBf16(random_, int64_t{rows} * experts, 3);
    // Few distinct values in one row: many ties.
    for (int i = 0; i < experts; ++i) logits[i] = __double2bfloat16(std::round(Value(logits[i])));
    const auto d_logits = Uploaded(logits);
    const RoutingMemory memory(rows, experts, active);
    Route(d_logits.get(), nullptr, memory.routing(), nullptr);
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const std::vector<int32_t> best = Best(logits, rows, experts, active);
    ExpectSorted(memory.routing(), best);
    const auto weight =
        Downloaded(static_cast<const float*>(memory.routing().weight), memory.routing().pairs());
    for (int row = 0; row < rows; ++row) {
      double sum = 0;
      for (int i = 0; i < active; ++i) {
        sum += std::exp(Value(logits[row * experts + best[row * active + i]]));
      }
      for (int i = 0; i < active; ++i) {
        const int pair = row * active + i;
        const double expected = std::exp(Value(logits[row * experts + best[pair]])) / sum;
        ASSERT_NEAR(weight[pair], expected, 1e-5) << "row " << row << ", " << i;
      }
    }
  }
}

TEST_F(Experts, RouteTakesThoseThatItIsGivenWithTheWeightsOfTheBest) {
  constexpr int32_t kRows = 12, kExperts = 64, kActive = 6;
  const auto logits = RandomBf16(random_, int64_t{kRows} * kExperts, 2);
  const auto d_logits = Uploaded(logits);
  const std::vector<int32_t> chosen = SpreadExperts(kRows, kActive, kExperts, 20, 3);
  const auto d_chosen = Uploaded(chosen);
  const RoutingMemory given(kRows, kExperts, kActive), own(kRows, kExperts, kActive);
  Route(d_logits.get(), d_chosen.get(), given.routing(), nullptr);
  Route(d_logits.get(), nullptr, own.routing(), nullptr);
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  ExpectSorted(given.routing(), chosen);
  const int32_t pairs = given.routing().pairs();
  EXPECT_EQ(Downloaded(static_cast<const float*>(given.routing().weight), pairs),
            Downloaded(static_cast<const float*>(own.routing().weight), pairs));
}

TEST_F(Experts, RouteOfLogitsThatAreNoNumbersStillTakesExperts) {
  constexpr int32_t kExperts = 40, kActive = 3;
  const double kNan = std::numeric_limits<double>::quiet_NaN(),
               kInfinity = std::numeric_limits<double>::infinity();
  std::vector<__nv_bfloat16> logits(3 * kExperts, __double2bfloat16(kNan));
  for (int i = 0; i < kExperts; ++i) {
    logits[kExperts + i] = __double2bfloat16(-kInfinity);
    logits[2 * kExperts + i] = __double2bfloat16(i % 2 == 0 ? kInfinity : 1);
  }
  const auto d_logits = Uploaded(logits);
  const RoutingMemory memory(3, kExperts, kActive);
  Route(d_logits.get(), nullptr, memory.routing(), nullptr);
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  ExpectSorted(memory.routing(), {0, 1, 2, 0, 1, 2, 0, 2, 4});
  for (const float weight : Downloaded(static_cast<const float*>(memory.routing().weight), 9)) {
    EXPECT_NEAR(weight, 1.0 / 3, 1e-6);
  }
}

struct GemmShape {
  int32_t rows, experts, active;
  int64_t n, k;
};

// Fewer items than warps and more; experts that many rows take; widths of real models, cut.
constexpr GemmShape kShapes[] = {
    {1, 8, 2, 16, 64},     {2, 4, 1, 8, 128},     {8, 32, 4, 2200, 192}, {1, 16, 8, 1536, 2048},
    {20, 4, 2, 1064, 320}, {3, 16, 4, 5760, 128}, {5, 8, 3, 72, 2880},
};

class Taken {
 public:
  Taken(std::mt19937& random, const GemmShape& s)
      : memory(s.rows, s.experts, s.active), experts([&] {
          const auto logits = RandomBf16(random, int64_t{s.rows} * s.experts, 2);
          Route(Uploaded(logits).get(), nullptr, memory.routing(), nullptr);
          Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
          return Best(logits, s.rows, s.experts, s.active);
        }()) {
    const Routing& routing = memory.routing();
    place_of = Downloaded(static_cast<const int32_t*>(routing.place_of), routing.pairs());
    weight = Downloaded(static_cast<const float*>(routing.weight), routing.pairs());
  }
  RoutingMemory memory;
  std::vector<int32_t> experts, place_of;  // by pair
  std::vector<float> weight;
};

std::pair<double, double> Product(const __nv_bfloat16* a, const __nv_bfloat16* b, int64_t k) {
  double sum = 0, magnitude = 0;
  for (int64_t i = 0; i < k; ++i) {
    const double product = Value(a[i]) * Value(b[i]);
    sum += product;
    magnitude += std::abs(product);
  }
  return {sum, magnitude};
}

TEST_F(Experts, GroupedGemmMatchesDoubleAndWritesNothingElse) {
  for (const GemmShape& s : kShapes) {
    SCOPED_TRACE(testing::Message() << s.rows << " rows, n " << s.n << ", k " << s.k);
    const Taken taken(random_, s);
    const Routing& routing = taken.memory.routing();
    const auto a = RandomBf16(random_, s.rows * s.k);
    const auto b = RandomBf16(random_, s.experts * s.n * s.k);
    const auto d_a = Uploaded(a), d_b = Uploaded(b);
    constexpr int64_t kBeyond = 64;
    const auto d_c = Poisoned<__nv_bfloat16>(routing.pairs() * s.n + kBeyond);
    ASSERT_TRUE(HasGroupedGemm(routing, s.n, s.k, false));
    GroupedGemm(d_a.get(), d_b.get(), d_c.get(), routing, s.n, s.k, nullptr);
    const auto c = ToHost(d_c);
    for (int pair = 0; pair < routing.pairs(); ++pair) {
      for (int64_t column = 0; column < s.n; ++column) {
        const auto [sum, magnitude] =
            Product(&a[pair / s.active * s.k],
                    &b[(int64_t{taken.experts[pair]} * s.n + column) * s.k], s.k);
        const int64_t at = taken.place_of[pair] * s.n + column;
        ExpectRounded(sum, c[at], magnitude, at);
        if (HasFatalFailure()) return;
      }
    }
    for (int64_t i = routing.pairs() * s.n; i < d_c.size(); ++i) ASSERT_EQ(Bits(c[i]), 0xFFFF);
  }
}

TEST_F(Experts, GroupedGemmSumAddsUpWhatARowsExpertsMake) {
  for (const GemmShape& s : kShapes) {
    for (const bool adds : {false, true}) {
      SCOPED_TRACE(testing::Message() << s.rows << " rows, n " << s.n << ", k " << s.k);
      const Taken taken(random_, s);
      const Routing& routing = taken.memory.routing();
      const auto a = RandomBf16(random_, routing.pairs() * s.k);
      const auto b = RandomBf16(random_, s.experts * s.n * s.k);
      const auto before = RandomBf16(random_, s.rows * s.n);
      const auto d_a = Uploaded(a), d_b = Uploaded(b), d_c = Uploaded(before);
      ASSERT_TRUE(HasGroupedGemm(routing, s.n, s.k, true));
      GroupedGemmSum(d_a.get(), d_b.get(), d_c.get(), routing, s.n, s.k, adds, nullptr);
      const auto c = ToHost(d_c);
      for (int row = 0; row < s.rows; ++row) {
        for (int64_t column = 0; column < s.n; ++column) {
          const int64_t at = row * s.n + column;
          double all = adds ? Value(before[at]) : 0, scale = 1;
          for (int pair = row * s.active; pair < (row + 1) * s.active; ++pair) {
            const auto [sum, magnitude] =
                Product(&a[taken.place_of[pair] * s.k],
                        &b[(int64_t{taken.experts[pair]} * s.n + column) * s.k], s.k);
            all += taken.weight[pair] * sum;
            scale += taken.weight[pair] * magnitude;
          }
          ExpectRounded(all, c[at], scale, at);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(Experts, GroupedGemmRepeatsItself) {
  constexpr GemmShape kShape = {8, 8, 4, 2200, 768};
  const Taken taken(random_, kShape);
  const auto a = RandomBf16(random_, taken.memory.routing().pairs() * kShape.k);
  const auto b = RandomBf16(random_, kShape.experts * kShape.n * kShape.k);
  const auto d_a = Uploaded(a), d_b = Uploaded(b);
  std::vector<__nv_bfloat16> first;
  for (int run = 0; run < 5; ++run) {
    const auto d_c = Poisoned<__nv_bfloat16>(kShape.rows * kShape.n);
    GroupedGemmSum(d_a.get(), d_b.get(), d_c.get(), taken.memory.routing(), kShape.n, kShape.k,
                   /*adds=*/false, nullptr);
    const auto c = ToHost(d_c);
    if (run == 0) first = c;
    for (size_t i = 0; i < c.size(); ++i) ASSERT_EQ(Bits(first[i]), Bits(c[i])) << i;
  }
}

TEST_F(Experts, WrongShapesAreErrors) {
  const auto data = Poisoned<__nv_bfloat16>(64);
  const RoutingMemory memory(2, 8, 2), many(4096, 8, 2);
  const Routing& routing = memory.routing();
  EXPECT_TRUE(HasGroupedGemm(routing, 64, 64, true));
  for (const auto& [n, k] : {std::pair{12, 64}, {64, 96}, {0, 64}, {64, 0}}) {
    EXPECT_FALSE(HasGroupedGemm(routing, n, k, false)) << n << ' ' << k;
    EXPECT_THROW(GroupedGemm(data.get(), data.get(), data.get(), routing, n, k, nullptr), Error);
  }
  EXPECT_FALSE(HasGroupedGemm(many.routing(), 64 * 1024, 64, true));
  Routing wrong = routing;
  wrong.active = 9;
  EXPECT_THROW(Route(data.get(), nullptr, wrong, nullptr), Error);
  wrong = routing;
  wrong.experts = 513;
  EXPECT_THROW(Route(data.get(), nullptr, wrong, nullptr), Error);
}

TEST(SpreadExperts, TakesAsManyAsAskedEachAboutAsOften) {
  for (const auto& [rows, active, count, distinct] :
       {std::array{1, 8, 128, 8}, {8, 8, 128, 51}, {8, 4, 32, 21}, {32, 8, 128, 128}}) {
    const std::vector<int32_t> taken = SpreadExperts(rows, active, count, distinct, 5);
    ASSERT_EQ(std::ssize(taken), rows * active);
    std::vector<int> rows_of(static_cast<size_t>(count));
    for (int row = 0; row < rows; ++row) {
      const std::set<int32_t> of_row(taken.begin() + row * active,
                                     taken.begin() + (row + 1) * active);
      EXPECT_EQ(std::ssize(of_row), active) << "row " << row;
      for (const int32_t expert : of_row) ++rows_of.at(static_cast<size_t>(expert));
    }
    std::erase(rows_of, 0);
    EXPECT_EQ(std::ssize(rows_of), distinct);
    EXPECT_LE(*std::ranges::max_element(rows_of), *std::ranges::min_element(rows_of) + 1);
    EXPECT_NE(SpreadExperts(rows, active, count, distinct, 6), taken);
  }
}

// A model's layers take, on average, what a plan counts.
TEST_F(Experts, ChoicesTakeTheExpectedNumberOnAverage) {
  constexpr int32_t kRows = 8, kActive = 8, kCount = 128, kLayers = 48;
  const double expected = kCount * (1 - std::pow(1 - double{kActive} / kCount, kRows));
  const ExpertChoices choices(kRows, kActive, kCount, expected);
  double sum = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto taken = Downloaded(choices.At(1, layer), kRows * kActive);
    sum += static_cast<double>(std::set<int32_t>(taken.begin(), taken.end()).size());
  }
  EXPECT_NEAR(sum / kLayers, expected, 1.0 / kLayers + 1e-9);
  EXPECT_NE(Downloaded(choices.At(0, 0), kRows * kActive),
            Downloaded(choices.At(1, 0), kRows * kActive));
}

}  // namespace
}  // namespace stallcast::kernels
