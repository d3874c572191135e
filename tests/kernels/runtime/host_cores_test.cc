// Which cores threads that call CUDA are kept on, and that nothing else is.
#include "kernels/runtime/host_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <set>
#include <thread>
#include <vector>

namespace stallcast::kernels {
namespace {

std::set<int> Usable() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::set<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.insert(core);
  }
  return cores;
}

// As a call is slow everywhere but on some cores.
std::function<double()> FastOn(std::vector<int> cores) {
  return [cores = std::move(cores)] {
    const int here = sched_getcpu();
    for (size_t i = 0; i < cores.size(); ++i) {
      if (cores[i] == here) return 3e-6 + static_cast<double>(i) * 1e-7;
    }
    return 5e-6;
  };
}

// A load beyond what any core has tells of a neighbour; the thread may use what it might before.
TEST(HostCores, LooksAroundAndJudgesByWhatItSaw) {
  const std::set<int> before = Usable();
  CoreLoadSampler seen;
  seen.LookAround();
  EXPECT_EQ(Usable(), before);
  seen.Add(1000);
  EXPECT_TRUE(seen.IsShared(1000));
  EXPECT_FALSE(seen.IsShared(0));
}

TEST(HostCores, TheFastestIsFound) {
  const std::set<int> all = Usable();
  if (all.size() < 2) GTEST_SKIP() << "one core";
  for (const int fast : all) {
    EXPECT_EQ(FastestCores(1, FastOn({fast})), std::vector<int>{fast});
    EXPECT_EQ(Usable(), all);
  }
}

TEST(HostCores, SeveralComeInOrder) {
  const std::set<int> all = Usable();
  if (all.size() < 3) GTEST_SKIP() << "fewer than three cores";
  const std::vector<int> fast = {*all.rbegin(), *all.begin()};
  EXPECT_EQ(FastestCores(2, FastOn(fast)), fast);
}

TEST(HostCores, OneThatWasFastForAMomentIsNot) {
  const std::set<int> all = Usable();
  if (all.size() < 2) GTEST_SKIP() << "one core";
  const int moody = *all.begin(), steady = *all.rbegin();
  int looks = 0;
  const auto seconds = [&] {
    if (sched_getcpu() == moody) return ++looks == 1 ? 1e-6 : 9e-6;
    return sched_getcpu() == steady ? 4e-6 : 6e-6;
  };
  EXPECT_EQ(FastestCores(1, seconds), std::vector<int>{steady});
}

TEST(HostCores, NoneWhereNothingWouldBeLeftForOthers) {
  EXPECT_TRUE(FastestCores(Usable().size(), FastOn({})).empty());
}

TEST(HostCores, AThreadStaysUntilItIsLetGo) {
  const std::set<int> all = Usable();
  for (const int core : all) {
    const OnCore kept({core}, 0);
    EXPECT_EQ(Usable(), std::set<int>{core});
  }
  EXPECT_EQ(Usable(), all);
  const OnCore not_kept({*all.begin()}, 1);
  EXPECT_EQ(Usable(), all);
}

TEST(HostCores, WhatAKeptThreadStartsCanBeFreed) {
  const std::set<int> all = Usable();
  static_cast<void>(FastestCores(1, FastOn({})));
  const OnCore kept({*all.begin()}, 0);
  std::thread([&] {
    EXPECT_EQ(Usable(), std::set<int>{*all.begin()});
    UseAllCores();
    EXPECT_EQ(Usable(), all);
  }).join();
}

}  // namespace
}  // namespace stallcast::kernels
