#include "capture/calibrate/timing/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace stallcast::capture {
namespace {

TEST(FitLineTest, ALineIsRecovered) {
  const std::vector<double> x = {1e3, 1e4, 1e6, 1e9};
  std::vector<double> y;
  for (const double each : x) y.push_back(2e-6 + each / 50e9);
  const Line line = FitLine(x, y);
  EXPECT_NEAR(line.a, 2e-6, 2e-12);
  EXPECT_NEAR(line.b * 50e9, 1, 1e-6);
  EXPECT_NEAR(line.spread, 0, 1e-6);
}

TEST(FitLineTest, NeitherPartIsNegative) {
  // Through (1, 1) and (2, 4) goes -2 + 3 x. With a = 0, b is sum(x/y) / sum(x^2/y^2) = 1.2: the
  // relative errors are 0.2 and -0.4.
  const Line steep = FitLine(std::vector<double>{1, 2}, std::vector<double>{1, 4});
  EXPECT_EQ(steep.a, 0);
  EXPECT_NEAR(steep.b, 1.2, 1e-12);
  EXPECT_NEAR(steep.spread, std::sqrt((0.04 + 0.16) / 2), 1e-12);
  // Falling: a constant of sum(1/y) / sum(1/y^2) = 1.5 / 1.25.
  const Line falling = FitLine(std::vector<double>{1, 2}, std::vector<double>{2, 1});
  EXPECT_EQ(falling.b, 0);
  EXPECT_NEAR(falling.a, 1.2, 1e-12);
}

TEST(FitLineTest, EqualPlacesGiveAConstant) {
  const Line line = FitLine(std::vector<double>{3, 3}, std::vector<double>{1, 1});
  EXPECT_NEAR(line.a + 3 * line.b, 1, 1e-12);
  EXPECT_GE(line.a, 0);
  EXPECT_GE(line.b, 0);
}

std::vector<TimedWork> Layouts(double fixed, double bandwidth) {
  std::vector<TimedWork> timed;
  for (Bytes bytes = 1'000; bytes <= 1'000'000'000; bytes *= 10) {
    const plan::Work work = plan::Layout{.pieces = 1, .piece_bytes = bytes};
    const auto moved = static_cast<double>(plan::Count(work).device());
    timed.push_back({work, fixed + moved / bandwidth, 3e-6});
  }
  return timed;
}

TEST(FitKernelTest, TheLawIsRecoveredFromTimesThatFollowIt) {
  const std::vector<TimedWork> timed = Layouts(2e-6, 3e12);
  const hardware::KernelFit fit = FitKernel(timed);
  EXPECT_NEAR(fit.fixed_s / 2e-6, 1, 1e-3);
  EXPECT_NEAR(fit.bandwidth / 3e12, 1, 1e-3);
  EXPECT_EQ(fit.flops_rate, 0);
  EXPECT_EQ(fit.serial_s, 0);
  EXPECT_EQ(fit.cache_rate, 0);
  EXPECT_EQ(fit.host_s, 3e-6);
  EXPECT_EQ(fit.min_bytes, 2e3);
  EXPECT_EQ(fit.max_bytes, 2e9);
  EXPECT_LT(fit.spread, 1e-3);
  ASSERT_EQ(fit.points.size(), timed.size());
  for (size_t i = 0; i < timed.size(); ++i) {
    EXPECT_EQ(fit.points[i].shape, plan::ShapeOf(timed[i].work));
    EXPECT_EQ(fit.points[i].seconds, timed[i].seconds);
    EXPECT_NEAR(fit.points[i].factor, 1, 1e-3);
    EXPECT_EQ(fit.points[i].host_factor, 1);
  }
}

TEST(FitKernelTest, OperationsThatOutlastTheirBytesGiveTheirRate) {
  std::vector<TimedWork> timed;
  for (const int64_t rows : {1, 16, 256, 1024, 4096, 8192}) {
    const plan::Work work = plan::Gemm{.m = rows, .n = 4096, .k = 4096};
    const plan::WorkCounts counts = plan::Count(work);
    timed.push_back(
        {work, 4e-6 + std::max(static_cast<double>(counts.device()) / 4e12, counts.flops / 5e14),
         4e-6});
  }
  const hardware::KernelFit fit = FitKernel(timed);
  EXPECT_NEAR(fit.flops_rate / 5e14, 1, 0.01);
  EXPECT_NEAR(fit.bandwidth / 4e12, 1, 0.01);
  EXPECT_NEAR(fit.fixed_s / 4e-6, 1, 0.02);
}

TEST(FitKernelTest, WhatRowsShareIsLimitedByTheCache) {
  std::vector<TimedWork> timed;
  const auto add = [&](int64_t tokens, int32_t rows, int64_t distinct) {
    const plan::Work work = plan::DecodeAttention{.kv_tokens = tokens * rows,
                                                  .kv_tokens_max = tokens,
                                                  .sequences = 1,
                                                  .kv_heads = rows,
                                                  .group = 1,
                                                  .head_dim = 128,
                                                  .distinct_tokens = distinct};
    const plan::WorkCounts counts = plan::Count(work);
    timed.push_back({work,
                     5e-6 + std::max(static_cast<double>(counts.device()) / 4e12,
                                     static_cast<double>(counts.cache_read) / 7e12),
                     4e-6});
  };
  for (const int64_t tokens : {512, 2048, 8192, 32768}) {
    for (const int32_t rows : {8, 32, 128}) {
      add(tokens, rows, 0);
      add(tokens + 16, rows, tokens * rows / 4);
    }
  }
  const hardware::KernelFit fit = FitKernel(timed);
  EXPECT_NEAR(fit.cache_rate / 7e12, 1, 0.01);
  EXPECT_NEAR(fit.bandwidth / 4e12, 1, 0.01);
  EXPECT_NEAR(fit.fixed_s / 5e-6, 1, 0.02);
}

// Tens of microseconds an item, which is far from what kernels on the device take.
TEST(FitKernelTest, AChainThatOutlastsAllElseGivesTheTimeOfAnItem) {
  std::vector<TimedWork> timed;
  for (const int64_t tokens : {4096, 16384, 65536}) {
    for (const int32_t heads : {2, 4, 8}) {
      const plan::Work work = plan::FactorizeKeys{1, tokens, heads, 128, 160};
      timed.push_back({work, 50e-6 * plan::Count(work).serial_items, 4e-6});
    }
  }
  const hardware::KernelFit fit = FitKernel(timed);
  EXPECT_NEAR(fit.serial_s / 50e-6, 1, 0.01);
  EXPECT_LT(fit.fixed_s, 0.1e-3);
  EXPECT_LT(fit.spread, 0.01);
}

TEST(FitKernelTest, WhatTheLawDoesNotExplainIsFactorAndSpread) {
  std::vector<TimedWork> timed = Layouts(2e-6, 3e12);
  timed[1].seconds *= 1.3;
  timed[4].seconds /= 1.3;
  timed[1].host *= 2;
  const hardware::KernelFit fit = FitKernel(timed);
  EXPECT_GE(fit.fixed_s, 0);
  EXPECT_GT(fit.bandwidth, 0);
  EXPECT_GT(fit.points[1].factor, 1.1);
  EXPECT_LT(fit.points[4].factor, 0.95);
  EXPECT_EQ(fit.points[1].host_factor, 2);
  // Two of seven points off by log(1.3), about.
  EXPECT_GT(fit.spread, 0.07);
  EXPECT_LT(fit.spread, 0.3);
}

TEST(NeverFallingTest, KeepsWhatRisesAndLiftsWhatDoesNot) {
  EXPECT_EQ(MonotoneEnvelope({1, 3, 2, 2.5, 4}, 0.5), (std::vector<double>{1, 3, 3, 3, 4}));
  EXPECT_EQ(MonotoneEnvelope({-1, 0, 2}, 0.5), (std::vector<double>{0.5, 0.5, 2}));
  EXPECT_TRUE(MonotoneEnvelope({}, 1).empty());
}

}  // namespace
}  // namespace stallcast::capture
