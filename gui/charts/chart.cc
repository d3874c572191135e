// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/charts/chart.h"

#include <QRegularExpression>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace stallcast::gui {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Grows by values that its axis can show.
class Reach {
 public:
  explicit Reach(const ChartAxis& axis) : axis_(axis) {}

  void Add(double value) {
    if (!std::isfinite(value) || (axis_.scale != ScaleKind::kLinear && value <= 0)) return;
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
  }

  Range range() const {
    if (!axis_.categories.isEmpty()) {
      return {-0.5, static_cast<double>(axis_.categories.size()) - 0.5};
    }
    if (low_ <= high_) return {low_, high_};
    return axis_.scale == ScaleKind::kLinear ? Range{0, 1} : Range{1, 10};
  }

 private:
  const ChartAxis& axis_;
  double low_ = kInfinity, high_ = -kInfinity;
};

// The axis that carries the values of bars and boxes: the one without categories.
bool Horizontal(const Chart& chart) { return !chart.y.categories.isEmpty(); }

struct Reacher {
  const Chart& chart;
  Reach& x;
  Reach& y;
  std::map<std::pair<int, size_t>, double>& stacks;

  Reach& values() const { return Horizontal(chart) ? x : y; }

  void operator()(const LineMark& line) const {
    for (const QPointF& p : line.points) {
      x.Add(p.x());
      y.Add(p.y());
    }
  }
  void operator()(const BandMark& band) const {
    for (size_t i = 0; i < band.x.size(); ++i) {
      x.Add(band.x[i]);
      y.Add(band.low[i]);
      y.Add(band.high[i]);
    }
  }
  void operator()(const BarMark& bar) const {
    for (size_t i = 0; i < bar.values.size(); ++i) {
      if (!std::isfinite(bar.values[i])) continue;
      double& top = stacks[{bar.group, i}];
      top += bar.values[i];
      values().Add(top);
    }
  }
  void operator()(const DotMark& dots) const {
    for (const QPointF& p : dots.points) {
      if (!std::isfinite(p.x()) || !std::isfinite(p.y())) continue;
      x.Add(p.x());
      y.Add(p.y());
    }
  }
  void operator()(const CellMark& cells) const {
    for (const CellMark::Run& run : cells.runs) {
      x.Add(static_cast<double>(run.column));
      x.Add(static_cast<double>(run.column + run.length));
      y.Add(static_cast<double>(run.row));
      y.Add(static_cast<double>(run.row + 1));
    }
  }
  void operator()(const BoxMark& boxes) const {
    for (const BoxMark::Five& box : boxes.boxes) {
      if (box.count == 0) continue;
      values().Add(box.p10);
      values().Add(box.p90);
    }
  }
  void operator()(const HistogramMark& histogram) const {
    for (const double edge : histogram.edges) x.Add(edge);
    for (const double count : histogram.counts) y.Add(count);
  }
};

struct Counter {
  size_t operator()(const LineMark& m) const { return m.points.size(); }
  size_t operator()(const BandMark& m) const { return m.x.size(); }
  size_t operator()(const BarMark& m) const { return m.values.size(); }
  size_t operator()(const DotMark& m) const { return m.points.size(); }
  size_t operator()(const CellMark& m) const { return m.runs.size(); }
  size_t operator()(const BoxMark& m) const { return m.boxes.size(); }
  size_t operator()(const HistogramMark& m) const { return m.counts.size(); }
};

QString Quoted(QString text) {
  if (!text.contains(QRegularExpression(QStringLiteral("[\",\r\n]")))) return text;
  return '"' + text.replace('"', QStringLiteral("\"\"")) + '"';
}

QString Number(double value) {
  return std::isfinite(value) ? QString::number(value, 'g', 12) : QString();
}

QString Place(const ChartAxis& axis, double place) {
  const auto index = static_cast<qsizetype>(std::llround(place));
  return index >= 0 && index < axis.categories.size() ? axis.categories[index] : Number(place);
}

// One table whose columns are made as they are first needed.
class Table {
 public:
  void Set(const QString& column, const QString& value) {
    if (!columns_.contains(column)) columns_.append(column);
    row_[column] = value;
  }
  void End() {
    rows_.push_back(std::move(row_));
    row_.clear();
  }
  QString Text() const {
    QStringList lines;
    const auto line = [&](auto field) {
      QStringList fields;
      for (const QString& column : columns_) fields << Quoted(field(column));
      lines << fields.join(',');
    };
    line([](const QString& column) { return column; });
    for (const auto& row : rows_) {
      line([&](const QString& column) {
        const auto found = row.find(column);
        return found == row.end() ? QString() : found->second;
      });
    }
    return lines.join('\n') + '\n';
  }

