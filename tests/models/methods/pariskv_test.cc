// ParisKV: its quantiser against closed forms, its codes against their definitions, and whole
// replays against the paper in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <random>
#include <set>

#include "models/methods/method.h"
#include "models/methods/pariskv/codes.h"
#include "models/methods/pariskv/levels.h"
#include "models/methods/pariskv/policy.h"
#include "tests/models/methods/brute_force.h"
#include "tests/models/methods/centroid_recall.h"
#include "tests/models/methods/random_trace.h"
#include "tests/models/methods/samples.h"

namespace stallcast::methods {
namespace {

// Simpson's rule with x = sin t, which takes the density's edge away.
double Integral(int dimension, double a, double b, const std::function<double(double)>& f) {
  constexpr int kPieces = 4000;
  const double norm = 2 / std::beta(0.5, (dimension - 1) / 2.0);
  const double from = std::asin(a), width = (std::asin(b) - from) / kPieces;
  double sum = 0;
  for (int i = 0; i <= kPieces; ++i) {
    const double t = from + i * width;
    const double weight = i == 0 || i == kPieces ? 1 : i % 2 == 1 ? 4 : 2;
    sum += weight * f(std::sin(t)) * std::pow(std::cos(t), dimension - 2);
  }
  return norm * sum * width / 3;
}

TEST(ParisKvLevels, ACoordinateInThreeDimensionsIsUniform) {
  // Archimedes: so levels are the middles of eighths.
  const MagnitudeLevels q = LloydMaxLevels(3);
  for (int t = 0; t < kMagnitudes; ++t) EXPECT_NEAR(q.level[t], (2 * t + 1) / 16.0, 1e-9);
  for (int t = 0; t < kMagnitudes - 1; ++t) EXPECT_NEAR(q.threshold[t], (t + 1) / 8.0, 1e-9);
}

TEST(ParisKvLevels, LevelsAreMeansAndThresholdsMiddles) {
  for (const int dimension : {2, 3, 4, 6, 8}) {
    SCOPED_TRACE(dimension);
    const MagnitudeLevels q = LloydMaxLevels(dimension);
    for (int t = 0; t < kMagnitudes; ++t) {
      const double a = t == 0 ? 0 : q.threshold[t - 1];
      const double b = t == kMagnitudes - 1 ? 1 : q.threshold[t];
      const double mass = Integral(dimension, a, b, [](double) { return 1; });
      const double moment = Integral(dimension, a, b, [](double x) { return x; });
      EXPECT_NEAR(MagnitudeCdf(dimension, b) - MagnitudeCdf(dimension, a), mass, 1e-7);
      EXPECT_NEAR(q.level[t], moment / mass, 1e-6);
      if (t > 0) {
        EXPECT_NEAR(q.threshold[t - 1], (q.level[t - 1] + q.level[t]) / 2, 1e-12);
      }
    }
  }
}

TEST(ParisKvLevels, MeanMagnitudeIsTheClosedForm) {
  for (int n = 2; n <= 8; ++n) {
    const double mean =
        std::tgamma(n / 2.0) / (std::sqrt(std::numbers::pi) * std::tgamma((n + 1) / 2.0));
    EXPECT_NEAR(MagnitudeMoment(n, 0, 1), mean, 1e-12) << n;
  }
}

std::vector<float> RandomVector(std::mt19937& random, int dim) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(dim));
  for (float& value : x) value = normal(random);
  return x;
}

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                            [](float x, float y) { return double{x} * y; });
}

