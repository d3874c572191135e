// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/frame.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace stallcast::gui {
namespace {

constexpr std::array kLimits = {0.02, 0.05, 0.10, 0.25};
static_assert(2 * kLimits.size() + 1 == kShades);

}  // namespace

Box Intersection(const Box& a, const Box& b) {
  return {std::max(a.x0, b.x0), std::max(a.y0, b.y0), std::min(a.x1, b.x1), std::min(a.y1, b.y1)};
}

uint8_t ResidualShade(double relative) {
  constexpr int kMiddle = kShades / 2;
  int distance = 0;
  for (double limit : kLimits) distance += std::abs(relative) > limit;
  return static_cast<uint8_t>(relative < 0 ? kMiddle - distance : kMiddle + distance);
}

double ShadeLimit(int s) { return kLimits[static_cast<size_t>(std::clamp(s - kShades / 2, 0, 3))]; }

QString Elided(const QString& text, int width, TextStyle style, const TextMeasure& measure) {
  if (measure.Width(text, style) <= width) return text;
  constexpr qsizetype kLeast = 3;
  const QString ellipsis = QStringLiteral("…");
  qsizetype fits = 0, longest = text.size() - 1;
  while (fits < longest) {
    const qsizetype tried = (fits + longest + 1) / 2;
    if (measure.Width(text.left(tried) + ellipsis, style) <= width) {
      fits = tried;
    } else {
      longest = tried - 1;
    }
  }
  return fits < kLeast ? QString() : text.left(fits) + ellipsis;
}

}  // namespace stallcast::gui
