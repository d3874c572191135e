#include "traces/common/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace stallcast {
namespace {

TEST(ParallelForTest, EveryItemOnce) {
  for (const int64_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> seen(count);
    ParallelFor(count, [&](int worker, int64_t item) {
      ASSERT_LT(worker, WorkersFor(count));
      ++seen[item];
    });
    for (const std::atomic<int>& times : seen) EXPECT_EQ(times, 1);
  }
}

TEST(ParallelForTest, FirstExceptionStopsTheLoop) {
  std::atomic<int64_t> done = 0;
  EXPECT_THROW(ParallelFor(1'000'000'000,
                           [&](int, int64_t item) {
                             if (item == 100) throw std::runtime_error("stop");
                             ++done;
                           }),
               std::runtime_error);
  EXPECT_GE(done, 100);
  EXPECT_LT(done, 1'000'000'000);
}

}  // namespace
}  // namespace stallcast
