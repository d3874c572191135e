// SPDX-License-Identifier: GPL-3.0-or-later
// Where everything in a chart stands, computed without a painter; painting only replays it.
#pragma once

#include <QFont>
#include <QLineF>
#include <QPolygonF>
#include <QRectF>
#include <optional>
#include <vector>

#include "gui/charts/chart.h"

namespace stallcast::gui {

struct ChartText {
  enum class Tone : uint8_t { kPlain, kMuted, kStrong };
  QRectF rect;
  QString text;   ///< cut with an ellipsis to fit where it has to be
  int align = 0;  ///< Qt::AlignmentFlag and Qt::TextFlag
  Tone tone = Tone::kPlain;
};

/// Shapes name the series that they belong to and the point, segment or box in it.
struct ChartPolyline {
  size_t series = 0;
  QPolygonF points;
  bool dashed = false;
};
struct ChartArea {
  size_t series = 0;
  QPolygonF outline;
};
struct ChartRect {
  size_t series = 0;
  int64_t index = 0;
  QRectF rect;
  bool pale = false;
};
struct ChartDot {
  size_t series = 0;
  int64_t index = 0;
  QPointF center;
  bool filled = true;
};
struct ChartStroke {  ///< whiskers and medians
  size_t series = 0;
  QLineF line;
};

struct ChartGeometry {
  QSizeF size;
  QRectF plot;  ///< inside the axes
  ScaleMap x, y;
  std::vector<QLineF> grid;
  std::vector<ChartText> texts;  ///< title, note, axis titles, tick labels, legend
  std::vector<ChartRect> swatches;
  std::vector<ChartArea> areas;
  std::vector<ChartRect> rects;
  std::vector<ChartPolyline> polylines;
  std::vector<ChartStroke> strokes;
  std::vector<ChartDot> dots;
};

/// Lays a chart out in `size` with `font`. No text overlaps another; where room is short, the note,
/// the subject and the legend go first. Long lines are thinned to what pixels can show: the
/// extremes of each pixel column stay.
ChartGeometry LayOut(const Chart& chart, QSizeF size, const QFont& font);
/// The height from which on every category has its name; 0 without categories on the left.
int LeastHeight(const Chart& chart, const QFont& font);
/// The height from which on subject, note and a legend of two lines are there.
int FullHeight(const Chart& chart, const QFont& font);

/// What is under the cursor, or close to it.
struct ChartHit {
  size_t series = 0;
  int64_t index = 0;
  QPointF anchor;  ///< where the point is
  QString text;    ///< series, values with the titles of their axes
};
std::optional<ChartHit> HitTest(const Chart& chart, const ChartGeometry& geometry, QPointF at);

}  // namespace stallcast::gui
