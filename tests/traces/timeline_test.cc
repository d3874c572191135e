#include "traces/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "tests/traces/sample.h"
#include "traces/reorder.h"

namespace stallcast::traces {
namespace {

std::string FaultAfter(const std::function<void(Timeline&)>& change) {
  Timeline timeline = SampleTimeline();
  change(timeline);
  return FirstFault(timeline);
}

TEST(TimelineTest, FaultsAreFound) {
  EXPECT_EQ(FirstFault(SampleTimeline()), "");
  EXPECT_EQ(FaultAfter([](Timeline& t) { t.bytes.pop_back(); }), "columns differ in length");
  EXPECT_EQ(FaultAfter([](Timeline& t) { t.graph_node = {1, 2}; }), "columns differ in length");
  EXPECT_EQ(FaultAfter([](Timeline& t) { t.lane[2] = 3; }), "row 2: no such lane");
  EXPECT_EQ(FaultAfter([](Timeline& t) { t.name[1] = 3; }), "row 1: no such name");
  EXPECT_EQ(FaultAfter([](Timeline& t) { t.role[0] = static_cast<Role>(kRoles); }),
            "row 0: no such role");
  EXPECT_EQ(FaultAfter([](Timeline& t) { t.duration[0] = Picoseconds(-1); }),
            "row 0: negative duration");
  EXPECT_EQ(FaultAfter(
                [](Timeline& t) { t.start[3] = Picoseconds(std::numeric_limits<int64_t>::max()); }),
            "row 3: ends after the largest time");
}

TEST(TimelineTest, OrderIsRestoredOnlyWhereALaneHasLostIt) {
  Timeline sample = SampleTimeline();
  std::swap(sample.start[2], sample.start[3]);  // of different lanes
  ASSERT_FALSE(std::ranges::is_sorted(sample.start));
  Timeline same = sample;
  RestoreOrder(&same);
  EXPECT_TRUE(same == sample);

  Timeline mixed = sample;
  mixed.graph_node = {1, 2, 3, 4, 5, 6};
  std::swap(mixed.start[0], mixed.start[1]);  // both on the host's lane
  mixed.start[5] = mixed.start[4];
  RestoreOrder(&mixed);
  EXPECT_TRUE(std::ranges::is_sorted(mixed.start));
  // Rows stay whole, and rows of one start in their order.
  EXPECT_EQ(mixed.op, (std::vector<int64_t>{2, 1, 1, 2, 3, -1}));
  EXPECT_EQ(mixed.graph_node, (std::vector<int64_t>{2, 1, 4, 3, 5, 6}));
  EXPECT_EQ(FirstFault(mixed), "");
}

TEST(TimelineTest, ReorderedRowsStayWhole) {
  Timeline sample = SampleTimeline();
  sample.graph_node = {1, 2, 3, 4, 5, 6};
  Timeline there = sample;
  Reorder(there, std::vector<uint32_t>{3, 0, 5, 1, 4, 2});
  EXPECT_EQ(there.graph_node, (std::vector<int64_t>{4, 1, 6, 2, 5, 3}));
  EXPECT_EQ(there.op[0], sample.op[3]);
  Timeline back = there;
  Reorder(back, std::vector<uint32_t>{1, 3, 5, 0, 4, 2});
  EXPECT_TRUE(back == sample) << "no column was left behind";
  Reorder(back, std::vector<uint32_t>{2});
  EXPECT_EQ(back.rows(), 1);
  EXPECT_EQ(back.graph_node, std::vector<int64_t>{3});
  EXPECT_EQ(FirstFault(back), "");
}

TEST(TimelineTest, EveryRoleHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int role = 0; role < kRoles; ++role) names.insert(Name(static_cast<Role>(role)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kRoles));
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace stallcast::traces
