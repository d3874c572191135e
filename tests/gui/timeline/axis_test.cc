// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/axis.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/gui/timeline/random_timeline.h"

namespace stallcast::gui {
namespace {

using traces::Timeline;

// Steps of these lengths one after the other, on a clock that starts at `begin`.
std::shared_ptr<const TimelineModel> Steps(int64_t begin, const std::vector<int64_t>& lengths,
                                           int32_t first_step = 0) {
  Timeline t = EmptyTimeline();
  int64_t at = begin;
  for (size_t i = 0; i < lengths.size(); ++i) {
    Add(t, {.op = static_cast<int64_t>(i),
            .step = first_step + static_cast<int32_t>(i),
            .start = at,
            .duration = lengths[i]});
    at += lengths[i];
  }
  return TimelineModel::Build(t);
}

TEST(Alignment, StepsBeginTogetherWhateverTheClocks) {
  const auto p = Steps(0, {100, 50, 80});
  const auto m = Steps(1'000'000, {70, 90, 80});
  const Alignment a = Align(p.get(), m.get(), nullptr);
  EXPECT_EQ(a.by, Alignment::By::kStep);
  ASSERT_EQ(a.stretches.size(), 3u);
  const int64_t begins[] = {0, 100, 190};  // the longer side of each step sets the pace
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(a.predicted.ToAxis(p->steps()[s].begin).count(), begins[s]);
    EXPECT_EQ(a.measured.ToAxis(m->steps()[s].begin).count(), begins[s]);
    EXPECT_EQ(a.stretches[s].axis.begin.count(), begins[s]);
  }
  EXPECT_EQ(a.whole.end.count(), 270);
  // The measured first step ends 30 before the second begins: those 30 are its slack.
  EXPECT_EQ(a.measured.EndToAxis(m->steps()[1].begin).count(), 70);
  EXPECT_EQ(a.measured.FromAxis(Picoseconds{85}), m->steps()[1].begin);
}

TEST(Alignment, StepsOfOneSideAloneAreStretchesToo) {
  const auto p = Steps(0, {10, 10, 10, 10});
  const auto m = Steps(0, {20, 20}, 2);
  const Alignment a = Align(p.get(), m.get(), nullptr);
  ASSERT_EQ(a.stretches.size(), 4u);
  for (size_t s = 0; s < 4; ++s) {
    EXPECT_EQ(a.stretches[s].step, s);
    EXPECT_TRUE(a.stretches[s].predicted);
    EXPECT_EQ(a.stretches[s].measured, s >= 2);
  }
  EXPECT_EQ(a.predicted.ToAxis(Picoseconds{20}), a.measured.ToAxis(Picoseconds{0}));
  EXPECT_EQ(a.predicted.ToAxis(Picoseconds{0}), a.whole.begin);
}

TEST(Alignment, AShortRecordingLeavesTheOtherStepsTheirLength) {
  const auto p = Steps(0, {10, 10, 10, 10, 10, 10});
  const auto m = Steps(500, {20, 20});
  const Alignment a = Align(p.get(), m.get(), nullptr);
  ASSERT_EQ(a.stretches.size(), 6u);
  EXPECT_EQ(a.stretches[1].axis, (AxisRange{Picoseconds{20}, Picoseconds{40}}));
  EXPECT_EQ(a.stretches[2].axis, (AxisRange{Picoseconds{40}, Picoseconds{50}}));
  EXPECT_FALSE(a.stretches[2].measured);
  EXPECT_EQ(a.predicted.ToAxis(p->steps()[5].begin).count(), 70);
  EXPECT_EQ(a.whole.end.count(), 80);
}

TEST(Alignment, StepsOfEitherSideAloneStandByTheirNumbers) {
  const auto p = TimelineModel::Build([] {
    Timeline t = EmptyTimeline();
    for (int32_t step : {0, 1, 3, 4}) Add(t, {.step = step, .start = step * 10, .duration = 10});
    return t;
  }());
  const auto m = Steps(0, {7, 7, 7}, 1);  // 1, 2, 3
  const Alignment a = Align(p.get(), m.get(), nullptr);
  ASSERT_EQ(a.stretches.size(), 5u);
  for (size_t s = 0; s < 5; ++s) {
    EXPECT_EQ(a.stretches[s].step, s);
    EXPECT_EQ(a.stretches[s].predicted, s != 2);
    EXPECT_EQ(a.stretches[s].measured, s >= 1 && s <= 3);
  }
}

TEST(Alignment, AGhostLeavesTheStepsAsTheyAre) {
  const auto p = Steps(0, {10, 10, 10});
  const Alignment alone = Align(p.get(), nullptr, nullptr);
  for (const auto& ghost : {Steps(0, {10}), Steps(0, {10, 10, 10, 10, 10, 10})}) {
    const Alignment a = Align(p.get(), nullptr, ghost.get());
    EXPECT_EQ(a.predicted.anchors(), alone.predicted.anchors());
    EXPECT_EQ(a.stretches.size(), 3u);
    EXPECT_EQ(a.whole, alone.whole);
  }
  // It begins with the steps that it has, and a slower one is seen whole.
  const auto slower = Steps(70, {15, 25, 15, 15});
  const Alignment a = Align(p.get(), nullptr, slower.get());
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(a.ghost.ToAxis(slower->steps()[s].begin), a.stretches[s].axis.begin);
  }
  EXPECT_EQ(a.whole.end.count(), 55);
}