TEST(ParisKvCodes, RotationIsTheHadamardMatrixOfRandomSigns) {
  std::mt19937 random(1);
  for (const int dim : {64, 128, 24}) {
    const CodeBook book(dim, dim / 8, true, 7);
    EXPECT_EQ(book.hadamard, dim == 24 ? 8 : dim);
    const std::vector<float> x = RandomVector(random, dim);
    std::vector<float> y(x.size());
    book.Rotate(x.data(), y.data());
    for (int i = 0; i < dim; ++i) {
      double sum = 0;
      const int block = i / book.hadamard * book.hadamard;
      for (int j = block; j < block + book.hadamard; ++j) {
        const int parity = __builtin_popcount((i - block) & (j - block)) % 2;
        sum += (parity == 1 ? -1 : 1) * double{RotationSign(7, j)} * x[j];
      }
      ASSERT_NEAR(y[i], sum, 1e-4);
    }
    EXPECT_NEAR(Dot(y, y), book.hadamard * Dot(x, x), 1e-3 * Dot(y, y));
  }
  // Signs are fair enough: a binomial of 4,096 is within five deviations of its mean.
  int negative = 0;
  for (int i = 0; i < 4096; ++i) negative += RotationSign(7, i) < 0 ? 1 : 0;
  EXPECT_NEAR(negative, 2048, 160);
}

TEST(ParisKvCodes, IdsNameTheNearestSignPattern) {
  std::mt19937 random(2);
  const CodeBook book(128, 16, true, 1);
  KeyCodes codes(book);
  for (int token = 0; token < 50; ++token) {
    const std::vector<float> key = RandomVector(random, 128);
    codes.Append(key.data());
    std::vector<float> y(128);
    book.Rotate(key.data(), y.data());
    for (int b = 0; b < 16; ++b) {
      int best = 0;
      double most = -1e300;
      for (int c = 0; c < 256; ++c) {
        double dot = 0;
        for (int j = 0; j < 8; ++j) dot += ((c >> j & 1) != 0 ? 1.0 : -1.0) * y[b * 8 + j];
        if (dot > most) most = dot, best = c;
      }
      ASSERT_EQ(codes.ids(token)[b], best);
    }
  }
}

TEST(ParisKvCodes, AlignmentMakesAKeysOwnDirectionExact) {
  // <v, u> / alpha is 1 by definition, so the estimate of <k, k> errs by the weights' bf16 alone.
  std::mt19937 random(3);
  for (const auto& [dim, subspaces] : {std::pair{128, 16}, {64, 16}, {24, 4}, {128, 32}}) {
    const CodeBook book(dim, subspaces, true, 5);
    KeyCodes codes(book);
    for (int token = 0; token < 20; ++token) {
      const std::vector<float> key = RandomVector(random, dim);
      codes.Append(key.data());
      std::vector<float> rotated(key.size());
      book.Rotate(key.data(), rotated.data());
      EXPECT_NEAR(Estimator(book, rotated.data())(codes, token), Dot(key, key),
                  Dot(key, key) / 256);
    }
  }
}

TEST(ParisKvCodes, EstimatesAreUnbiasedAndClose) {
  // 4 bits a coordinate: a few per cent of |k||q| over random pairs, and no drift of the mean.
  std::mt19937 random(4);
  const CodeBook book(128, 16, true, 1);
  KeyCodes codes(book);
  double error = 0, squares = 0;
  constexpr int kPairs = 2000;
  for (int token = 0; token < kPairs; ++token) {
    const std::vector<float> key = RandomVector(random, 128), query = RandomVector(random, 128);
    codes.Append(key.data());
    std::vector<float> rotated(128);
    book.Rotate(query.data(), rotated.data());
    const double relative = (Estimator(book, rotated.data())(codes, token) - Dot(key, query)) /
                            std::sqrt(Dot(key, key) * Dot(query, query));
    error += relative / kPairs;
    squares += relative * relative / kPairs;
  }
  EXPECT_LT(std::sqrt(squares), 0.02);
  EXPECT_LT(std::abs(error), 0.002);
}

TEST(ParisKvCodes, ZeroKeysAndQueriesAreHarmless) {
  const CodeBook book(64, 8, true, 1);
  const std::vector<float> zero(64, 0.0f);
  KeyCodes codes(book);
  codes.Append(zero.data());
  EXPECT_EQ(Estimator(book, zero.data())(codes, 0), 0);
  const std::vector<int32_t> counts = ClusterCounts(book, codes, 1);
  // All patterns tie, so the smallest number comes first; the only key is in the last one.
  const std::vector<uint8_t> table = CollisionTable(book, zero.data(), counts, 1, 1);
  EXPECT_EQ(table[0], kTiers);
}

