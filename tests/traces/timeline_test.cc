#include "traces/timeline.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>
#include <string>

#include "tests/traces/sample.h"

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

TEST(TimelineTest, EveryRoleHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int role = 0; role < kRoles; ++role) names.insert(Name(static_cast<Role>(role)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kRoles));
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace stallcast::traces
