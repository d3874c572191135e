// Ranking with many equal scores: ties go to the smaller id.
#include "models/methods/common/ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "models/methods/freekv/policy.h"
#include "models/methods/vector_kernels.h"
#include "tests/models/methods/random_trace.h"

namespace stallcast::methods {
namespace {

TEST(Best, AgreesWithAStableSort) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const int count = 1 + static_cast<int>(random() % 40);
    std::vector<uint32_t> ids;
    std::vector<float> scores;
    for (uint32_t id = 7; id < 7u + count; ++id) {
      scores.push_back(static_cast<float>(random() % 5) - 2);
      if (random() % 3 != 0) ids.push_back(id);
    }
    const int64_t wanted = static_cast<int64_t>(random() % 42);
    std::vector<uint32_t> sorted = ids;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](uint32_t a, uint32_t b) { return scores[a - 7] > scores[b - 7]; });
    sorted.resize(std::min<size_t>(sorted.size(), static_cast<size_t>(wanted)));
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(Best(ids, scores, 7, wanted), sorted);
  }
}

// Else the place of a token decides which of equal ones is taken.
TEST(PoolScores, EqualScoresStayEqualWhereverTheyStand) {
  for (const Pooling pooling : {Pooling::kSoftmaxMean, Pooling::kSoftmaxMax, Pooling::kMean}) {
    for (int64_t count = 1; count <= 70; ++count) {
      const std::vector<float> row(static_cast<size_t>(count + kPanel), 5.50947952f);
      const float* const rows[] = {row.data(), row.data(), row.data()};
      std::vector<float> pooled;
      PoolScores(pooling, rows, count, 0.204124145f, pooled);
      EXPECT_EQ(pooled, std::vector<float>(static_cast<size_t>(count), pooled[0])) << count;
    }
  }
}

TEST(Best, OfNothingOrForNothingIsEmpty) {
  EXPECT_TRUE(Best(std::span<const float>(), 3, 5).empty());
  EXPECT_TRUE(Best(std::vector<float>{1, 2, 3}, 0, 0).empty());
}

TEST(Best, EqualPagesAreTakenFromTheFirstOn) {
  traces::Trace trace = RandomTrace({.prompt = 400, .steps = 3});
  traces::Tensor& keys = trace.tensors[0];
  auto* values = reinterpret_cast<float*>(keys.data.data());
  std::fill(values, values + keys.spec.elements(), 0.5f);
  const LayerTensors tensors(trace, 0);
  for (const Pooling pooling : {Pooling::kSoftmaxMean, Pooling::kMean}) {
    FreeKvParams params{.budget = 64, .page = 8, .sink = 16, .window = 16};
    params.pooling = pooling;
    traces::LayerAccess access;
    AttendedRanges attended;
    FreeKvPolicy(params).Replay(tensors, access, attended);
    for (int64_t cell = 0; cell < access.selected.size(); ++cell) {
      const auto pages = access.selected[cell];
      EXPECT_EQ(std::vector<uint32_t>(pages.begin(), pages.end()),
                (std::vector<uint32_t>{2, 3, 4, 5}));
    }
    // All tokens weigh the same, so the mass is their share.
    const std::vector<float> mass = MeasureAttention(tensors, attended).mass;
    EXPECT_NEAR(mass[0], access.attended_tokens[0] / 401.0, 1e-6);
  }
}

}  // namespace
}  // namespace stallcast::methods
