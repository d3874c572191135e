// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/filter.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/gui/timeline/random_timeline.h"
#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

using traces::Timeline;

TEST(Filter, ChoosesWhatTheWordsSay) {
  const auto model = TimelineModel::Build(RandomTimeline(4, 700));
  const auto pair = TimelinePair::Make({model}, {nullptr});
  const Timeline& t = model->timeline();
  const std::vector<std::pair<std::string, std::function<bool(size_t)>>> cases = {
      {"gemm", [&](size_t i) { return t.name[i] == 0 || t.name[i] == 2; }},
      {"GEMM", [&](size_t i) { return t.name[i] == 0 || t.name[i] == 2; }},
      {"\"call gemm\"", [&](size_t i) { return t.name[i] == 2; }},
      {"call gemm", [&](size_t i) { return t.name[i] == 2; }},
      {"-gemm", [&](size_t i) { return t.name[i] == 1 || t.name[i] == 3; }},
      {"role:recall,mlp",
       [&](size_t i) {
         return t.role[i] == traces::Role::kRecall || t.role[i] == traces::Role::kMlp;
       }},
      {"-role:host", [&](size_t i) { return t.role[i] != traces::Role::kHost; }},
      {"lane:copy", [&](size_t i) { return t.lane[i] == 2; }},
      {"lane:stream", [&](size_t i) { return t.lane[i] == 1 || t.lane[i] == 3; }},
      {"step:1", [&](size_t i) { return t.step[i] == 1; }},
      {"step:1-2 select", [&](size_t i) { return t.step[i] >= 1 && t.name[i] == 3; }},
      {"layer:0-1", [&](size_t i) { return t.layer[i] == 0 || t.layer[i] == 1; }},
      {"op:17", [&](size_t i) { return t.op[i] == 17; }},
      {"dur>1ns", [&](size_t i) { return t.duration[i].count() >= 1000; }},
      {"dur<1ns dur>10ps",
       [&](size_t i) { return t.duration[i].count() >= 10 && t.duration[i].count() <= 1000; }},
      {"bytes>512KiB", [&](size_t i) { return t.bytes[i] >= 512 << 10; }},
      {"residual>0%", [](size_t) { return false; }},  // one side has none
  };
  for (const auto& [words, fits] : cases) {
    const FilterMask mask(Filter(words), *pair, Side::kPredicted);
    int64_t total = 0;
    for (size_t i = 0; i < t.start.size(); ++i) {
      EXPECT_EQ(mask.Matches(static_cast<int64_t>(i)), fits(i)) << words << ", row " << i;
      total += fits(i);
    }
    EXPECT_EQ(mask.total(), total) << words;
  }
}

TEST(Filter, CountsAnyStretch) {
  const auto model = TimelineModel::Build(RandomTimeline(6, 500));
  const auto pair = TimelinePair::Make({model}, {nullptr});
  const FilterMask mask(Filter("role:recall,mlp,index,other"), *pair, Side::kPredicted);
  for (int64_t first = 0; first <= 500; first += 13) {
    int64_t count = 0;
    for (int64_t last = first; last <= 500; ++last) {
      EXPECT_EQ(mask.Count(first, last), count);
      if (last < 500) count += mask.Matches(last);
    }
  }
}

TEST(Filter, NoWordsChooseAll) {
  const auto model = TimelineModel::Build(RandomTimeline(6, 50));
  const auto pair = TimelinePair::Make({model}, {nullptr});
  EXPECT_TRUE(Filter("  ").empty());
  const FilterMask mask(Filter(""), *pair, Side::kPredicted);
  EXPECT_TRUE(mask.all());
  EXPECT_EQ(mask.Count(3, 9), 6);
}

TEST(Filter, ByResidual) {
  Timeline p = EmptyTimeline(), m = EmptyTimeline(Timeline::Origin::kMeasured);
  for (int64_t op = 0; op < 4; ++op) {
    Add(p, {.op = op, .step = 0, .start = op * 1000, .duration = 100 + op * 10});
    Add(m, {.op = op, .step = 0, .start = op * 1000, .duration = 100});
  }
  const auto pair = TimelinePair::Make({TimelineModel::Build(p)}, {TimelineModel::Build(m)});
  for (Side side : kSides) {
    EXPECT_EQ(FilterMask(Filter("residual>15%"), *pair, side).total(), 2);
  }
}

TEST(Filter, RefusesWhatMakesNoSense) {
  for (const char* words : {"role:nobody", "role:", "step:x", "step:-1", "step:1-", "dur>", "dur>5",
                            "dur>1GB", "bytes<1ms", "lane:", "op:99999999999999999999"}) {
    EXPECT_THROW(Filter{words}, Error) << words;
  }
}

}  // namespace
}  // namespace stallcast::gui
