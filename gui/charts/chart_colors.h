// SPDX-License-Identifier: GPL-3.0-or-later
// What the program's charts are coloured with.
#pragma once

#include <QString>
#include <array>

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
  /// Runs that have a name everywhere have a color everywhere; of the others, `index` tells apart.
  QColor Run(const QString& name, size_t index) const {
    constexpr std::array kNames = {"now", "measured", "pin A", "pin B"};
    if (name == QLatin1String("predicted")) return Series(0);  // what else now is
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (name == QLatin1String(kNames[i])) return Series(i);
    }
    return Series(kNames.size() + index);
  }
  QColor computing() const { return theme().computing; }
  QColor muted() const { return Mix(theme().muted, theme().panel, 0.35); }

 private:
  const Theme& theme() const { return dark ? Theme::Dark() : Theme::Light(); }
};

}  // namespace stallcast::gui
