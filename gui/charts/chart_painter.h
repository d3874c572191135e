// SPDX-License-Identifier: GPL-3.0-or-later
// Draws a chart that is laid out.
#pragma once

#include <QColor>
#include <QFont>
#include <QPalette>
#include <vector>

#include "gui/charts/chart_geometry.h"

class QPainter;

namespace stallcast::gui {

/// What a chart takes from its surroundings.
struct ChartTheme {
  QColor background, text, muted, grid;

  static ChartTheme From(const QPalette& palette);
};

/// Colours that people with any kind of colour vision tell apart, for series without a meaning of
/// their own; for a light or a dark background. Repeats after the last, with another symbol.
QColor SeriesColor(size_t index, bool dark);
Symbol SeriesSymbol(size_t index);

void Paint(QPainter& painter, const Chart& chart, const ChartGeometry& geometry,
           const ChartTheme& theme, const QFont& font);

}  // namespace stallcast::gui