TEST(ParisKvCodes, TiersReachTheirSharesInWholeClusters) {
  std::mt19937 random(5);
  const CodeBook book(64, 8, true, 3);
  KeyCodes codes(book);
  constexpr int kTokens = 3000;
  for (int token = 0; token < kTokens; ++token) codes.Append(RandomVector(random, 64).data());
  const std::vector<int32_t> counts = ClusterCounts(book, codes, kTokens);
  const std::vector<float> query = RandomVector(random, 64);
  std::vector<float> rotated(64);
  book.Rotate(query.data(), rotated.data());
  for (const double rho : {0.1, 0.25, 1.0}) {
    const std::vector<uint8_t> table = CollisionTable(book, rotated.data(), counts, rho, kTokens);
    for (int b = 0; b < 8; ++b) {
      std::array<int, kTiers + 1> keys{}, largest{};
      for (int token = 0; token < kTokens; ++token) ++keys[table[b * 256 + codes.ids(token)[b]]];
      for (int c = 0; c < 256; ++c) {
        int& most = largest[table[b * 256 + c]];
        most = std::max(most, counts[b * 256 + c]);
      }
      int reached = 0;
      for (int tier = 0; tier < kTiers; ++tier) {
        const int bonus = kTiers - tier;
        reached += keys[bonus];
        const double share = kTierShares[tier] * rho * kTokens;
        EXPECT_GE(reached, share);
        EXPECT_LT(reached, share + *std::max_element(largest.begin(), largest.end()) + 1);
      }
    }
  }
}

TEST(ParisKvCodes, BucketsAreAStableSort) {
  std::mt19937 random(6);
  for (const int values : {1, 3, 97, 256}) {
    std::vector<uint8_t> scores(1000);
    for (uint8_t& score : scores) score = static_cast<uint8_t>(random() % values);
    std::vector<uint32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
    for (const int count : {0, 1, 99, 500, 1000, 2000}) {
      std::vector<uint32_t> want(order.begin(), order.begin() + std::min(count, 1000));
      std::sort(want.begin(), want.end());
      EXPECT_EQ(BestBuckets(scores, count), want) << values << " " << count;
    }
  }
  EXPECT_TRUE(BestBuckets({}, 5).empty());
}

// The paper in double precision, one vector at a time, with the rotation as a matrix.
struct Brute {
  Brute(const brute::Layer& l, const ParisKvParams& p) : layer(l), params(p), matrix(l.dim) {
    const int block = p.rotation ? l.dim & -l.dim : 1;
    for (int i = 0; i < l.dim; ++i) {
      matrix[i].assign(static_cast<size_t>(l.dim), 0);
      for (int j = 0; j < l.dim; ++j) {
        if (i / block != j / block) continue;
        const double sign = p.rotation ? RotationSign(static_cast<uint64_t>(p.seed), j) : 1.0;
        matrix[i][j] = sign * (__builtin_popcount(i % block & j % block) % 2 == 1 ? -1 : 1) /
                       std::sqrt(static_cast<double>(block));
      }
    }
  }

  brute::Vector Rotated(const brute::Vector& x) const {
    brute::Vector y;
    for (const brute::Vector& row : matrix) y.push_back(brute::Dot(row, x));
    return y;
  }

