// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/columns.h"

#include <algorithm>

namespace stallcast::gui {

Columns::Columns(AxisRange visible, int32_t width, const AxisMap& map) {
  const auto edges = static_cast<size_t>(width) + 1;
  axis_.reserve(edges);
  clock_.reserve(edges);
  slack_.reserve(edges);
  const auto length = static_cast<__int128>(visible.length().count());
  for (int32_t c = 0; c <= width; ++c) {
    const Picoseconds axis = visible.begin + Picoseconds(static_cast<int64_t>(length * c / width));
    const Picoseconds clock = map.FromAxis(axis);
    axis_.push_back(axis);
    clock_.push_back(clock);
    slack_.push_back(axis != map.EndToAxis(clock));
  }
}

int32_t Columns::Begin(Picoseconds start) const {
  const auto after = std::upper_bound(clock_.begin(), clock_.end(), start);
  return after == clock_.begin() ? -kWide : static_cast<int32_t>(after - clock_.begin()) - 1;
}

int32_t Columns::End(Picoseconds end) const {
  const auto at = std::lower_bound(clock_.begin(), clock_.end(), end);
  if (at == clock_.end()) return width() + kWide;
  const auto column = static_cast<int32_t>(at - clock_.begin());
  const bool exact = *at == end && !slack_[static_cast<size_t>(column)];
  return std::max(0, exact ? column : column - 1);
}

}  // namespace stallcast::gui
