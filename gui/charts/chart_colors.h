// SPDX-License-Identifier: GPL-3.0-or-later
// What the program's charts are coloured with.
#pragma once

#include "gui/charts/chart_painter.h"
#include "gui/timeline/theme.h"

namespace stallcast::gui {

struct ChartColors {
  bool dark = false;

  QColor Of(traces::Role role) const { return theme().roles[static_cast<size_t>(role)]; }
  QColor Series(size_t index) const { return SeriesColor(index, dark); }
  QColor muted() const { return Mix(theme().muted, theme().panel, 0.35); }

 private:
  const Theme& theme() const { return dark ? Theme::Dark() : Theme::Light(); }
};

}  // namespace stallcast::gui
