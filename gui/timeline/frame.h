// SPDX-License-Identifier: GPL-3.0-or-later
// A picture as plain shapes, in device pixels: computed without a painter, compared by tests,
// replayed by FramePainter.
#pragma once

#include <QString>
#include <cstdint>
#include <vector>

#include "gui/timeline/timeline_pair.h"
#include "traces/timeline.h"

namespace stallcast::gui {

/// Columns [x0, x1), rows [y0, y1).
struct Box {
  int x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  int width() const { return x1 - x0; }
  int height() const { return y1 - y0; }
  bool empty() const { return x1 <= x0 || y1 <= y0; }
  bool Contains(int x, int y) const { return x >= x0 && x < x1 && y >= y0 && y < y1; }
  bool Overlaps(const Box& b) const { return x0 < b.x1 && b.x0 < x1 && y0 < b.y1 && b.y0 < y1; }
  bool operator==(const Box&) const = default;
};
Box Intersection(const Box& a, const Box& b);

/// A color by meaning; the theme says which it is.
struct Ink {
  enum class Kind : uint8_t {
    kWindow,  ///< behind all
    kLane,    ///< behind the bars of a lane
    kBand,    ///< every other step
    kPanel,   ///< headers, captions, legend, cards
    kGrid,    ///< lines that separate
    kSlack,   ///< axis on which a side has no time
    kText,
    kMuted,      ///< text of less weight
    kAccent,     ///< what is selected
    kHover,      ///< what is under the cursor, and its twin
    kArea,       ///< the selected area, translucent
    kNoTwin,     ///< bar of an op without residual
    kRole,       ///< `value`: traces::Role
    kOnRole,     ///< text on it
    kResidual,   ///< `value`: ResidualShade
    kOnResidual  ///< text on it
  };
  Kind kind = Kind::kText;
  uint8_t value = 0;
  bool operator==(const Ink&) const = default;

  static Ink Role(traces::Role role) { return {Kind::kRole, static_cast<uint8_t>(role)}; }
};

/// Shades of a relative residual: 0 (predicted far too fast) over kShades / 2 (right) to kShades -
/// 1 (far too slow). Shades end at 2, 5, 10 and 25 % on either side.
inline constexpr uint8_t kShades = 9;
uint8_t ResidualShade(double relative);
/// Where shade `s` on the slow side ends, as a share; for the legend.
double ShadeLimit(int s);

enum class TextStyle : uint8_t { kNormal, kSmall, kBold };

struct Fill {
  Box box;
  Ink ink;
  bool hatched = false;
  bool operator==(const Fill&) const = default;
};

struct BarShape {
  enum class Kind : uint8_t { kOp, kExposed, kGhost, kMinimap, kSample };
  Box box;
  Ink ink;
  Kind kind = Kind::kOp;
  Side side = Side::kPredicted;
  uint8_t quarters = 4;  ///< how dense: busy share of merged ones
  bool merged = false;   ///< several rows, in the mean color of two roles
  bool dimmed = false;   ///< the filter chooses none of them
  int64_t first = 0,
          last = 0;     ///< rows of the side's model, or of its exposures, or of the ghost's
  Ink second = ink;     ///< of merged ones
  uint8_t eighths = 0;  ///< how much of `second` is in the color
  bool operator==(const BarShape&) const = default;
};

struct Line {
  int x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  Ink ink;
  bool operator==(const Line&) const = default;
};

/// From the end of what was waited for to the start of what waited.
struct Arrow {
  int x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  Ink ink;
  bool operator==(const Arrow&) const = default;
};

struct Outline {
  Box box;
  Ink ink;
  int thickness = 1;
  bool halo = false;  ///< a rim in the color of the window on both sides of it: seen on any color
  bool operator==(const Outline&) const = default;
};

struct Label {
  enum class Align : uint8_t { kLeft, kCenter, kRight };
  Box box;
  QString text;
  TextStyle style = TextStyle::kNormal;
  Ink ink;
  Align align = Align::kLeft;
  bool operator==(const Label&) const = default;
};

/// Drawn in this order.
struct Frame {
  std::vector<Fill> fills;
  std::vector<BarShape> bars;
  std::vector<Fill> gaps;  ///< slack that an op goes on over: it takes no time there
  std::vector<Line> lines;
  std::vector<Arrow> arrows;
  std::vector<Outline> outlines;
  std::vector<Fill> panels;  ///< above all that, with a border
  std::vector<Label> labels;
};

/// How wide a text is, in device pixels.
class TextMeasure {
 public:
  virtual ~TextMeasure() = default;
  virtual int Width(const QString& text, TextStyle style) const = 0;
  virtual int Height(TextStyle style) const = 0;
};

/// The text, or as much of its beginning as fits with an ellipsis; empty when not even three
/// letters do.
QString Elided(const QString& text, int width, TextStyle style, const TextMeasure& measure);

}  // namespace stallcast::gui