  // Tokens that a head retrieves among [sink, end).
  std::set<uint32_t> Select(int kv_head, const brute::Vector& query, int64_t end) const {
    const int dim = layer.dim, parts = static_cast<int>(params.subspaces), m = dim / parts;
    const int64_t tokens = end - params.sink;
    const MagnitudeLevels q = LloydMaxLevels(m);
    std::vector<brute::Vector> keys;
    for (int64_t t = params.sink; t < end; ++t) keys.push_back(Rotated(layer.keys[kv_head][t]));
    const brute::Vector rotated = Rotated(query);
    std::vector<int> votes(static_cast<size_t>(tokens));
    const ParisKvShares shares = SharesOf(params, tokens);
    const auto id = [&](const brute::Vector& key, int b) {
      int bits = 0;
      for (int j = 0; j < m; ++j) bits |= (key[b * m + j] < 0 ? 0 : 1) << j;
      return bits;
    };
    for (int b = 0; b < parts; ++b) {
      const auto score = [&](int c) {
        double sum = 0;
        for (int j = 0; j < m; ++j) sum += ((c >> j & 1) != 0 ? 1 : -1) * rotated[b * m + j];
        return sum;
      };
      for (int64_t t = 0; t < tokens; ++t) {
        const int own = id(keys[t], b);
        int64_t before = 0;
        for (const brute::Vector& key : keys) before += score(id(key, b)) > score(own) ? 1 : 0;
        for (int tier = 0; tier < kTiers; ++tier) {
          if (static_cast<double>(before) <
              kTierShares[tier] * shares.rho * static_cast<double>(tokens)) {
            votes[t] += kTiers - tier;
            break;
          }
        }
      }
    }
    std::vector<uint32_t> order(static_cast<size_t>(tokens));
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t x, uint32_t y) { return votes[x] > votes[y]; });
    order.resize(static_cast<size_t>(Candidates(params, tokens)));
    std::vector<std::pair<double, uint32_t>> ranked;
    for (const uint32_t t : order) {
      double estimate = 0;
      for (int b = 0; b < parts; ++b) {
        brute::Vector u, v, part;
        double energy = 0;
        for (int j = 0; j < m; ++j) energy += keys[t][b * m + j] * keys[t][b * m + j];
        for (int j = 0; j < m; ++j) {
          u.push_back(keys[t][b * m + j] / std::sqrt(energy));
          const auto bin =
              std::upper_bound(q.threshold.begin(), q.threshold.end(), std::abs(u.back())) -
              q.threshold.begin();
          v.push_back(std::copysign(q.level[bin], u.back()));
          part.push_back(rotated[b * m + j]);
        }
        estimate += std::sqrt(energy) * brute::Dot(v, part) / brute::Dot(v, u);
      }
      ranked.emplace_back(-estimate, t);
    }
    std::sort(ranked.begin(), ranked.end());
    std::set<uint32_t> chosen;
    for (size_t i = 0; i < ranked.size() && i < static_cast<size_t>(params.topk); ++i) {
      chosen.insert(ranked[i].second + static_cast<uint32_t>(params.sink));
    }
    return chosen;
  }

  const brute::Layer& layer;
  const ParisKvParams& params;
  std::vector<brute::Vector> matrix;
};

