// SPDX-License-Identifier: GPL-3.0-or-later
// What the program's charts are coloured with.
#pragma once

#include <QColor>
#include <functional>

#include "gui/charts/chart_painter.h"
#include "traces/timeline.h"

namespace stallcast::gui {

struct ChartColors {
  bool dark = false;
  std::function<QColor(traces::Role)> role;  ///< as in the timeline

  QColor Series(size_t index) const { return SeriesColor(index, dark); }
  QColor muted() const { return dark ? QColor(0x8a, 0x8f, 0x98) : QColor(0x9a, 0x9f, 0xa8); }
};

}  // namespace stallcast::gui
