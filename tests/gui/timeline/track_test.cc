// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/track.h"

#include <gtest/gtest.h>

#include <random>

namespace stallcast::gui {
namespace {

struct Columns {
  std::vector<Picoseconds> start, duration;
  std::vector<traces::Role> role;
};

Columns RandomColumns(uint32_t seed, int64_t rows) {
  std::mt19937 random(seed);
  Columns c;
  Picoseconds at{-5000};
  for (int64_t i = 0; i < rows; ++i) {
    at += Picoseconds(random() % 3 == 0 ? random() % 100 : 0);
    c.start.push_back(at);
    c.duration.emplace_back(random() % 4 == 0 ? 0 : random() % 50);
    at += c.duration.back();
    c.role.push_back(static_cast<traces::Role>(random() % 5 * 2));
  }
  return c;
}

TEST(Track, CountsAndSumsAnyStretchAsALoopDoes) {
  for (int64_t rows : {0, 1, 15, 16, 17, 255, 256, 257, 1000, 5000}) {
    const Columns c = RandomColumns(static_cast<uint32_t>(rows), rows);
    const Track::Index index(c.start, c.duration, c.role);
    const Track track(c.start, c.duration, c.role, &index, 0);
    std::mt19937 random(7);
    for (int n = 0; n < 300; ++n) {
      const Picoseconds time(static_cast<int64_t>(random() % 200'000) - 6000);
      EXPECT_EQ(track.Before(time),
                std::lower_bound(c.start.begin(), c.start.end(), time) - c.start.begin());
      if (rows == 0) continue;
      const auto before = track.Before(time);
      const int64_t from = static_cast<int64_t>(random()) % (before + 1);
      EXPECT_EQ(track.Before(time, from, static_cast<int64_t>(random() % 400)), before);
      const auto a = static_cast<int64_t>(random() % static_cast<uint32_t>(rows + 1));
      const auto b = static_cast<int64_t>(random() % static_cast<uint32_t>(rows + 1));
      RoleSums expected{};
      for (int64_t i = std::min(a, b); i < std::max(a, b); ++i) {
        expected[static_cast<size_t>(track.role(i))] += track.duration(i).count();
      }
      EXPECT_EQ(track.Sum(std::min(a, b), std::max(a, b)), expected);
    }
    for (Picoseconds start : c.start) {  // at and just past each start, where off-by-ones are
      EXPECT_EQ(track.Before(start),
                std::lower_bound(c.start.begin(), c.start.end(), start) - c.start.begin());
    }
  }
}

}  // namespace
}  // namespace stallcast::gui
