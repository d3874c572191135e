// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/level_of_detail.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace stallcast::gui {
namespace {

// The bar of one column with narrow rows [first, last).
Bar ColumnBar(const Track& track, const Columns& columns, int32_t column, int64_t first,
              int64_t last) {
  Bar bar{column, column + 1, first, last, track.role(first)};
  if (!bar.merged()) return bar;
  RoleSums sums = track.Sum(first, last);
  const auto clip = [&](int64_t row, Picoseconds outside) {
    if (outside.count() > 0) sums[static_cast<size_t>(track.role(row))] -= outside.count();
  };
  clip(first, columns.ClockAt(column) - track.start(first));
  clip(last - 1, track.end(last - 1) - columns.ClockAt(column + 1));
  int64_t busy = 0;
  for (int64_t sum : sums) busy += sum;
  if (busy > 0) {
    const auto longest = std::max_element(sums.begin(), sums.end());
    bar.role = static_cast<traces::Role>(longest - sums.begin());
    const int64_t most = std::exchange(*longest, 0);
    const auto next = std::max_element(sums.begin(), sums.end());
    bar.eighths = static_cast<uint8_t>(*next * 8 / (most + *next));
    if (bar.eighths > 0) bar.second = static_cast<traces::Role>(next - sums.begin());
  }
  if (bar.eighths == 0) bar.second = bar.role;
  const double share =
      static_cast<double>(busy) / static_cast<double>(columns.AxisLength(column).count());
  bar.quarters = static_cast<uint8_t>(std::clamp(static_cast<int>(std::ceil(share * 4)), 1, 4));
  return bar;
}

bool Joins(const Bar& a, const Bar& b) {
  if (a.x1 != b.x0 || a.merged() != b.merged()) return false;
  const auto look = [](const Bar& x) {
    return std::tuple(x.role, x.second, x.eighths, x.quarters);
  };
  return a.merged() ? look(a) == look(b) : a.first == b.first;
}

}  // namespace

std::vector<Bar> BarsOf(const Track& track, const Columns& columns) {
  std::vector<Bar> bars;
  const int32_t width = columns.width();
  const int64_t end = track.Before(columns.ClockAt(width));
  int64_t row = track.Before(columns.ClockAt(0));
  if (row > 0 && track.end(row - 1) > columns.ClockAt(0)) --row;
  int32_t column = 0;  // all before it is drawn
  int64_t stride = 0;  // rows in the last column
  while (row < end && column < width) {
    const int32_t begin = columns.Begin(track.start(row), column);
    const int32_t x0 = std::max(begin, column);
    if (columns.Wide(begin, track.end(row))) {
      const int32_t x1 = std::min(columns.End(track.end(row)), width);
      if (x0 < x1) bars.push_back({x0, x1, row, row + 1, track.role(row), track.role(row)});
      column = std::max(column, x1);
      ++row;
      continue;
    }
    int64_t last = track.Before(columns.ClockAt(x0 + 1), row, stride);
    stride = last - row;
    if (stride > 1 && columns.Wide(columns.Begin(track.start(last - 1), x0), track.end(last - 1))) {
      --last;
    }
    const Bar bar = ColumnBar(track, columns, x0, row, last);
    if (!bars.empty() && Joins(bars.back(), bar)) {
      bars.back().x1 = bar.x1;
      bars.back().last = bar.last;
    } else {
      bars.push_back(bar);
    }
    column = x0 + 1;
    row = track.end(last - 1) > columns.ClockAt(column) ? last - 1 : last;
  }
  return bars;
}

}  // namespace stallcast::gui
