// SPDX-License-Identifier: GPL-3.0-or-later
// The look: type scale, spacing, colors. Colors of roles stay apart for people with protanopia,
// deuteranopia and tritanopia too, are seen wherever they are drawn, none is taken for text, and
// each has one hue in both themes.
#pragma once

#include <QColor>
#include <array>

#include "gui/timeline/frame.h"

namespace stallcast::gui {

/// Sizes of type as shares of the normal one, and of the timeline's in logical pixels.
struct TypeScale {
  static constexpr double kHeadline = 1.7, kHeading = 1.2;
  static constexpr int kTimeline = 12, kTimelineSmall = 11;
};

/// Distances in logical pixels.
struct Spacing {
  static constexpr int kSmall = 4, kMedium = 8, kLarge = 16;
};

struct Theme {
  /// Of marks of weight and trouble; each reads on its own background.
  struct Signs {
    QColor loss, limit, choice, on_sign, message, on_message, error, better, worse;
  };
  Signs signs;
  QColor computing;  ///< kernels as a whole, where roles are not told apart
  QColor highlight, link;
  QColor border;  ///< of controls
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
