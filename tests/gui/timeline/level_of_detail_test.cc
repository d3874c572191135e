// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/level_of_detail.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "gui/timeline/timeline_model.h"
#include "tests/gui/timeline/random_timeline.h"

namespace stallcast::gui {
namespace {

// Where a place of the axis is, by the definition of a column: the last one whose edge is not right
// of it. -3 left of the picture, width + 3 right of it.
struct Edges {
  std::vector<Picoseconds> axis;
  int32_t width = 0;

  int32_t Of(Picoseconds at) const {
    if (at < axis.front()) return -Columns::kWide;
    for (int32_t c = width; c >= 0; --c) {
      if (axis[static_cast<size_t>(c)] <= at) return c;
    }
    return 0;
  }
};

// Looks at every row for every column.
std::vector<Bar> BruteForce(const Track& track, AxisRange visible, int32_t width,
                            const AxisMap& map) {
  Edges edges;
  edges.width = width;
  for (int32_t c = 0; c <= width; ++c) {
    edges.axis.push_back(visible.begin +
                         Picoseconds(static_cast<int64_t>(
                             static_cast<__int128>(visible.length().count()) * c / width)));
  }
  struct Placed {
    int32_t begin, end;
    Picoseconds from, to;  // on the axis
    bool wide;
  };
  std::vector<Placed> placed;
  for (int64_t row = 0; row < track.size(); ++row) {
    Placed p{};
    p.from = map.ToAxis(track.start(row));
    p.to = track.duration(row).count() == 0 ? p.from : map.EndToAxis(track.end(row));
    p.begin = edges.Of(p.from);
    const Picoseconds end = map.EndToAxis(track.end(row));
    p.end = end > visible.end ? width + Columns::kWide : std::max(0, edges.Of(end));
    p.wide = p.end - p.begin >= Columns::kWide;
    placed.push_back(p);
  }
  std::vector<Bar> bars;
  for (int32_t c = 0; c < width; ++c) {
    const Picoseconds x0 = edges.axis[static_cast<size_t>(c)];
    const Picoseconds x1 = edges.axis[static_cast<size_t>(c) + 1];
    const Picoseconds t0 = map.FromAxis(x0), t1 = map.FromAxis(x1);
    std::vector<int64_t> narrow;
    int64_t owner = -1;
    for (int64_t row = 0; row < track.size(); ++row) {
      const Placed& p = placed[static_cast<size_t>(row)];
      if (p.wide) {
        if (c >= p.begin && c < p.end) owner = row;
      } else if (track.start(row) < t1 && (track.end(row) > t0 || track.start(row) >= t0)) {
        narrow.push_back(row);
      }
    }
    Bar bar{c, c + 1, 0, 0, traces::Role::kOther};
    if (!narrow.empty()) {
      bar.first = narrow.front();
      bar.last = narrow.back() + 1;
      bar.role = bar.second = track.role(bar.first);
      if (bar.merged()) {
        RoleSums sums{};
        int64_t busy = 0;
        for (int64_t row : narrow) {
          const int64_t inside =
              (std::min(track.end(row), t1) - std::max(track.start(row), t0)).count();
          sums[static_cast<size_t>(track.role(row))] += inside;
          busy += inside;
        }
        if (busy > 0) {
          std::vector<std::pair<int64_t, int>> order;  // the longest first, the lower of equals
          for (int r = 0; r < traces::kRoles; ++r)
            order.emplace_back(-sums[static_cast<size_t>(r)], r);
          std::sort(order.begin(), order.end());
          bar.role = static_cast<traces::Role>(order[0].second);
          bar.eighths =
              static_cast<uint8_t>(8 * order[1].first / (order[0].first + order[1].first));
          bar.second = static_cast<traces::Role>(order[bar.eighths > 0 ? 1 : 0].second);
        } else {
          bar.second = bar.role;
        }
        const double share = static_cast<double>(busy) / static_cast<double>((x1 - x0).count());
        bar.quarters = static_cast<uint8_t>(std::clamp<double>(std::ceil(share * 4), 1, 4));
      }
    } else if (owner >= 0) {
      bar.first = owner;
      bar.last = owner + 1;
      bar.role = bar.second = track.role(owner);
    } else {
      continue;
    }
    if (!bars.empty()) {
      Bar& before = bars.back();
      const bool joins =
          before.x1 == c && before.merged() == bar.merged() &&
          (bar.merged() ? before.role == bar.role && before.second == bar.second &&
                              before.eighths == bar.eighths && before.quarters == bar.quarters
                        : before.first == bar.first);
      if (joins) {
        before.x1 = c + 1;
        before.last = bar.last;
        continue;
      }
    }
    bars.push_back(bar);
  }
  return bars;
}

std::string Shown(const Bar& bar) {
  return fmt::format("[{},{}) rows [{},{}) {} {}", bar.x0, bar.x1, bar.first, bar.last,
                     Name(bar.role), bar.quarters);
}

void ExpectSame(const std::vector<Bar>& actual, const std::vector<Bar>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i], expected[i])
        << "bar " << i << ": " << Shown(actual[i]) << " not " << Shown(expected[i]);
  }
}

