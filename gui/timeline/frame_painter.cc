// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/frame_painter.h"

#include <QFontMetrics>
#include <QPainter>
#include <QPainterPath>
#include <algorithm>
#include <cmath>

namespace stallcast::gui {
namespace {

// Logical pixels.
constexpr int kHatchPeriod = 4;

// Alpha of a bar by how busy its columns are.
constexpr std::array kDensity = {0.0, 0.40, 0.60, 0.80, 1.0};

// The pixels of an image.
class Canvas {
 public:
  explicit Canvas(QImage& image)
      : pixels_(reinterpret_cast<QRgb*>(image.bits())),
        stride_(image.bytesPerLine() / static_cast<qsizetype>(sizeof(QRgb))),
        all_{0, 0, image.width(), image.height()} {}

  void Fill(const Box& wanted, QRgb color) {
    const Box box = Intersection(wanted, all_);
    if (box.empty()) return;
    for (int y = box.y0; y < box.y1; ++y) std::fill(At(box.x0, y), At(box.x1, y), color);
  }

  // Diagonals over what is there.
  void Hatch(const Box& wanted, QRgb color, int period, int thickness) {
    const Box box = Intersection(wanted, all_);
    if (box.empty()) return;
    for (int y = box.y0; y < box.y1; ++y) {
      QRgb* line = At(0, y);
      for (int x = box.x0 + (period - (box.x0 + y) % period) % period - period; x < box.x1;
           x += period) {
        const int end = std::min(x + thickness, box.x1);
        for (int i = std::max(x, box.x0); i < end; ++i) line[i] = color;
      }
    }
  }

 private:
  QRgb* At(int x, int y) { return pixels_ + y * stride_ + x; }