// Ids as the policy logs them; near ties of estimates, which bf16 weights decide otherwise than
// doubles do, may exchange a token or two of a cell.
void ExpectSame(const traces::LayerAccess& access, const AttendedRanges& attended,
                const brute::Layer& layer, const ParisKvParams& params) {
  const Brute paper(layer, params);
  const bool alone = params.query == ParisKvParams::Query::kQueryHead;
  const int heads = alone ? layer.query_heads : layer.kv_heads;
  ASSERT_EQ(access.heads, heads);
  int64_t want_all = 0, found = 0;
  for (int step = 0; step < layer.steps; ++step) {
    const int64_t context = layer.prompt + step + 1;
    const int64_t slid = layer.prompt + step / params.update * params.update;
    const int64_t end = std::max(params.sink, slid - params.local);
    for (int head = 0; head < heads; ++head) {
      const int64_t cell = int64_t{step} * heads + head;
      std::set<uint32_t> want;
      const bool sparse = context >= params.first_sparse() && end > params.sink;
      if (sparse) {
        brute::Vector query(static_cast<size_t>(layer.dim));
        const int queries = layer.query_heads / heads;
        for (int g = 0; g < queries; ++g) {
          const brute::Vector& q = layer.Query(head * queries + g, context - 1);
          for (int i = 0; i < layer.dim; ++i) query[i] += q[i] / queries;
        }
        want = paper.Select(head * queries / layer.group, query, end);
      }
      const std::span<const uint32_t> got = access.selected[cell];
      ASSERT_EQ(got.size(), want.size()) << step;
      ASSERT_TRUE(std::ranges::equal(got, access.recalled_now[cell]));
      ASSERT_EQ(access.flags[cell], sparse ? traces::kSelectedNow : 0);
      want_all += static_cast<int64_t>(want.size());
      for (const uint32_t id : got) found += want.contains(id) ? 1 : 0;

      std::vector<bool> is_attended(static_cast<size_t>(context));
      for (const AttendedRanges::Range& r : attended.Cell(step, head)) {
        for (int t = r.begin; t < r.end; ++t) is_attended.at(static_cast<size_t>(t)) = true;
      }
      for (int64_t t = 0; t < context; ++t) {
        const bool near = !sparse || t < params.sink || t >= end;
        const bool chosen = std::ranges::binary_search(got, static_cast<uint32_t>(t));
        ASSERT_EQ(is_attended[t], near || chosen) << step << " " << t;
      }
    }
  }
  ASSERT_GT(want_all, 0);
  EXPECT_GE(static_cast<double>(found), 0.99 * static_cast<double>(want_all));
}

ParisKvParams SmallParams() {
  return {.topk = 12, .sink = 10, .local = 20, .update = 16, .dense_until = 0, .subspaces = 8};
}

struct Shape {
  RandomTraceOptions trace;
  ParisKvParams params;
};

std::vector<Shape> Shapes() {
  ParisKvParams fixed = SmallParams(), alone = SmallParams(), plain = SmallParams();
  fixed.ratios = ParisKvParams::Ratios::kFixed;
  fixed.rho = 0.4;
  fixed.beta = 0.15;
  alone.query = ParisKvParams::Query::kQueryHead;
  plain.rotation = false;
  return {{{.dim = 64, .steps = 40}, SmallParams()},
          {{.dim = 64, .steps = 33, .seed = 2}, fixed},
          {{.kv_heads = 1, .group = 4, .dim = 32, .steps = 20, .seed = 3}, alone},
          {{.dim = 64, .steps = 20, .seed = 4}, plain},
          {{.dim = 24, .prompt = 50, .steps = 60, .seed = 5}, SmallParams()},  // grows past
          {{.dim = 16, .prompt = 5, .steps = 90, .seed = 6}, SmallParams()}};  // short of the sink
}

class ParisKvOnShape : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Random, ParisKvOnShape, testing::ValuesIn(Shapes()));

TEST_P(ParisKvOnShape, SelectsWhatThePaperSays) {
  const traces::Trace trace = RandomTrace(GetParam().trace);
  const LayerTensors tensors(trace, 0);
  traces::LayerAccess access;
  AttendedRanges attended;
  ParisKvPolicy(GetParam().params).Replay(tensors, access, attended);
  ExpectSame(access, attended, brute::Layer(trace, 0), GetParam().params);
}

TEST(ParisKv, SelectsWhatThePaperSaysOnRealTensors) {
  traces::Trace trace = traces::ReadTrace(kRealTrace);
  trace.info.set_prompt_tokens(1500);
  trace.info.set_decode_steps(2);
  for (traces::Tensor& tensor : trace.tensors) {
    // Queries of the last steps, as if the prompt had ended here.
    if (tensor.spec.kind == traces::TensorKind::kQuery) tensor.spec.first_token = 1499;
  }
  const int index = trace.Layers().back();
  const LayerTensors tensors(trace, index);
  const ParisKvParams params{.local = 128, .dense_until = 0};
  traces::LayerAccess access;
  AttendedRanges attended;
  ParisKvPolicy(params).Replay(tensors, access, attended);
  ExpectSame(access, attended, brute::Layer(trace, index), params);
}

