// SPDX-License-Identifier: GPL-3.0-or-later
// Replays a frame into an image. Bars go straight into its pixels, so that a picture of tens of
// thousands of them takes a few milliseconds.
#pragma once

#include <QFont>
#include <QHash>
#include <QImage>
#include <array>
#include <memory>

#include "gui/timeline/frame.h"
#include "gui/timeline/theme.h"

class QPainter;

namespace stallcast::gui {

/// The fonts of a picture, in device pixels. Widths are measured once for each text.
class Fonts : public TextMeasure {
 public:
  Fonts(const QFont& base, double scale);

  int Width(const QString& text, TextStyle style) const override;
  int Height(TextStyle style) const override;
  const QFont& Of(TextStyle style) const { return fonts_[static_cast<size_t>(style)]; }

 private:
  std::array<QFont, 3> fonts_;
  std::array<int, 3> heights_{};
  mutable std::array<QHash<QString, int>, 3> widths_;
};

class FramePainter {
 public:
  FramePainter(const Theme& theme, const Fonts& fonts, double scale)
      : theme_(theme), fonts_(fonts), scale_(scale) {}

  /// All of a frame. `image` is of Format_RGB32.
  void Paint(const Frame& frame, QImage& image) const;
  /// A frame without bars, gaps and hatched fills, over what is there.
  void PaintOver(const Frame& frame, QPainter& painter) const;

 private:
  int Thickness() const;
  void Fills(const std::vector<Fill>& fills, QImage& image) const;
  void Bars(const Frame& frame, QImage& image) const;
  void Labels(const Frame& frame, QPainter& painter) const;

  const Theme& theme_;
  const Fonts& fonts_;
  double scale_;
};

}  // namespace stallcast::gui
