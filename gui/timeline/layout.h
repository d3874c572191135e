// SPDX-License-Identifier: GPL-3.0-or-later
// Where everything goes: the minimap, predicted lanes upwards from the axis, measured ones
// downwards.
#pragma once

#include <array>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gui/timeline/frame.h"
#include "gui/timeline/timeline_model.h"
#include "gui/timeline/timeline_pair.h"

namespace stallcast::gui {

/// A lane of a side, by name: pins outlive the model that they were set in.
struct LaneKey {
  Side side = Side::kPredicted;
  std::string name;
  bool operator==(const LaneKey&) const = default;
  bool operator<(const LaneKey& other) const {
    return std::tie(side, name) < std::tie(other.side, other.name);
  }
};

/// Width of the triangle before a lane's name, in logical pixels.
inline constexpr int kFoldMark = 18;

struct LayoutInput {
  const TimelinePair* pair = nullptr;
  const TimelineModel* ghost = nullptr;
  std::set<LaneKey> pins, folded, hidden;
  std::array<int, 2> scroll{};  ///< of each side, away from the axis
  int width = 0, height = 0;    ///< device pixels
  double scale = 1;             ///< device pixels a logical one
  int header_width = 0;         ///< column of lane names
  int legend_height = 0;
  int top = 0;  ///< kept free above all, for a search line
};

struct LaneRow {
  /// kTraffic: the rate of all that goes over the link or through memory.
  enum class Kind : uint8_t { kOps, kExposed, kGhost, kTraffic };
  Kind kind = Kind::kOps;
  int32_t track = -1;     ///< kOps: of the model; kGhost: of the ghost
  int32_t tracks = 1;     ///< kOps of a folded lane: all of them, one over the other
  Way way = Way::kToGpu;  ///< kTraffic
  Box box = {};           ///< whole, over the chart's width
  Box shown = {};         ///< what scrolling leaves of it; may be empty
};

struct LaneBox {
  Side side = Side::kPredicted;
  int32_t lane = 0;
  bool pinned = false, folded = false;
  Box header, shown_header;
  Box fold_mark;              ///< the triangle to click; empty when it is scrolled away
  std::vector<LaneRow> rows;  ///< from the axis outwards
};

struct Layout {
  Box minimap, ruler, legend;
  std::array<Box, 2> caption, region;  ///< empty for a side that is not there
  int chart_x0 = 0, chart_x1 = 0;
  int row_height = 0;
  std::vector<LaneBox> lanes;
  std::array<int, 2> scroll{}, scroll_limit{};
  int comfortable_height = 0;  ///< of a view that shows all lanes with rows of the most height

  int chart_width() const { return chart_x1 - chart_x0; }
  Box Chart(const Box& box) const { return {chart_x0, box.y0, chart_x1, box.y1}; }
  /// The lane and row at a place, or null.
  const LaneBox* LaneAt(int x, int y) const;
  const LaneRow* RowAt(int x, int y) const;
  const LaneRow* RowOf(Side side, int32_t track) const;
};

/// Lanes nearest the axis first: pinned ones (which do not scroll), compute lanes, other streams,
/// copy engines, host threads, others. Where all fits, rows grow up to a comfortable height. A
/// folded lane is one low row.
Layout Arrange(const LayoutInput& input);

}  // namespace stallcast::gui
