// SPDX-License-Identifier: GPL-3.0-or-later
// What to draw of a track, at most one bar a column: the cost follows the columns, not the rows.
#pragma once

#include <cstdint>
#include <vector>

#include "gui/timeline/columns.h"
#include "gui/timeline/track.h"

namespace stallcast::gui {

/// Columns [x0, x1) show rows [first, last) of the track.
struct Bar {
  int32_t x0 = 0, x1 = 0;
  int64_t first = 0, last = 0;
  traces::Role role = traces::Role::kOther;  ///< that is busy longest (the lower one of equals)
  traces::Role second = role;                ///< of merged rows: busy longest after it
  uint8_t eighths = 0;   ///< of the time of these two, what `second` has; 0 to 4
  uint8_t quarters = 4;  ///< busy share, rounded up; 4 for a single row
  bool merged() const { return last - first > 1; }
  bool operator==(const Bar&) const = default;
};

/// Ascending, without overlap. A row at least Columns::kWide wide has a bar of its own, from the
/// column of its start up to the one of its end (or from the next column, when others share that
/// of its start). All narrower rows in a column are one bar; neighbours of the same one row, or
/// merged ones alike in roles and shares, are joined. Every row that touches the picture is in a
/// bar, unless it began left of it and ends in its first column.
std::vector<Bar> BarsOf(const Track& track, const Columns& columns);

}  // namespace stallcast::gui
