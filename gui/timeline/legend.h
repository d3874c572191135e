// SPDX-License-Identifier: GPL-3.0-or-later
// What the colors mean, below the lanes.
#pragma once

#include <QString>
#include <vector>

#include "gui/timeline/color_by.h"
#include "gui/timeline/frame.h"
#include "gui/timeline/timeline_pair.h"

namespace stallcast::gui {

struct LegendEntry {
  QString text;
  Ink ink;
  Box box;  ///< sample and text, from the legend's corner
};

/// The filter that a click on a role's entry sets.
QString FilterOf(traces::Role role);

/// Entries one after the other, in as many lines as the width makes of them.
struct Legend {
  static constexpr int kSwatch = 12;  ///< size of a sample, in logical pixels
  std::vector<LegendEntry> entries;
  int height = 0;
};

/// Width and boxes in device pixels. `slack`: steps may be over on one side before the other's.
Legend MakeLegend(const TimelinePair& pair, ColorBy color, bool slack, int width, double scale,
                  const TextMeasure& measure);

}  // namespace stallcast::gui
