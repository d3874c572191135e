// SPDX-License-Identifier: GPL-3.0-or-later
// The picture without what follows the cursor: minimap, lanes, exposed time, ruler, legend.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "gui/timeline/axis.h"
#include "gui/timeline/axis_note.h"
#include "gui/timeline/color_by.h"
#include "gui/timeline/filter.h"
#include "gui/timeline/frame.h"
#include "gui/timeline/layout.h"
#include "gui/timeline/level_of_detail.h"
#include "gui/timeline/timeline_pair.h"

namespace stallcast::gui {

struct SceneInput {
  const TimelinePair* pair = nullptr;
  const TimelineModel* ghost = nullptr;
  QString ghost_name = {};
  const Alignment* alignment = nullptr;
  AxisRange visible;
  const Layout* layout = nullptr;
  double scale = 1;
  ColorBy color = ColorBy::kRole;
  std::array<const FilterMask*, 2> masks{};
  std::optional<traces::Role> chosen_role;  ///< the filter is this role's
  const TextMeasure* measure = nullptr;
  const std::vector<AxisNote>* notes = nullptr;

  const AxisMap& map(Side side) const {
    return side == Side::kPredicted ? alignment->predicted : alignment->measured;
  }
  int Px(double logical) const;
};

/// A legend entry that is clicked to filter by its role.
struct LegendItem {
  Box box;
  traces::Role role;
};

struct Scene {
  Frame frame;
  std::vector<LegendItem> legend;
};

/// Bars of the whole compute lane of each side (of the longest lane, where none computes), for a
/// chart of this width. They depend on nothing else: kept while these stay the same.
std::array<std::vector<Bar>, 2> MinimapBars(const TimelinePair& pair, const Alignment& alignment,
                                            int width);

Scene Draw(const SceneInput& input, const std::array<std::vector<Bar>, 2>& minimap);

/// Where an axis time is, in device pixels; left or right of the chart for what is outside.
int ColumnOf(Picoseconds axis, AxisRange visible, const Layout& layout);
Picoseconds AxisAt(double x, AxisRange visible, const Layout& layout);

}  // namespace stallcast::gui
