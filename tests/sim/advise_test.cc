// Advice is the best of its grid, says what binds, and a search loses little against all points.
#include "sim/advise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "sim/names.h"
#include "tests/scratch_folder.h"
#include "tests/sim/small_trace.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

class AdviseTest : public testing::Test {
 protected:
  AdviseTest() {
    WriteSmallTrace(folder_.path() / "t.kvt");
    predictor_.emplace(folder_.path() / "t.kvt", PredictorOptions{});
  }

  static AdviseRequest Small() {
    AdviseRequest request;
    request.base.prefill = false;
    request.base.context = 2048;
    request.methods = {"freekv", "quest", "streaming", "full"};
    request.machines = {"h200", "a100-40gb"};
    request.batches = {"1", "4", "16"};
    request.params = {{"budget", {"1280", "1536", "1792"}}};
    request.extent = Extent::kAll;
    return request;
  }

  ScratchFolder folder_;
  std::optional<Predictor> predictor_;
};

TEST_F(AdviseTest, TheBestIsTheBestOfAllThatMeetWhatIsRequired) {
  for (const Objective objective : {Objective::kTokensPerSecond, Objective::kStep}) {
    AdviseRequest request = Small();
    request.objective = objective;
    request.required.min_mass = 0.9;
    const Advice advice = Advise(*predictor_, request);
    ASSERT_TRUE(advice.exact);
    ASSERT_FALSE(advice.good.empty());
    int64_t left_out = 0;
    for (const auto& [why, points] : advice.rejected) left_out += points;
    for (const auto& [why, points] : advice.failed) left_out += points;
    EXPECT_EQ(advice.predicted + left_out, advice.points);
    double least = INFINITY;
    for (const Candidate& each : advice.candidates) {
      if (request.required.Met(FiguresOf(each.prediction))) {
        least = std::min(least, ObjectiveOf(each, objective));
      }
    }
    EXPECT_EQ(ObjectiveOf(advice.candidates[advice.good.front()], objective), least);
  }
}

TEST_F(AdviseTest, WhatBindsIsWhatWouldBeBetterWithout) {
  AdviseRequest request = Small();
  const Advice free = Advise(*predictor_, request);
  ASSERT_FALSE(free.good.empty());
  // A limit just below what the best takes.
  const double gpu = FiguresOf(free.candidates[free.good.front()].prediction).gpu_bytes;
  request.required.max_gpu_bytes = gpu - 1;
  const Advice bound = Advise(*predictor_, request);
  const auto binds = [&](Relaxation::What what) {
    return std::find_if(bound.relaxations.begin(), bound.relaxations.end(),
                        [&](const Relaxation& r) { return r.what == what; });
  };
  const auto of_gpu = binds(Relaxation::What::kGpu);
  ASSERT_NE(of_gpu, bound.relaxations.end());
  EXPECT_EQ(ObjectiveOf(bound.candidates[of_gpu->best], request.objective),
            ObjectiveOf(free.candidates[free.good.front()], request.objective));
  EXPECT_EQ(binds(Relaxation::What::kStep), bound.relaxations.end());
}

TEST_F(AdviseTest, NothingBeatsTheFront) {
  const AdviseRequest request = Small();
  const Advice advice = Advise(*predictor_, request);
  const std::set<size_t> front(advice.front.begin(), advice.front.end());
  const auto coordinates = [&](size_t i) {
    const Figures f = FiguresOf(advice.candidates[i].prediction);
    return std::array{ObjectiveOf(advice.candidates[i], request.objective), f.gpu_bytes,
                      -f.attention_mass};
  };
  for (size_t i = 0; i < advice.candidates.size(); ++i) {
    bool beaten = false;
    for (size_t j = 0; j < advice.candidates.size(); ++j) {
      const auto a = coordinates(i), b = coordinates(j);
      beaten |= b[0] <= a[0] && b[1] <= a[1] && b[2] <= a[2] && b != a;
    }
    EXPECT_EQ(front.contains(i), !beaten) << i;
  }
}

TEST_F(AdviseTest, CostIsThePriceOfAMillionTokens) {
  AdviseRequest request = Small();
  request.objective = Objective::kCost;
  EXPECT_THROW(Advise(*predictor_, request), Error);
  request.price_per_hour = {{"h200", 3.6}, {"a100-40gb", 1.8}};
  const Advice advice = Advise(*predictor_, request);
  for (const Candidate& each : advice.candidates) {
    const double price = each.prediction.request.machine == "h200" ? 3.6 : 1.8;
    EXPECT_NEAR(each.cost * each.prediction.metrics.tokens_per_second, price / 3600 * 1e6,
                1e-9 * price / 3600 * 1e6);
  }
}

TEST_F(AdviseTest, NoStepIsShorterThanItsBound) {
  AdviseRequest request = Small();
  request.methods = MethodNames();
  for (const Candidate& each : Advise(*predictor_, request).candidates) {
    const Prediction& p = each.prediction;
    const Needs needs = predictor_->NeedsOf(each.point.request);
    EXPECT_GE(p.metrics.step_mean, needs.least_step) << p.request.method << ' ' << p.request.batch;
    EXPECT_LE(p.metrics.tokens_per_second, needs.most_tokens_per_second);
    EXPECT_EQ(p.gpu_memory, needs.gpu);
    EXPECT_EQ(p.fits, needs.fits);
  }
}

TEST_F(AdviseTest, ASearchIsWithinOnePercentOfAllPoints) {
  struct Case {
    Objective objective;
    double min_mass, max_step_ms;
    std::vector<std::string> batches;
  };
  for (const Case& c :
       {Case{Objective::kTokensPerSecond, 0.95, Requirements::kAny, {"1", "2", "4", "8", "16"}},
        Case{Objective::kStep, 0.95, Requirements::kAny, {"1", "2", "4"}},
        Case{Objective::kTokensPerSecond, 0.9, 1, {"1", "4", "16", "64"}},
        Case{Objective::kCost, 0.9, Requirements::kAny, {"1", "8", "32"}},
        Case{Objective::kStep, 0, Requirements::kAny, {"1", "3", "9"}}}) {
    AdviseRequest request = Small();
    request.base.steps = 24;
    request.methods = MethodNames();
    request.objective = c.objective;
    request.required = {.min_mass = c.min_mass, .max_step_ms = c.max_step_ms};
    request.batches = c.batches;
    request.price_per_hour = {{"h200", 3.5}, {"a100-40gb", 1.2}};
    request.extent = Extent::kAll;
    const Advice all = Advise(*predictor_, request);
    request.extent = Extent::kSearch;
    const Advice search = Advise(*predictor_, request);
    ASSERT_TRUE(all.exact);
    ASSERT_FALSE(search.exact);
    EXPECT_LT(search.predicted, all.predicted / 2);
    ASSERT_EQ(search.good.empty(), all.good.empty());
    if (all.good.empty()) continue;
    const double best = ObjectiveOf(all.candidates[all.good.front()], c.objective);
    const double found = ObjectiveOf(search.candidates[search.good.front()], c.objective);
    EXPECT_LE(found - best, 0.01 * std::abs(best));
  }
}

TEST_F(AdviseTest, WhatNothingMeetsHasANearest) {
  for (const Extent extent : {Extent::kAll, Extent::kSearch}) {
    AdviseRequest request = Small();
    request.extent = extent;
    request.required.max_gpu_bytes = 1000;
    request.required.max_step_ms = 1e-6;
    const Advice advice = Advise(*predictor_, request);
    EXPECT_TRUE(advice.good.empty());
    EXPECT_FALSE(advice.candidates.empty());
  }
}

}  // namespace
}  // namespace stallcast::sim