TEST(ParisKv, RegionsSlideWhenTheBufferIsFull) {
  const ParisKvParams params;  // sink 128, local 512, update 512
  EXPECT_EQ(params.RetrievalEnd(10'000, 0), 9'488);
  EXPECT_EQ(params.RetrievalEnd(10'000, 511), 9'488);
  EXPECT_EQ(params.RetrievalEnd(10'000, 512), 10'000);
  EXPECT_EQ(params.RetrievalEnd(100, 0), 128);
  EXPECT_EQ(params.first_sparse(), 2'000);
  EXPECT_EQ((ParisKvParams{.topk = 1'000}).first_sparse(), 2'640);
}

TEST(ParisKv, RefusesWhatCannotBe) {
  llm::Model model;
  model.head_dim = 128;
  const auto refuses = [&](const ParamValues& values, int64_t context, const char* says) {
    try {
      MakeMethod("pariskv", values).method->Check(model, context);
      ADD_FAILURE() << "accepted: " << says;
    } catch (const Error& error) {
      EXPECT_TRUE(error.usage());
      EXPECT_NE(error.problem().find(says), std::string::npos) << error.what();
    }
  };
  refuses({{"topk", "2000"}}, 1'000, "topk of 2000");
  refuses({{"subspaces", "12"}}, 10'000, "12 subspaces");
  refuses({{"subspaces", "8"}}, 10'000, "8 subspaces");  // 16 dimensions: more than a byte
  refuses({{"beta", "1.5"}}, 10'000, "1.5");
  refuses({{"rho", "-0.1"}}, 10'000, "-0.1");
  refuses({{"ratios", "fixed"}, {"rho", "0.05"}, {"beta", "0.1"}}, 10'000, "less than beta");
  MakeMethod("pariskv", {}).method->Check(model, 1'000);
}

TEST(ParisKv, AnalyticPatternsOutliveDriftThatLearntCentroidsDoNot) {
  // Keys turn away from where the prefill's were; 16 queries near the last ones.
  const recall::Keys keys = recall::DriftingKeys(64, 6'000, 3);
  const auto prefill = recall::Of(keys, {.centroids = recall::Centroids::kLearnt, .learn = 500});
  const auto all = recall::Of(keys, {.centroids = recall::Centroids::kLearnt, .learn = 6'000});
  const auto analytic = recall::Of(keys, {.centroids = recall::Centroids::kSigns});
  EXPECT_GT(all.candidates, prefill.candidates + 0.1);
  EXPECT_GT(analytic.candidates, prefill.candidates + 0.1);
}

TEST(ParisKvShares, ShorterRegionsGiveLargerSharesFromTheirBoundsOn) {
  ParisKvParams params;
  params.topk = 100;
  params.ratios = ParisKvParams::Ratios::kTable;
  const auto shares = [&](int64_t tokens) {
    const ParisKvShares of = SharesOf(params, tokens);
    return std::pair(of.rho, of.beta);
  };
  EXPECT_EQ(shares(4'999), std::pair(0.5, 0.5));
  EXPECT_EQ(shares(5'000), std::pair(0.3, 0.25));
  EXPECT_EQ(shares(9'999), std::pair(0.3, 0.25));
  EXPECT_EQ(shares(10'000), std::pair(0.25, 0.2));
  EXPECT_EQ(shares(29'999), std::pair(0.25, 0.2));
  EXPECT_EQ(shares(30'000), std::pair(0.2, 0.1));
  // At least as many as are retrieved, at most as many as there are.
  EXPECT_EQ(Candidates(params, 50), 50);
  EXPECT_EQ(Candidates(params, 150), 100);
  EXPECT_EQ(Candidates(params, 301), 151);
  EXPECT_EQ(Candidates(params, 30'005), 3'001);
}

}  // namespace
}  // namespace stallcast::methods
