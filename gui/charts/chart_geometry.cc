// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/charts/chart_geometry.h"

#include <QFontMetricsF>
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace stallcast::gui {
namespace {

constexpr double kMargin = 10;
constexpr double kGap = 6;
constexpr double kSwatch = 10;
constexpr double kDotRadius = 4;
constexpr double kBarShare = 0.76;        // of a category's place
constexpr double kBarGap = 2;             // between the bars of a category
constexpr double kBoxShare = 0.5;         // likewise
constexpr double kMostLabelShare = 0.34;  // of the width, for names of categories on the left
constexpr double kLeastPlotHeight = 160;  // under which the legend and the note give way
constexpr double kLegendGap = 14;
constexpr double kCategoryLines = 1.15;  // least room of a category, in lines
constexpr double kHitDistance = 16;

bool Horizontal(const Chart& chart) { return !chart.y.categories.isEmpty(); }

// Title, axis titles and tick labels over the least plot; then what there is room for.
double Needed(const QFontMetricsF& text, const QFontMetricsF& strong) {
  return strong.height() + 2 * text.height() + 3 * kGap + 2 * kMargin + kLeastPlotHeight;
}

QFont Strong(QFont font) {
  font.setBold(true);
  return font;
}

// Places the frame of a chart: texts, axes, grid, legend. What is left is the plot.
class Frame {
 public:
  Frame(const Chart& chart, QSizeF size, const QFont& font)
      : chart_(chart), font_(font), strong_font_(Strong(font)), text_(font), strong_(strong_font_) {
    out_.size = size;
  }

  ChartGeometry Build() {
    const double height = out_.size.height();
    const double line = text_.height();
    const double needed = Needed(text_, strong_);
    // In the least room the title speaks for the axes, with their units.
    tight_ = height < needed - kLeastPlotHeight / 2 && chart_.HasData();
    double top = kMargin;
    const QString title =
        tight_ ? QStringLiteral("%1: %2, %3").arg(chart_.title, chart_.y.title, chart_.x.title)
               : chart_.title;
    top = Line(top, title, ChartText::Tone::kStrong, strong_);
    QStringList lines = chart_.subject;
    if (!chart_.note.isEmpty()) lines << chart_.note;
    // Where not all have room over the plot, they share a line.
    if (height <= needed + static_cast<double>(lines.size()) * line && lines.size() > 1) {
      lines = {lines.join(QStringLiteral(" · "))};
    }
    for (qsizetype i = 0; i < lines.size(); ++i) {
      if (height <= needed + static_cast<double>(i + 1) * line) break;
      top = Line(top, lines[i], ChartText::Tone::kMuted, text_);
    }
    if (!chart_.HasData()) {
      out_.plot = QRectF(kMargin, top, std::max(0.0, out_.size.width() - 2 * kMargin),
                         std::max(0.0, height - top - kMargin));
      out_.texts.push_back(
          {out_.plot, chart_.empty, Qt::AlignCenter | Qt::TextWordWrap, ChartText::Tone::kMuted});
      return std::move(out_);
    }
    top = Legend(top + kGap / 2, height - needed);
    if (!chart_.y.title.isEmpty() && !tight_) {
      top = Line(top + kGap / 2, chart_.y.title, ChartText::Tone::kMuted, text_);
    }
    Axes(top + line / 2 + 1);
    return std::move(out_);
  }

 private:
  double Line(double top, const QString& text, ChartText::Tone tone, const QFontMetricsF& metrics) {
    const double width = std::max(0.0, out_.size.width() - 2 * kMargin);
    out_.texts.push_back({QRectF(kMargin, top, width, metrics.height()),
                          metrics.elidedText(text, Qt::ElideRight, width),
                          Qt::AlignLeft | Qt::AlignVCenter, tone});
    return top + metrics.height();
  }

  // A swatch and a name for each named series: in the title's line, behind it, when there is room
  // for all; else below it, wrapped, when that takes no more than `most`.
  double Legend(double top, double most) {
    const double row = text_.height() + 2;
    ChartText& title = out_.texts.front();
    const double end = title.rect.left() + strong_.horizontalAdvance(title.text) + 1;
    Swatches behind = PlaceLegend(end + 2 * kLegendGap, kMargin + (strong_.height() - row) / 2);
    if (behind.rows == 1 && behind.right <= out_.size.width() - kMargin) {
      title.rect.setRight(end);
      Take(std::move(behind));
      return top;
    }
    Swatches below = PlaceLegend(kMargin, top);
    if (below.names.empty() || below.bottom - top > most) return top;
    const double bottom = below.bottom;
    Take(std::move(below));
    return bottom;
  }

  struct Swatches {
    std::vector<ChartRect> swatches;
    std::vector<ChartText> names;
    double right = 0, bottom = 0;
    int rows = 1;
  };

  Swatches PlaceLegend(double left, double top) const {
    const double end = out_.size.width() - kMargin;
    const double row = text_.height() + 2;
    Swatches placed;
    double x = left, y = top;
    for (size_t s = 0; s < chart_.series.size(); ++s) {
      const QString& name = chart_.series[s].name;
      if (name.isEmpty() || !chart_.series[s].in_legend) continue;
      const double width = std::min(kSwatch + 4 + text_.horizontalAdvance(name) + 1, end - kMargin);
      if (x > left && x + width > end) {
        x = left;
        y += row;
        ++placed.rows;
      }
      placed.swatches.push_back({s, 0, QRectF(x, y + (row - kSwatch) / 2, kSwatch, kSwatch)});
      const double room = width - kSwatch - 4;
      placed.names.push_back({QRectF(x + kSwatch + 4, y, room, row),
                              text_.elidedText(name, Qt::ElideRight, room),
                              Qt::AlignLeft | Qt::AlignVCenter, ChartText::Tone::kPlain});
      placed.right = std::max(placed.right, x + width);
      x += width + kLegendGap;
    }
    placed.bottom = y + row;
    return placed;
  }

  void Take(Swatches&& placed) {
    out_.swatches = std::move(placed.swatches);
    std::move(placed.names.begin(), placed.names.end(), std::back_inserter(out_.texts));
  }

  struct Label {
    double value;
    QString text;
  };

  static std::vector<Label> Labels(const ChartAxis& axis, Range range, int most) {
    std::vector<Label> labels;
    if (!axis.categories.isEmpty()) {
      for (qsizetype i = 0; i < axis.categories.size(); ++i) {
        labels.push_back({static_cast<double>(i), axis.categories[i]});
      }
      return labels;
    }
    const std::vector<double> ticks = Ticks(axis.scale, range, most, axis.integers);
    const double step =
        axis.scale == ScaleKind::kLinear && ticks.size() > 1 ? ticks[1] - ticks[0] : 0;
    for (const double tick : ticks) labels.push_back({tick, TickLabel(tick, step)});
    return labels;
  }

  double Widest(const std::vector<Label>& labels) const {
    double widest = 0;
    for (const Label& label : labels) {
      widest = std::max(widest, text_.horizontalAdvance(label.text) + 1);
    }
    return widest;
  }

  static Range Rounded(const ChartAxis& axis, Range range) {
    const bool as_it_is = !axis.categories.isEmpty() || (axis.tight && range.span() > 0);
    return as_it_is ? range : RoundRange(axis.scale, range, axis.from_zero);
  }

  void Axes(double top) {
    const ChartExtent extent = Extent(chart_);
    const Range x_range = Rounded(chart_.x, extent.x);
    const Range y_range = Rounded(chart_.y, extent.y);
    const double line = text_.height();

    const double bottom = out_.size.height() - kMargin - line - kGap / 2 -
                          (chart_.x.title.isEmpty() || tight_ ? 0 : line);
    const double height = std::max(1.0, bottom - top);
    const std::vector<Label> y_labels =
        Labels(chart_.y, y_range, static_cast<int>(height / (1.6 * line)));
    const double y_width = std::min(Widest(y_labels), kMostLabelShare * out_.size.width());
    const double left = kMargin + y_width + kGap;

    // As many ticks along x as their labels leave room for; the last label may stand over.
    std::vector<Label> x_labels;
    double right = 0;
    for (int most = 12; most >= 2; --most) {
      x_labels = Labels(chart_.x, x_range, most);
      const double over = chart_.x.categories.isEmpty() ? Widest(x_labels) / 2 : 0;
      right = std::max(left + 1, out_.size.width() - kMargin - over);
      if (!chart_.x.categories.isEmpty()) break;
      const ScaleMap map(chart_.x.scale, x_range, left, right);
      bool fits = true;
      for (size_t i = 0; i + 1 < x_labels.size(); ++i) {
        const double need = (text_.horizontalAdvance(x_labels[i].text) +
                             text_.horizontalAdvance(x_labels[i + 1].text)) /
                                2 +
                            kGap;
        fits &= map.At(x_labels[i + 1].value) - map.At(x_labels[i].value) >= need;
      }
      if (fits) break;
    }

    out_.plot = QRectF(left, top, right - left, height);
    out_.x = ScaleMap(chart_.x.scale, x_range, left, right);
    out_.y = Horizontal(chart_) ? ScaleMap(chart_.y.scale, y_range, top, top + height)
                                : ScaleMap(chart_.y.scale, y_range, top + height, top);
    LabelY(y_labels, y_width);
    LabelX(x_labels);
  }

  void LabelY(const std::vector<Label>& labels, double width) {
    const double line = text_.height();
    std::optional<double> last;  // where room is short, labels that would overlap are left out
    for (const Label& label : labels) {
      const double y = out_.y.At(label.value);
      if (last && std::abs(y - *last) < line) continue;
      last = y;
      out_.texts.push_back({QRectF(kMargin, y - line / 2, width, line),
                            text_.elidedText(label.text, Qt::ElideMiddle, width),
                            Qt::AlignRight | Qt::AlignVCenter, ChartText::Tone::kMuted});
      if (chart_.y.categories.isEmpty()) {
        out_.grid.emplace_back(out_.plot.left(), y, out_.plot.right(), y);
      }
    }
  }

  void LabelX(const std::vector<Label>& labels) {
    const double line = text_.height();
    const double top = out_.plot.bottom() + kGap / 2;
    const bool categories = !chart_.x.categories.isEmpty();
    const double slot = categories ? out_.plot.width() / static_cast<double>(labels.size()) : 0;
    for (const Label& label : labels) {
      const double x = out_.x.At(label.value);
      const double width =
          categories ? std::max(0.0, slot - kGap) : text_.horizontalAdvance(label.text) + 2;
      out_.texts.push_back({QRectF(x - width / 2, top, width, line),
                            text_.elidedText(label.text, Qt::ElideMiddle, width), Qt::AlignCenter,
                            ChartText::Tone::kMuted});
      if (!categories) out_.grid.emplace_back(x, out_.plot.top(), x, out_.plot.bottom());
    }
    if (!chart_.x.title.isEmpty() && !tight_) {
      const double width = std::max(0.0, out_.size.width() - 2 * kMargin);
      out_.texts.push_back({QRectF(kMargin, top + line, width, line),
                            text_.elidedText(chart_.x.title, Qt::ElideRight, width),
                            Qt::AlignRight | Qt::AlignVCenter, ChartText::Tone::kMuted});
    }
  }

  const Chart& chart_;
  QFont font_, strong_font_;
  QFontMetricsF text_, strong_;
  ChartGeometry out_;
  bool tight_ = false;
};

// First, lowest, highest and last point of each pixel column, in order.
QPolygonF Thinned(const QPolygonF& points, double width) {
  if (static_cast<double>(points.size()) <= 4 * width) return points;
  QPolygonF out;
  for (qsizetype begin = 0; begin < points.size();) {
    const double column = std::floor(points[begin].x());
    qsizetype low = begin, high = begin, end = begin;
    for (; end < points.size() && std::floor(points[end].x()) == column; ++end) {
      if (points[end].y() < points[low].y()) low = end;
      if (points[end].y() > points[high].y()) high = end;
    }
    qsizetype kept = -1;
    for (const qsizetype i : {begin, std::min(low, high), std::max(low, high), end - 1}) {
      if (i > kept) out << points[i];
      kept = std::max(kept, i);
    }
    begin = end;
  }
  return out;
}

// The highest (least y) or lowest point of each pixel column, where there are more points than
// columns: the edge of an area.
QPolygonF Edge(const QPolygonF& points, double width, bool highest) {
  if (static_cast<double>(points.size()) <= width) return points;
  QPolygonF out;
  for (const QPointF& point : points) {
    if (out.isEmpty() || std::floor(out.back().x()) != std::floor(point.x())) {
      out << point;
    } else if (highest ? point.y() < out.back().y() : point.y() > out.back().y()) {
      out.back().setY(point.y());
    }
  }
  // An area ends where its points do.
  if (out.back().x() != points.back().x()) out << QPointF(points.back().x(), out.back().y());
  return out;
}

// Turns the marks of a series into shapes.
struct Placer {
  const Chart& chart;
  ChartGeometry& out;
  std::map<std::pair<int, size_t>, double>& stacks;
  int groups;
  size_t series = 0;

  QPointF At(QPointF p) const { return {out.x.At(p.x()), out.y.At(p.y())}; }
  static bool Finite(QPointF p) { return std::isfinite(p.x()) && std::isfinite(p.y()); }

  // A bar or box from value a to b, across the places c to d of the category axis.
  QRectF Across(double a, double b, double c, double d) const {
    return (Horizontal(chart)
                ? QRectF(QPointF(out.x.At(a), out.y.At(c)), QPointF(out.x.At(b), out.y.At(d)))
                : QRectF(QPointF(out.x.At(c), out.y.At(a)), QPointF(out.x.At(d), out.y.At(b))))
        .normalized();
  }
  QLineF LineAcross(double a, double b, double c, double d) const {
    return Horizontal(chart) ? QLineF(out.x.At(a), out.y.At(c), out.x.At(b), out.y.At(d))
                             : QLineF(out.x.At(c), out.y.At(a), out.x.At(d), out.y.At(b));
  }

  void operator()(const LineMark& line) const {
    QPolygonF points;
    const auto flush = [&] {
      if (points.size() > 1) {
        out.polylines.push_back({series, Thinned(points, out.plot.width()), line.dashed});
      }
      points.clear();
    };
    for (size_t i = 0; i < line.points.size(); ++i) {
      const QPointF at = At(line.points[i]);
      if (!Finite(at)) {
        flush();
        continue;
      }
      points << at;
      if (line.dots) out.dots.push_back({series, static_cast<int64_t>(i), at, true});
    }
    flush();
  }

  void operator()(const BandMark& band) const {
    QPolygonF upper, lower;
    for (size_t i = 0; i < band.x.size(); ++i) {
      const QPointF low = At({band.x[i], band.low[i]}), high = At({band.x[i], band.high[i]});
      if (!Finite(low) || !Finite(high)) continue;
      lower << low;
      upper << high;
    }
    if (upper.size() < 2) return;
    upper = Edge(upper, out.plot.width(), /*highest=*/true);
    lower = Edge(lower, out.plot.width(), /*highest=*/false);
    std::reverse(lower.begin(), lower.end());
    out.areas.push_back({series, upper + lower});
  }

  void operator()(const BarMark& bar) const {
    const double width = kBarShare / groups;
    for (size_t i = 0; i < bar.values.size(); ++i) {
      if (!std::isfinite(bar.values[i]) || bar.values[i] == 0) continue;
      double& top = stacks[{bar.group, i}];
      const double from = top;
      top += bar.values[i];
      const double begin = static_cast<double>(i) - kBarShare / 2 + width * bar.group;
      QRectF rect = Across(from, top, begin, begin + width);
      // Bars of two groups stay apart, whatever their colors.
      const double gap = groups > 1 ? kBarGap / 2 : 0;
      const double thickness = Horizontal(chart) ? rect.height() : rect.width();
      if (thickness > 2 * kBarGap) {
        rect = Horizontal(chart) ? rect.adjusted(0, gap, 0, -gap) : rect.adjusted(gap, 0, -gap, 0);
      }
      const bool pale = i < bar.pale.size() && bar.pale[i];
      out.rects.push_back({series, static_cast<int64_t>(i), rect, pale});
    }
  }

  void operator()(const DotMark& dots) const {
    for (size_t i = 0; i < dots.points.size(); ++i) {
      const QPointF at = At(dots.points[i]);
      if (!Finite(at)) continue;
      const bool hit = i >= dots.hits.size() || dots.hits[i];
      out.dots.push_back({series, static_cast<int64_t>(i), at, hit});
    }
  }

  void operator()(const CellMark& cells) const {
    for (size_t i = 0; i < cells.runs.size(); ++i) {
      const CellMark::Run& run = cells.runs[i];
      const auto column = static_cast<double>(run.column), row = static_cast<double>(run.row);
      QRectF rect(At({column, row + 1}), At({column + static_cast<double>(run.length), row}));
      rect = rect.normalized();
      if (rect.height() < 1) rect.setHeight(1);
      if (rect.width() < 1) rect.setWidth(1);
      out.rects.push_back({series, static_cast<int64_t>(i), rect & out.plot});
    }
  }

  void operator()(const BoxMark& boxes) const {
    for (size_t i = 0; i < boxes.boxes.size(); ++i) {
      const BoxMark::Five& box = boxes.boxes[i];
      if (box.count == 0) continue;
      const auto at = static_cast<double>(i);
      const double c = at - kBoxShare / 2, d = at + kBoxShare / 2;
      out.rects.push_back({series, static_cast<int64_t>(i), Across(box.p25, box.p75, c, d)});
      out.strokes.push_back({series, LineAcross(box.p10, box.p25, at, at)});
      out.strokes.push_back({series, LineAcross(box.p75, box.p90, at, at)});
      out.strokes.push_back({series, LineAcross(box.p50, box.p50, c, d)});
    }
  }

  void operator()(const HistogramMark& histogram) const {
    for (size_t i = 0; i < histogram.counts.size(); ++i) {
      if (histogram.counts[i] == 0) continue;
      QRectF rect(At({histogram.edges[i], 0}), At({histogram.edges[i + 1], histogram.counts[i]}));
      out.rects.push_back({series, static_cast<int64_t>(i), rect.normalized()});
    }
  }
};

int Groups(const Chart& chart) {
  int groups = 1;
  for (const ChartSeries& series : chart.series) {
    if (const auto* bar = std::get_if<BarMark>(&series.mark)) {
      groups = std::max(groups, bar->group + 1);
    }
  }
  return groups;
}

// What a hit says of a point.
struct Teller {
  const Chart& chart;
  const QString& name;
  int64_t index;

  static QString Value(const ChartAxis& axis, double value) {
    const auto place = static_cast<qsizetype>(std::llround(value));
    if (place >= 0 && place < axis.categories.size()) return axis.categories[place];
    return QStringLiteral("%1: %2").arg(axis.title, QString::number(value, 'g', 5));
  }
  const ChartAxis& values() const { return Horizontal(chart) ? chart.x : chart.y; }
  QString Quantity(double value) const {
    const QString number = QString::number(value, 'g', 4);
    return values().unit.isEmpty() ? number : number + ' ' + values().unit;
  }
  const ChartAxis& categories() const { return Horizontal(chart) ? chart.y : chart.x; }
  QString Joined(QStringList lines) const {
    if (!name.isEmpty()) lines.prepend(name);
    return lines.join('\n');
  }
  size_t at() const { return static_cast<size_t>(index); }

  QString operator()(const LineMark& m) const {
    return Joined({Value(chart.x, m.points[at()].x()), Value(chart.y, m.points[at()].y())});
  }
  QString operator()(const BandMark&) const { return Joined({}); }
  QString operator()(const BarMark& m) const {
    return Joined(
        {Value(categories(), static_cast<double>(index)), Value(values(), m.values[at()])});
  }
  QString operator()(const DotMark& m) const {
    QStringList lines;
    if (index < m.labels.size()) lines << m.labels[index];
    lines << Value(chart.x, m.points[at()].x()) << Value(chart.y, m.points[at()].y());
    return Joined(lines);
  }
  QString operator()(const CellMark& m) const {
    const CellMark::Run& run = m.runs[at()];
    QString columns = QString::number(run.column);
    if (run.length > 1) columns += QStringLiteral(" to %1").arg(run.column + run.length - 1);
    return Joined({QStringLiteral("%1: %2").arg(chart.x.title, columns),
                   QStringLiteral("%1: %2").arg(chart.y.title).arg(run.row)});
  }
  QString operator()(const BoxMark& m) const {
    const BoxMark::Five& box = m.boxes[at()];
    return Joined({Value(categories(), static_cast<double>(index)),
                   QStringLiteral("median %1, P10 %2, P90 %3, %4 values")
                       .arg(Quantity(box.p50), Quantity(box.p10), Quantity(box.p90))
                       .arg(box.count)});
  }
  QString operator()(const HistogramMark& m) const {
    return Joined({QStringLiteral("%1: %2 to %3")
                       .arg(chart.x.title)
                       .arg(m.edges[at()], 0, 'g', 4)
                       .arg(m.edges[at() + 1], 0, 'g', 4),
                   Value(chart.y, m.counts[at()])});
  }
};

}  // namespace

int LeastHeight(const Chart& chart, const QFont& font) {
  if (chart.y.categories.isEmpty()) return 0;
  const QFontMetricsF text(font);
  // Title, note, two lines of legend, both axes' titles, tick labels.
  const double other_lines = 8 + static_cast<double>(chart.subject.size());
  const auto names = static_cast<double>(chart.y.categories.size());
  return static_cast<int>(
      std::ceil((other_lines + names * kCategoryLines) * text.height() + 2 * kMargin + 4 * kGap));
}

int FullHeight(const Chart& chart, const QFont& font) {
  const QFontMetricsF text(font);
  const auto lines = static_cast<double>(chart.subject.size()) + (chart.note.isEmpty() ? 0 : 1);
  constexpr double kLegendLines = 2;
  return static_cast<int>(std::ceil(Needed(text, QFontMetricsF(Strong(font))) +
                                    (lines + 1) * text.height() +
                                    kLegendLines * (text.height() + 2) + kGap));
}

ChartGeometry LayOut(const Chart& chart, QSizeF size, const QFont& font) {
  ChartGeometry out = Frame(chart, size, font).Build();
  if (!chart.HasData()) return out;
  std::map<std::pair<int, size_t>, double> stacks;
  Placer placer{chart, out, stacks, Groups(chart)};
  for (size_t s = 0; s < chart.series.size(); ++s) {
    placer.series = s;
    std::visit(placer, chart.series[s].mark);
  }
  return out;
}

std::optional<ChartHit> HitTest(const Chart& chart, const ChartGeometry& geometry, QPointF at) {
  std::optional<ChartHit> best;
  double nearest = kHitDistance;
  const auto offer = [&](size_t series, int64_t index, QPointF anchor, double distance) {
    if (distance >= nearest) return;
    nearest = distance;
    best = ChartHit{series, index, anchor, {}};
  };
  // Points before areas, and later shapes, which lie on top, before earlier ones.
  for (const ChartDot& dot : geometry.dots) {
    offer(dot.series, dot.index, dot.center, QLineF(at, dot.center).length() - kDotRadius);
  }
  for (size_t s = 0; s < chart.series.size(); ++s) {
    const auto* line = std::get_if<LineMark>(&chart.series[s].mark);
    if (!line || line->dots || !geometry.plot.contains(at)) continue;
    for (size_t i = 0; i < line->points.size(); ++i) {
      const QPointF p(geometry.x.At(line->points[i].x()), geometry.y.At(line->points[i].y()));
      offer(s, static_cast<int64_t>(i), p, QLineF(at, p).length());
    }
  }
  for (auto rect = geometry.rects.rbegin(); !best && rect != geometry.rects.rend(); ++rect) {
    if (rect->rect.adjusted(-1, -1, 1, 1).contains(at)) {
      best = ChartHit{rect->series, rect->index, at, {}};
    }
  }
  if (best) {
    const ChartSeries& series = chart.series[best->series];
    best->text = std::visit(Teller{chart, series.name, best->index}, series.mark);
  }
  return best;
}

}  // namespace stallcast::gui
