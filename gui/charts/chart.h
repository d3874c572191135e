// SPDX-License-Identifier: GPL-3.0-or-later
// A chart as data: what is drawn, in the units of its axes; nothing about pixels.
#pragma once

#include <QColor>
#include <QPointF>
#include <QString>
#include <QStringList>
#include <variant>
#include <vector>

#include "gui/charts/scale.h"

namespace stallcast::gui {

struct ChartAxis {
  QString title;      ///< with its unit: "step time (ms)"
  QString unit = {};  ///< where values are told without the title
  ScaleKind scale = ScaleKind::kLinear;
  bool from_zero = false;
  bool integers = false;
  bool tight = false;           ///< ends where the data end, not at round values
  QStringList categories = {};  ///< not empty: places 0, 1, ... with these names
};

/// Points joined in order; a NaN breaks the line.
struct LineMark {
  std::vector<QPointF> points;
  bool dashed = false;
  bool dots = false;              ///< a dot at each point
  std::vector<int64_t> ids = {};  ///< one a point, or none: what a click on it chooses
};

/// Between two curves over the same x.
struct BandMark {
  std::vector<double> x, low, high;
};

/// One segment a category of the category axis, on top of the segments before it of the same group.
/// Groups stand side by side.
struct BarMark {
  std::vector<double> values;
  int group = 0;
  std::vector<bool> pale = {};  ///< one a category, or none: of less weight than the others
};

struct DotMark {
  std::vector<QPointF> points;
  QStringList labels = {};        ///< one a point; shown on hovering
  std::vector<bool> hits = {};    ///< one a point: on the front, say; drawn filled, others hollow
  std::vector<int64_t> ids = {};  ///< one a point, or none: what a click on it chooses
};

/// Cells of a map: `length` columns from `column` on, in `row`; each one unit wide and high.
struct CellMark {
  struct Run {
    int64_t column = 0, row = 0, length = 1;
  };
  std::vector<Run> runs;
};

/// A distribution a category: whiskers from P10 to P90, a box of the quartiles, the median.
struct BoxMark {
  struct Five {
    double p10 = 0, p25 = 0, p50 = 0, p75 = 0, p90 = 0;
    int64_t count = 0;  ///< values that it sums up; 0: none, nothing is drawn
  };
  std::vector<Five> boxes;
};

/// counts[i] values lie between edges[i] and edges[i + 1].
struct HistogramMark {
  std::vector<double> edges, counts;
};

/// What the dots of a series are drawn as.
enum class Symbol : uint8_t { kCircle, kSquare, kDiamond };

struct ChartSeries {
  QString name;  ///< in the legend, when pointed at, and in data
  QColor color;
  std::variant<LineMark, BandMark, BarMark, DotMark, CellMark, BoxMark, HistogramMark> mark;
  bool in_legend = true;
  Symbol symbol = Symbol::kCircle;  ///< in the legend too

  bool HasDots() const;
};

struct Chart {
  QString title;
  QStringList subject = {};  ///< lines that say what the data are of: configuration, trace
  QString note;              ///< one line below the title that qualifies it; may be empty
  ChartAxis x, y;
  std::vector<ChartSeries> series;  ///< drawn in this order
  QString empty;                    ///< said instead where there is nothing to draw

  /// Whether some series has something to draw.
  bool HasData() const;
};

/// What the series reach over along x and y, before rounding. Categories reach from -0.5 to half a
/// place behind the last. Values that a logarithmic axis has no place for do not count.
struct ChartExtent {
  Range x, y;
};
ChartExtent Extent(const Chart& chart);

/// The data as comma-separated values, one line a point, segment, cell run, box or bin; the columns
/// are those that some series needs, and `of` with the subject. Fields are quoted where they must
/// be.
QString ToCsv(const Chart& chart);

}  // namespace stallcast::gui