TEST(LevelOfDetail, DrawsWhatABruteForceRendererDraws) {
  std::mt19937 random(11);
  int64_t compared = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const auto model = TimelineModel::Build(RandomTimeline(seed, 300));
    const auto other = TimelineModel::Build(RandomTimeline(seed + 1000, 200));
    const Alignment alignment = Align(model.get(), other.get(), nullptr);
    for (int view = 0; view < 6; ++view) {
      const int32_t width = 1 + static_cast<int32_t>(random() % 150);
      AxisRange visible = alignment.whole;
      if (view > 0) {
        const int64_t length = alignment.whole.length().count();
        const int64_t part = std::max<int64_t>(width, length >> (random() % 14));
        visible.begin = Picoseconds(static_cast<int64_t>(random()) % length);
        visible.end = visible.begin + Picoseconds(part);
      }
      ASSERT_GE(visible.length().count(), width);
      const Columns columns(visible, width, alignment.predicted);
      for (int32_t k = 0; k < static_cast<int32_t>(model->tracks().size()); ++k) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << " view " << view << " track " << k);
        ExpectSame(BarsOf(model->Ops(k), columns),
                   BruteForce(model->Ops(k), visible, width, alignment.predicted));
        ++compared;
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

TEST(LevelOfDetail, NeverDropsARow) {
  const auto model = TimelineModel::Build(RandomTimeline(5, 20'000));
  const Alignment alignment = Align(model.get(), nullptr, nullptr);
  // The axis ends after the last row, so that nothing ends at the picture's edge.
  const AxisRange all{alignment.whole.begin, alignment.whole.end + Picoseconds{1000}};
  for (int32_t width : {1, 7, 640, 3840}) {
    const Columns columns(all, width, alignment.predicted);
    for (int32_t k = 0; k < static_cast<int32_t>(model->tracks().size()); ++k) {
      const Track track = model->Ops(k);
      std::vector<bool> drawn(static_cast<size_t>(track.size()));
      for (const Bar& bar : BarsOf(track, columns)) {
        for (int64_t row = bar.first; row < bar.last; ++row) drawn[static_cast<size_t>(row)] = true;
      }
      EXPECT_EQ(std::count(drawn.begin(), drawn.end(), false), 0)
          << "track " << k << " at " << width;
    }
  }
}

TEST(LevelOfDetail, CostsAtMostABarAColumn) {
  for (int64_t rows : {1000, 100'000}) {
    const auto model = TimelineModel::Build(RandomTimeline(9, rows));
    const Alignment alignment = Align(model.get(), nullptr, nullptr);
    for (int32_t k = 0; k < static_cast<int32_t>(model->tracks().size()); ++k) {
      const std::vector<Bar> bars =
          BarsOf(model->Ops(k), Columns(alignment.whole, 500, alignment.predicted));
      EXPECT_LE(bars.size(), 500u);
      for (size_t i = 1; i < bars.size(); ++i) EXPECT_GE(bars[i].x0, bars[i - 1].x1);
    }
  }
}

}  // namespace
}  // namespace stallcast::gui
