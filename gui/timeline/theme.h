// SPDX-License-Identifier: GPL-3.0-or-later
// Colors. Those of roles stay apart for people with protanopia, deuteranopia and tritanopia too,
// are seen wherever they are drawn, none is taken for text, and each has one hue in both themes.
#pragma once

#include <QColor>
#include <array>

#include "gui/timeline/frame.h"

namespace stallcast::gui {

struct Theme {
  QColor window, lane, band, panel, grid, slack, text, muted, accent, hover, area, no_twin;
  std::array<QColor, traces::kRoles> roles;
  std::array<QColor, kShades> residuals;

  static const Theme& Light();
  static const Theme& Dark();

  QColor Of(Ink ink) const;
};

/// `share` of `b`, the rest of `a`.
QColor Mix(const QColor& a, const QColor& b, double share);
/// Black or white, whichever reads better on it.
QColor TextOn(const QColor& background);

}  // namespace stallcast::gui