TEST(Alignment, ByTheRangesOfAName) {
  Timeline t = EmptyTimeline(), u = EmptyTimeline();
  t.names.push_back("layer");
  u.names.insert(u.names.begin(), "layer");
  for (int64_t at : {100, 300, 700}) Add(t, {.lane = 0, .name = 4, .start = at, .duration = 50});
  for (int64_t at : {5, 95, 105}) Add(u, {.lane = 0, .name = 0, .start = at, .duration = 9});
  const auto p = TimelineModel::Build(t), m = TimelineModel::Build(u);
  const Alignment a = Align(p.get(), m.get(), nullptr, "layer");
  EXPECT_EQ(a.by, Alignment::By::kRange);
  ASSERT_EQ(a.stretches.size(), 3u);
  EXPECT_EQ(a.predicted.ToAxis(Picoseconds{700}), a.measured.ToAxis(Picoseconds{105}));
  EXPECT_EQ(Align(p.get(), m.get(), nullptr, "no such").by, Alignment::By::kBegin);
}

TEST(Alignment, WithoutStepsBothBeginTogether) {
  Timeline t = EmptyTimeline();
  Add(t, {.start = 500, .duration = 10});
  const auto p = TimelineModel::Build(t);
  const auto m = Steps(90, {30});
  const Alignment a = Align(p.get(), m.get(), nullptr);
  EXPECT_EQ(a.by, Alignment::By::kBegin);
  EXPECT_EQ(a.predicted.ToAxis(Picoseconds{500}), a.measured.ToAxis(Picoseconds{90}));
  EXPECT_EQ(a.whole.length().count(), 30);
}

TEST(Alignment, NothingGivesNothing) {
  EXPECT_EQ(Align(nullptr, nullptr, nullptr).whole.length().count(), 0);
  const auto empty = TimelineModel::Build(EmptyTimeline());
  EXPECT_EQ(Align(empty.get(), nullptr, nullptr).whole.length().count(), 0);
}

TEST(Alignment, MapsAscendAndComeBack) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto p = TimelineModel::Build(RandomTimeline(seed, 200, 5));
    const auto m = TimelineModel::Build(RandomTimeline(seed + 50, 150, 4));
    const auto ghost = TimelineModel::Build(RandomTimeline(seed + 90, 250, 6));
    const Alignment a = Align(p.get(), m.get(), ghost.get());
    const std::pair<const TimelineModel*, const AxisMap*> sides[] = {
        {p.get(), &a.predicted}, {m.get(), &a.measured}, {ghost.get(), &a.ghost}};
    std::mt19937 random(seed);
    for (const auto& [model, map] : sides) {
      for (int n = 0; n < 200; ++n) {
        const auto pick = [&] {
          return model->begin() +
                 Picoseconds(static_cast<int64_t>(
                     random() % static_cast<uint64_t>((model->end() - model->begin()).count())));
        };
        Picoseconds x = pick(), y = pick();
        if (x > y) std::swap(x, y);
        EXPECT_EQ(map->FromAxis(map->ToAxis(x)), x);
        EXPECT_EQ(map->FromAxis(map->EndToAxis(x)), x);
        EXPECT_GE(map->ToAxis(y) - map->ToAxis(x), y - x);
        EXPECT_LE(map->EndToAxis(x), map->ToAxis(x));
        if (map == &a.ghost) continue;  // shown as far as it stands beside the sides
        EXPECT_GE(map->ToAxis(x), a.whole.begin);
        EXPECT_LE(map->EndToAxis(y), a.whole.end);
      }
    }
  }
}

}  // namespace
}  // namespace stallcast::gui
