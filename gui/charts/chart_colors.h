// SPDX-License-Identifier: GPL-3.0-or-later
// What the program's charts are coloured with.
#pragma once

#include "gui/charts/chart_painter.h"
#include "gui/timeline/theme.h"

namespace stallcast::gui {

struct ChartColors {
  bool dark = false;
  bool pale = false;  ///< of what is not of now

  QColor Of(traces::Role role) const { return theme().roles[static_cast<size_t>(role)]; }
  QColor Series(size_t index) const {
    const QColor full = SeriesColor(index, dark);
    return pale ? Mix(full, theme().window, 0.55) : full;
  }
  QColor muted() const { return Mix(theme().muted, theme().panel, 0.35); }

 private:
  const Theme& theme() const { return dark ? Theme::Dark() : Theme::Light(); }
};

}  // namespace stallcast::gui
