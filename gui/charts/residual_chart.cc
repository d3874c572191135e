// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/charts/residual_chart.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/quantile.h"

namespace stallcast::gui {
namespace {

constexpr int kBins = 40;

struct Kind {
  QString name;
  Picoseconds measured{0};
  std::vector<double> percent;  // ascending
};

std::vector<Kind> Kinds(const sim::Comparison& comparison) {
  std::map<std::string, Kind> by_name;
  for (const sim::MatchedOp& op : comparison.ops) {
    if (op.call) continue;
    Kind& kind = by_name[op.name];
    kind.measured += op.duration.measured.value;
    if (std::isfinite(op.duration.relative())) {
      kind.percent.push_back(op.duration.relative() * 100);
    }
  }
  std::vector<Kind> kinds;
  for (auto& [name, kind] : by_name) {
    kind.name = QString::fromStdString(name);
    std::sort(kind.percent.begin(), kind.percent.end());
    kinds.push_back(std::move(kind));
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const Kind& a, const Kind& b) { return a.measured > b.measured; });
  return kinds;
}

LineMark Zero(double low, double high, bool upright) {
  return {.points = upright ? std::vector<QPointF>{{0, low}, {0, high}}
                            : std::vector<QPointF>{{low, 0}, {high, 0}},
          .dashed = true};
}

}  // namespace

QStringList MatchedKinds(const sim::Comparison& comparison) {
  QStringList names;
  for (const Kind& kind : Kinds(comparison)) names << kind.name;
  return names;
}

Chart ResidualChart(const sim::Comparison& comparison, const ChartColors& colors) {
  Chart chart;
  chart.title = QStringLiteral("Residuals by op kind");
  chart.note = QStringLiteral(
      "without host calls; left of 0: predicted too short; box: quartiles and median, whiskers: "
      "P10 to P90; a double click on a box opens its histogram");
  chart.x = {.title = QStringLiteral("predicted less measured (% of measured)"),
             .unit = QStringLiteral("%")};
  chart.y = {.title = QStringLiteral("op kind")};
  if (!comparison.steps.empty()) {
    chart.subject << QStringLiteral("step times off by %1 % (median), %2 % at most (step %3)")
                         .arg(comparison.median_step_error * 100, 0, 'f', 1)
                         .arg(comparison.worst_step_error * 100, 0, 'f', 1)
                         .arg(comparison.worst_step);
  }
  chart.empty = QStringLiteral("Open a measured timeline of the same run to fill this chart");
  BoxMark boxes;
  for (Kind& kind : Kinds(comparison)) {
    chart.y.categories << kind.name;
    BoxMark::Five five;
    if (!kind.percent.empty()) {
      five = {.p10 = sim::Quantile(kind.percent, 0.1),
              .p25 = sim::Quantile(kind.percent, 0.25),
              .p50 = sim::Quantile(kind.percent, 0.5),
              .p75 = sim::Quantile(kind.percent, 0.75),
              .p90 = sim::Quantile(kind.percent, 0.9),
              .count = std::ssize(kind.percent)};
    }
    boxes.boxes.push_back(five);
  }
  if (boxes.boxes.empty()) return chart;
  const double places = static_cast<double>(boxes.boxes.size());
  chart.series.push_back(
      {QStringLiteral("no residual"), colors.muted(), Zero(-0.5, places - 0.5, true), false});
  chart.series.push_back({QStringLiteral("residuals"), colors.Series(0), std::move(boxes), false});
  return chart;
}

Chart ResidualHistogram(const sim::Comparison& comparison, const QString& kind,
                        const ChartColors& colors) {
  Chart chart;
  chart.title = QStringLiteral("Residuals of ") + kind;
  chart.x = {.title = QStringLiteral("predicted less measured (% of measured)")};
  chart.y = {.title = QStringLiteral("ops"), .from_zero = true, .integers = true};
  chart.empty = QStringLiteral("No op of this kind is on both sides");
  std::vector<Kind> kinds = Kinds(comparison);
  const auto found =
      std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return k.name == kind; });
  if (found == kinds.end() || found->percent.empty()) return chart;
  std::vector<double>& values = found->percent;
  const Range range = RoundRange(ScaleKind::kLinear, {values.front(), values.back()}, false);
  HistogramMark bins{.edges = {}, .counts = std::vector<double>(kBins)};
  for (int i = 0; i <= kBins; ++i) bins.edges.push_back(range.low + range.span() * i / kBins);
  for (const double v : values) {
    const auto bin = static_cast<int>((v - range.low) / range.span() * kBins);
    ++bins.counts[static_cast<size_t>(std::clamp(bin, 0, kBins - 1))];
  }
  chart.note = QStringLiteral("%1 ops, median %2 %")
                   .arg(values.size())
                   .arg(sim::Quantile(values, 0.5), 0, 'f', 1);
  chart.series.push_back({kind, colors.Series(0), std::move(bins), false});
  return chart;
}

}  // namespace stallcast::gui
