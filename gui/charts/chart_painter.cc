// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/charts/chart_painter.h"

#include <QPaintEngine>
#include <QPainter>
#include <array>

#include "gui/timeline/theme.h"

namespace stallcast::gui {
namespace {

constexpr double kAreaOpacity = 0.28, kPaleness = 0.6;
constexpr double kDotRadius = 4;
// Okabe and Ito's set; black becomes grey, and yellow is darker on white.
constexpr std::array<QRgb, 8> kOnLight = {0xff0072b2, 0xffd55e00, 0xff009e73, 0xffcc79a7,
                                          0xff56b4e9, 0xffb88a00, 0xff606060, 0xffb5651d};
constexpr std::array<QRgb, 8> kOnDark = {0xff4fa8e0, 0xfff0803c, 0xff2dc49a, 0xffe09cc4,
                                         0xff9bd4f5, 0xfff0e442, 0xffb0b0b0, 0xffd9a066};

// On a screen a segment at a time: a stroke of one path is filled against all of its crossings,
// which takes a line that goes up and down over every pixel a hundred times as long. Files keep the
// path in one piece.
void DrawLine(QPainter& painter, const ChartPolyline& line) {
  if (line.dashed || painter.paintEngine()->type() != QPaintEngine::Raster) {
    painter.drawPolyline(line.points);
    return;
  }
  QList<QLineF> segments;
  for (qsizetype i = 0; i + 1 < line.points.size(); ++i) {
    segments.emplace_back(line.points[i], line.points[i + 1]);
  }
  painter.drawLines(segments);
}

void DrawSymbol(QPainter& painter, Symbol symbol, QPointF at) {
  const double r = kDotRadius;
  switch (symbol) {
    case Symbol::kCircle:
      painter.drawEllipse(at, r, r);
      return;
    case Symbol::kSquare:
      painter.drawRect(QRectF(at.x() - r, at.y() - r, 2 * r, 2 * r));
      return;
    case Symbol::kDiamond:
      painter.drawPolygon(QPolygonF({at + QPointF(0, -1.3 * r), at + QPointF(1.3 * r, 0),
                                     at + QPointF(0, 1.3 * r), at + QPointF(-1.3 * r, 0)}));
      return;
  }
}

}  // namespace

ChartTheme ChartTheme::From(const QPalette& palette) {
  const QColor base = palette.color(QPalette::Base), text = palette.color(QPalette::Text);
  return {base, text, Mix(text, base, 0.3), Mix(text, base, 0.86)};
}

QColor SeriesColor(size_t index, bool dark) {
  return QColor::fromRgb((dark ? kOnDark : kOnLight)[index % kOnLight.size()]);
}

Symbol SeriesSymbol(size_t index) {
  constexpr std::array kSymbols = {Symbol::kCircle, Symbol::kSquare, Symbol::kDiamond};
  return kSymbols[index / kOnLight.size() % kSymbols.size()];
}

void Paint(QPainter& painter, const Chart& chart, const ChartGeometry& geometry,
           const ChartTheme& theme, const QFont& font) {
  const auto color = [&](size_t series) { return chart.series[series].color; };
  painter.fillRect(QRectF(QPointF(0, 0), geometry.size), theme.background);

  painter.setRenderHint(QPainter::Antialiasing, false);
  painter.setPen(QPen(theme.grid, 1));
  painter.drawLines(QList<QLineF>(geometry.grid.begin(), geometry.grid.end()));

  painter.setRenderHint(QPainter::Antialiasing, true);
  painter.setPen(Qt::NoPen);
  for (const ChartArea& area : geometry.areas) {
    QColor fill = color(area.series);
    fill.setAlphaF(static_cast<float>(kAreaOpacity));
    painter.setBrush(fill);
    painter.drawPolygon(area.outline);
  }
  painter.setRenderHint(QPainter::Antialiasing, false);
  for (const ChartRect& rect : geometry.rects) {
    const QColor full = color(rect.series);
    painter.fillRect(rect.rect, rect.pale ? Mix(full, theme.background, kPaleness) : full);
  }
  for (const ChartRect& rect : geometry.swatches) {
    if (!chart.series[rect.series].HasDots()) painter.fillRect(rect.rect, color(rect.series));
  }

  painter.setRenderHint(QPainter::Antialiasing, true);
  painter.setBrush(Qt::NoBrush);
  for (const ChartPolyline& line : geometry.polylines) {
    painter.setPen(QPen(color(line.series), line.dashed ? 1.5 : 2,
                        line.dashed ? Qt::DashLine : Qt::SolidLine, Qt::RoundCap, Qt::RoundJoin));
    DrawLine(painter, line);
  }
  painter.setPen(QPen(theme.text, 1.5, Qt::SolidLine, Qt::FlatCap));
  for (const ChartStroke& stroke : geometry.strokes) painter.drawLine(stroke.line);
  const auto draw_dot = [&](size_t series, QPointF center, bool filled) {
    painter.setPen(QPen(color(series), 2));
    painter.setBrush(filled ? QBrush(color(series)) : QBrush(theme.background));
    DrawSymbol(painter, chart.series[series].symbol, center);
  };
  for (const ChartDot& dot : geometry.dots) draw_dot(dot.series, dot.center, dot.filled);
  for (const ChartRect& rect : geometry.swatches) {
    if (chart.series[rect.series].HasDots()) draw_dot(rect.series, rect.rect.center(), true);
  }

  QFont strong = font;
  strong.setBold(true);
  for (const ChartText& text : geometry.texts) {
    painter.setFont(text.tone == ChartText::Tone::kStrong ? strong : font);
    painter.setPen(text.tone == ChartText::Tone::kMuted ? theme.muted : theme.text);
    painter.drawText(text.rect, text.align, text.text);
  }
}

}  // namespace stallcast::gui
