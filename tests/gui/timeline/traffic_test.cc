// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "gui/timeline/timeline_model.h"
#include "tests/gui/timeline/random_timeline.h"

namespace stallcast::gui {
namespace {

TEST(TrafficTest, ACopysBytesAreSpreadEvenlyOverIt) {
  traces::Timeline t = EmptyTimeline();
  Add(t, {.lane = 2, .role = traces::Role::kRecall, .start = 1000, .duration = 400, .bytes = 100});
  Add(t, {.lane = 2, .role = traces::Role::kOffload, .start = 2000, .duration = 100, .bytes = 7});
  Add(t, {.lane = 1, .role = traces::Role::kMlp, .start = 3000, .duration = 100, .bytes = 1000});
  Add(t, {.lane = 0, .role = traces::Role::kRecall, .start = 0, .duration = 900, .bytes = 999});
  const auto model = TimelineModel::Build(t);
  const auto until = [&](Way way, int64_t time) {
    return model->TrafficBefore(way, Picoseconds(time));
  };
  EXPECT_EQ(until(Way::kToGpu, 1000), 0);
  EXPECT_EQ(until(Way::kToGpu, 1100), 25);
  EXPECT_EQ(until(Way::kToGpu, 1400), 100) << "what a host thread gathers is not on the link";
  EXPECT_EQ(until(Way::kToGpu, 9000), 100);
  EXPECT_EQ(until(Way::kToHost, 2050), 3.5);
  EXPECT_EQ(until(Way::kMemory, 2000), 0);
  EXPECT_EQ(until(Way::kMemory, 3050), 500) << "a kernel reads memory";
  EXPECT_EQ(model->TrafficLane(Way::kToGpu), 2);
  EXPECT_EQ(TimelineModel::Build(EmptyTimeline())->TrafficLane(Way::kToGpu), -1);
}

TEST(TrafficTest, OfKernelsWithoutBytesThereIsNoRate) {
  traces::Timeline t = EmptyTimeline();
  Add(t, {.lane = 1, .role = traces::Role::kMlp, .start = 0, .duration = 100, .bytes = 8});
  Add(t, {.lane = 1, .role = traces::Role::kMlp, .start = 100, .duration = 200, .bytes = 0});
  EXPECT_EQ(TimelineModel::Build(t)->TrafficLane(Way::kMemory), -1);
}

TEST(TrafficTest, IsWhatAddingUpAllRowsGives) {
  std::mt19937 random(3);
  for (uint32_t seed = 0; seed < 20; ++seed) {
    traces::Timeline made = RandomTimeline(seed, 400);
    for (int64_t& bytes : made.bytes) bytes = std::max<int64_t>(bytes, 1);
    const auto model = TimelineModel::Build(made);
    const traces::Timeline& t = model->timeline();
    for (int i = 0; i < 50; ++i) {
      const Picoseconds at(static_cast<int64_t>(random()) % (model->end().count() + 2));
      for (const Way way : kWays) {
        const auto goes = [way](traces::Role role) {
          if (way == Way::kToGpu) return role == traces::Role::kRecall;
          if (way == Way::kToHost) return role == traces::Role::kOffload;
          return role != traces::Role::kRecall && role != traces::Role::kOffload &&
                 role != traces::Role::kSync && role != traces::Role::kHost;
        };
        double sum = 0;
        for (int64_t row = 0; row < model->rows(); ++row) {
          const auto k = static_cast<size_t>(row);
          if (!goes(t.role[k]) || model->IsCall(row) || t.start[k] >= at) continue;
          const double run =
              static_cast<double>((std::min(at, model->End(row)) - t.start[k]).count());
          const auto whole = static_cast<double>(t.duration[k].count());
          sum += static_cast<double>(t.bytes[k]) * (whole > 0 ? run / whole : 1);
        }
        EXPECT_NEAR(model->TrafficBefore(way, at), sum, 1e-9 * sum + 1e-6) << seed;
      }
    }
  }
}

}  // namespace
}  // namespace stallcast::gui