 private:
  QStringList columns_;
  std::map<QString, QString> row_;
  std::vector<std::map<QString, QString>> rows_;
};

struct CsvWriter {
  const Chart& chart;
  const QString& series;
  Table& table;

  void Begin() const {
    table.Set(QStringLiteral("series"), series);
    if (!chart.subject.isEmpty()) {
      table.Set(QStringLiteral("of"), chart.subject.join(QStringLiteral("; ")));
    }
  }
  const ChartAxis& category_axis() const { return Horizontal(chart) ? chart.y : chart.x; }
  const ChartAxis& value_axis() const { return Horizontal(chart) ? chart.x : chart.y; }

  void Point(const QPointF& p) const {
    table.Set(chart.x.title, Number(p.x()));
    table.Set(chart.y.title, Number(p.y()));
  }
  void operator()(const LineMark& line) const {
    for (const QPointF& p : line.points) {
      Begin();
      Point(p);
      table.End();
    }
  }
  void operator()(const BandMark& band) const {
    for (size_t i = 0; i < band.x.size(); ++i) {
      Begin();
      table.Set(chart.x.title, Number(band.x[i]));
      table.Set(QStringLiteral("low"), Number(band.low[i]));
      table.Set(QStringLiteral("high"), Number(band.high[i]));
      table.End();
    }
  }
  void operator()(const BarMark& bar) const {
    for (size_t i = 0; i < bar.values.size(); ++i) {
      Begin();
      table.Set(category_axis().title, Place(category_axis(), static_cast<double>(i)));
      table.Set(value_axis().title, Number(bar.values[i]));
      table.End();
    }
  }
  void operator()(const DotMark& dots) const {
    for (size_t i = 0; i < dots.points.size(); ++i) {
      Begin();
      Point(dots.points[i]);
      const auto index = static_cast<qsizetype>(i);
      if (index < dots.labels.size()) table.Set(QStringLiteral("label"), dots.labels[index]);
      table.End();
    }
  }
  void operator()(const CellMark& cells) const {
    for (const CellMark::Run& run : cells.runs) {
      Begin();
      table.Set(chart.x.title, QString::number(run.column));
      table.Set(QStringLiteral("length"), QString::number(run.length));
      table.Set(chart.y.title, QString::number(run.row));
      table.End();
    }
  }
  void operator()(const BoxMark& boxes) const {
    for (size_t i = 0; i < boxes.boxes.size(); ++i) {
      const BoxMark::Five& box = boxes.boxes[i];
      Begin();
      table.Set(category_axis().title, Place(category_axis(), static_cast<double>(i)));
      table.Set(QStringLiteral("p10"), Number(box.p10));
      table.Set(QStringLiteral("p25"), Number(box.p25));
      table.Set(QStringLiteral("p50"), Number(box.p50));
      table.Set(QStringLiteral("p75"), Number(box.p75));
      table.Set(QStringLiteral("p90"), Number(box.p90));
      table.Set(QStringLiteral("count"), QString::number(box.count));
      table.End();
    }
  }
  void operator()(const HistogramMark& histogram) const {
    for (size_t i = 0; i < histogram.counts.size(); ++i) {
      Begin();
      table.Set(QStringLiteral("from"), Number(histogram.edges[i]));
      table.Set(QStringLiteral("to"), Number(histogram.edges[i + 1]));
      table.Set(chart.y.title, Number(histogram.counts[i]));
      table.End();
    }
  }
};

}  // namespace

bool ChartSeries::HasDots() const {
  const auto* line = std::get_if<LineMark>(&mark);
  return line ? line->dots : std::holds_alternative<DotMark>(mark);
}

bool Chart::HasData() const {
  return std::any_of(series.begin(), series.end(),
                     [](const ChartSeries& s) { return std::visit(Counter{}, s.mark) > 0; });
}

ChartExtent Extent(const Chart& chart) {
  Reach x(chart.x), y(chart.y);
  std::map<std::pair<int, size_t>, double> stacks;
  for (const ChartSeries& series : chart.series) {
    std::visit(Reacher{chart, x, y, stacks}, series.mark);
  }
  return {x.range(), y.range()};
}

QString ToCsv(const Chart& chart) {
  Table table;
  for (const ChartSeries& series : chart.series) {
    std::visit(CsvWriter{chart, series.name, table}, series.mark);
  }
  return table.Text();
}

}  // namespace stallcast::gui