  QRgb* pixels_;
  qsizetype stride_;
  Box all_;
};

void DrawArrow(QPainter& painter, const Arrow& arrow, double scale) {
  const QPointF from(arrow.x0 + 0.5, arrow.y0 + 0.5), to(arrow.x1 + 0.5, arrow.y1 + 0.5);
  const double bend = std::clamp(std::abs(to.x() - from.x()) / 2, 6 * scale, 40 * scale);
  QPainterPath path(from);
  path.cubicTo(from + QPointF(bend, 0), to - QPointF(bend, 0), to);
  painter.setBrush(Qt::NoBrush);
  painter.drawPath(path);
  const double size = 5 * scale;
  QPainterPath head(to);
  head.lineTo(to + QPointF(-size, -size * 0.6));
  head.lineTo(to + QPointF(-size, size * 0.6));
  head.closeSubpath();
  painter.fillPath(head, painter.pen().color());
}

}  // namespace

Fonts::Fonts(const QFont& base, double scale) {
  for (size_t s = 0; s < fonts_.size(); ++s) {
    const auto style = static_cast<TextStyle>(s);
    QFont font(base.family());
    font.setPixelSize(static_cast<int>(std::lround(
        (style == TextStyle::kSmall ? TypeScale::kTimelineSmall : TypeScale::kTimeline) * scale)));
    font.setBold(style == TextStyle::kBold);
    fonts_[s] = font;
    heights_[s] = QFontMetrics(font).height();
  }
}

int Fonts::Width(const QString& text, TextStyle style) const {
  constexpr qsizetype kMost = 20'000;
  auto& widths = widths_[static_cast<size_t>(style)];
  const auto known = widths.constFind(text);
  if (known != widths.constEnd()) return *known;
  if (widths.size() > kMost) widths.clear();
  const int width = QFontMetrics(Of(style)).horizontalAdvance(text);
  widths.insert(text, width);
  return width;
}

int Fonts::Height(TextStyle style) const { return heights_[static_cast<size_t>(style)]; }

void FramePainter::Bars(const Frame& frame, QImage& image) const {
  Canvas canvas(image);
  const int thickness = Thickness();
  for (const BarShape& bar : frame.bars) {
    QColor ink = theme_.Of(bar.ink);
    if (bar.eighths > 0) ink = Mix(ink, theme_.Of(bar.second), bar.eighths / 8.0);
    double density = kDensity[bar.quarters];
    if (bar.kind == BarShape::Kind::kExposed) density *= 0.55;
    if (bar.kind == BarShape::Kind::kGhost) density *= 0.65;
    if (bar.dimmed) density *= 0.18;
    const QColor color = Mix(theme_.lane, ink, density);
    canvas.Fill(bar.box, color.rgb());
    if (!bar.merged && bar.box.width() > 3 * thickness && bar.kind != BarShape::Kind::kMinimap &&
        bar.kind != BarShape::Kind::kSample) {
      // Neighbors of one color stay apart.
      const Box edge{bar.box.x0, bar.box.y0, bar.box.x0 + thickness, bar.box.y1};
      canvas.Fill(edge, Mix(color, theme_.window, 0.55).rgb());
    }
    if (bar.kind == BarShape::Kind::kExposed) {
      // Waiting is drawn with a rule on its upper edge, computing as a block.
      Box rule = bar.box;
      rule.y1 = std::min(rule.y1, rule.y0 + 2 * thickness);
      canvas.Fill(rule, Mix(theme_.lane, ink, kDensity[bar.quarters]).rgb());
    }
  }
}

void FramePainter::Labels(const Frame& frame, QPainter& painter) const {
  for (size_t s = 0; s < 3; ++s) {
    const auto style = static_cast<TextStyle>(s);
    bool set = false;
    for (const Label& label : frame.labels) {
      if (label.style != style) continue;
      if (!set) painter.setFont(fonts_.Of(style));
      set = true;
      const QColor color = theme_.Of(label.ink);
      if (painter.pen().color() != color) painter.setPen(color);
      const Qt::Alignment align = label.align == Label::Align::kLeft     ? Qt::AlignLeft
                                  : label.align == Label::Align::kCenter ? Qt::AlignHCenter
                                                                         : Qt::AlignRight;
      const QRect box(label.box.x0, label.box.y0, label.box.width(), label.box.height());
      painter.drawText(
          box, static_cast<int>(align | Qt::AlignVCenter) | Qt::TextSingleLine | Qt::TextDontClip,
          label.text);
    }
  }
}

int FramePainter::Thickness() const { return std::max(1, static_cast<int>(std::lround(scale_))); }

void FramePainter::Fills(const std::vector<Fill>& fills, QImage& image) const {
  Canvas canvas(image);
  const int period = static_cast<int>(std::lround(2 * kHatchPeriod * scale_));
  for (const Fill& fill : fills) {
    const QRgb color = theme_.Of(fill.ink).rgb();
    if (fill.hatched) {
      canvas.Hatch(fill.box, color, period, Thickness());
    } else {
      canvas.Fill(fill.box, color);
    }
  }
}

void FramePainter::Paint(const Frame& frame, QImage& image) const {
  Fills(frame.fills, image);
  Bars(frame, image);
  Fills(frame.gaps, image);
  Frame rest;
  rest.lines = frame.lines;
  rest.arrows = frame.arrows;
  rest.outlines = frame.outlines;
  rest.panels = frame.panels;
  rest.labels = frame.labels;
  QPainter painter(&image);
  PaintOver(rest, painter);
}

void FramePainter::PaintOver(const Frame& frame, QPainter& painter) const {
  const int t = Thickness();
  const auto fill = [&](int x0, int y0, int x1, int y1, const QColor& color) {
    painter.fillRect(x0, y0, x1 - x0, y1 - y0, color);
  };
  for (const Fill& f : frame.fills) {
    fill(f.box.x0, f.box.y0, f.box.x1, f.box.y1, theme_.Of(f.ink));
  }
  for (const Line& line : frame.lines) {
    const int x0 = std::min(line.x0, line.x1), x1 = std::max(line.x0, line.x1);
    const int y0 = std::min(line.y0, line.y1), y1 = std::max(line.y0, line.y1);
    fill(x0, y0, std::max(x1, x0 + t), std::max(y1, y0 + t), theme_.Of(line.ink));
  }
  if (!frame.arrows.empty()) {
    painter.setRenderHint(QPainter::Antialiasing);
    for (const Arrow& arrow : frame.arrows) {
      painter.setPen(QPen(theme_.Of(arrow.ink), 1.4 * scale_));
      DrawArrow(painter, arrow, scale_);
    }
    painter.setRenderHint(QPainter::Antialiasing, false);
  }
  // A frame from `inner` to `outer` pixels around a box.
  const auto ring = [&](const Box& b, int inner, int outer, const QColor& color) {
    fill(b.x0 - outer, b.y0 - outer, b.x1 + outer, b.y0 - inner, color);
    fill(b.x0 - outer, b.y1 + inner, b.x1 + outer, b.y1 + outer, color);
    fill(b.x0 - outer, b.y0 - inner, b.x0 - inner, b.y1 + inner, color);
    fill(b.x1 + inner, b.y0 - inner, b.x1 + outer, b.y1 + inner, color);
  };
  // No halo over the outline of another.
  for (const Outline& outline : frame.outlines) {
    if (outline.halo) ring(outline.box, 0, outline.thickness + 2 * t, theme_.window);
  }
  for (const Outline& outline : frame.outlines) {
    const int inner = outline.halo ? t : 0;
    ring(outline.box, inner, inner + outline.thickness, theme_.Of(outline.ink));
  }
  for (const Fill& panel : frame.panels) {
    const Box& b = panel.box;
    fill(b.x0 - t, b.y0 - t, b.x1 + t, b.y1 + t, theme_.muted);
    fill(b.x0, b.y0, b.x1, b.y1, theme_.Of(panel.ink));
  }
  Labels(frame, painter);
}

}  // namespace stallcast::gui
