// SPDX-License-Identifier: GPL-3.0-or-later
// The pixel columns of a picture, on the clock of one side.
#pragma once

#include <cstdint>
#include <vector>

#include "gui/timeline/axis.h"

namespace stallcast::gui {

/// Column c shows the axis from edge c to edge c + 1. Exact: a time is in one column only, and the
/// same one whoever asks.
class Columns {
 public:
  /// An op at least this many columns wide is drawn as itself; narrower ones share columns.
  static constexpr int32_t kWide = 3;

  Columns() = default;
  /// `visible` is not empty and no shorter than `width` picoseconds.
  Columns(AxisRange visible, int32_t width, const AxisMap& map);

  int32_t width() const { return static_cast<int32_t>(clock_.size()) - 1; }
  /// Clock at the column's left edge; in slack, that of its end. `column` may be width().
  Picoseconds ClockAt(int32_t column) const { return clock_[static_cast<size_t>(column)]; }
  /// How much of the axis a column shows.
  Picoseconds AxisLength(int32_t column) const {
    return axis_[static_cast<size_t>(column) + 1] - axis_[static_cast<size_t>(column)];
  }
  /// The column in which a row begins: -kWide when left of the picture, width() when right of it.
  int32_t Begin(Picoseconds start) const;
  /// The column in which a row ends, that is not filled by it: 0 when it ends left of the picture
  /// or in its first column, width() + kWide when right of it. An end at an anchor is before the
  /// slack.
  int32_t End(Picoseconds end) const;
  /// Whether a row that begins in column `begin` is at least kWide wide: End(end) - begin >= kWide.
  bool Wide(int32_t begin, Picoseconds end) const {
    const int32_t column = begin + kWide;
    if (column <= 0) return true;
    if (column > width()) return clock_.back() < end;
    const Picoseconds edge = ClockAt(column);
    return edge < end || (edge == end && !slack_[static_cast<size_t>(column)]);
  }
  /// Begin(), quick when that is column `near`.
  int32_t Begin(Picoseconds start, int32_t near) const {
    return ClockAt(near) <= start && start < ClockAt(near + 1) ? near : Begin(start);
  }

 private:
  std::vector<Picoseconds> axis_, clock_;
  std::vector<bool> slack_;  // the edge is right of where this side's time ended
};

}  // namespace stallcast::gui
