// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/charts/prediction_charts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "sim/sweep.h"

namespace stallcast::gui {
namespace {

constexpr size_t kMostCeilings = 4;  // beside as many curves
constexpr double kWide = 20;         // longest over shortest, from which on an axis is logarithmic

// The points of each curve, ascending in x, curves in the order in which they first appear.
std::vector<std::pair<QString, std::vector<SweepPoint>>> Curves(
    const std::vector<SweepPoint>& points) {
  std::vector<std::pair<QString, std::vector<SweepPoint>>> curves;
  for (const SweepPoint& point : points) {
    auto curve = std::find_if(curves.begin(), curves.end(),
                              [&](const auto& c) { return c.first == point.curve; });
    if (curve == curves.end()) curve = curves.insert(curves.end(), {point.curve, {}});
    curve->second.push_back(point);
  }
  for (auto& [name, of_curve] : curves) {
    std::stable_sort(of_curve.begin(), of_curve.end(),
                     [](const SweepPoint& a, const SweepPoint& b) { return a.x < b.x; });
  }
  return curves;
}

QString WithUnit(const SweptAxis& axis) {
  return axis.unit.isEmpty() ? axis.title : QStringLiteral("%1 (%2)").arg(axis.title, axis.unit);
}

// What each run is of, a line each.
template <class Run>
void AddSubjects(const std::vector<Run>& runs, Chart& chart) {
  for (const Run& run : runs) {
    if (!run.of.isEmpty()) chart.subject << QStringLiteral("%1: %2").arg(run.name, run.of);
  }
}

}  // namespace

Chart StepTimeChart(const std::vector<StepTimes>& runs, const ChartColors& colors) {
  Chart chart;
  chart.title = QStringLiteral("Step time over steps");
  chart.x = {.title = QStringLiteral("step"), .integers = true, .tight = true};
  chart.y = {.title = QStringLiteral("step time (ms)")};
  chart.empty = QStringLiteral("No steps to show");
  AddSubjects(runs, chart);
  for (size_t r = 0; r < runs.size(); ++r) {
    const StepTimes& run = runs[r];
    if (run.spread.size() != run.times.size() || run.times.empty()) continue;
    chart.note = QStringLiteral("band: P10 to P90 from the spread of the machine's calibration");
    BandMark band;
    for (size_t i = 0; i < run.spread.size(); ++i) {
      band.x.push_back(run.first_step + static_cast<double>(i));
      band.low.push_back(Milliseconds(run.spread[i].p10));
      band.high.push_back(Milliseconds(run.spread[i].p90));
    }
    chart.series.push_back(
        {run.name + QStringLiteral(", P10 to P90"), colors.Run(run.name, r), band, false});
  }
  for (size_t r = 0; r < runs.size(); ++r) {
    const StepTimes& run = runs[r];
    if (run.times.empty()) continue;
    LineMark line{.points = {}, .dashed = false, .dots = run.times.size() == 1};
    for (size_t i = 0; i < run.times.size(); ++i) {
      line.points.emplace_back(run.first_step + static_cast<double>(i), Milliseconds(run.times[i]));
      line.ids.push_back(run.first_step + static_cast<int64_t>(i));
    }
    chart.series.push_back({run.name, colors.Run(run.name, r), line});
  }
  if (!runs.empty() && runs.front().ceiling.count() > 0 && !runs.front().times.empty()) {
    const StepTimes& run = runs.front();
    const double ceiling = Milliseconds(run.ceiling);
    const double last = run.first_step + static_cast<double>(run.times.size() - 1);
    chart.series.push_back(
        {QStringLiteral("ceiling of the mean step"), colors.muted(),
         LineMark{.points = {{static_cast<double>(run.first_step), ceiling}, {last, ceiling}},
                  .dashed = true}});
  }
  return chart;
}

RoleTimes RoleTimesOf(const QString& name, const sim::Metrics& metrics) {
  RoleTimes times{.name = name, .computing = metrics.compute_busy};
  for (size_t r = 0; r < times.busy.size(); ++r) {
    times.exposed[r] = metrics.roles[r].exposed;
    times.busy[r] = metrics.roles[r].busy;
  }
  return times;
}

std::vector<RoleTimes> RoleTimesOf(const sim::Comparison& comparison) {
  if (!comparison.exposed || comparison.steps.empty()) return {};
  RoleTimes predicted{.name = QStringLiteral("predicted")};
  RoleTimes measured{.name = QStringLiteral("measured")};
  std::set<int32_t> steps;
  for (const sim::StepTime& step : comparison.steps) {
    predicted.computing += step.time.predicted.value;
    measured.computing += step.time.measured.value;
    steps.insert(step.step);
  }
  for (const sim::MatchedOp& op : comparison.ops) {
    if (op.call || !steps.contains(op.step)) continue;
    predicted.busy[static_cast<size_t>(op.role)] += op.duration.predicted.value;
    measured.busy[static_cast<size_t>(op.role)] += op.duration.measured.value;
  }
  const auto count = std::ssize(comparison.steps);
  for (RoleTimes* side : {&predicted, &measured}) {
    side->computing /= count;
    for (Picoseconds& busy : side->busy) busy /= count;
  }
  predicted.computing -= comparison.exposed->total.predicted.value;
  measured.computing -= comparison.exposed->total.measured.value;
  for (size_t r = 0; r < predicted.exposed.size(); ++r) {
    predicted.exposed[r] = comparison.exposed->roles[r].predicted.value;
    measured.exposed[r] = comparison.exposed->roles[r].measured.value;
  }
  return {predicted, measured};
}

Chart RoleChart(const std::vector<RoleTimes>& runs, const ChartColors& colors) {
  Chart chart;
  chart.title = QStringLiteral("Where a step goes");
  chart.note = QStringLiteral(
      "upper bar: computing, then GPU idle by what it waited for; lower bar: busy time by role");
  chart.x = {.title = QStringLiteral("time a step (ms)"), .from_zero = true};
  chart.y = {.title = QStringLiteral("method")};
  chart.empty = QStringLiteral("Compare methods to fill this chart");
  if (runs.empty()) return chart;
  for (const RoleTimes& run : runs) chart.y.categories << run.name;
  AddSubjects(runs, chart);

  const auto bar = [&](int group, auto&& time) {
    BarMark mark{.values = {}, .group = group};
    for (const RoleTimes& run : runs) {
      mark.values.push_back(Milliseconds(time(run)));
      mark.pale.push_back(run.pale);
    }
    return mark;
  };
  const auto some = [](const BarMark& mark) {
    return std::any_of(mark.values.begin(), mark.values.end(), [](double v) { return v > 0; });
  };
  chart.series.push_back({QStringLiteral("computing"), colors.computing(),
                          bar(0, [](const RoleTimes& run) { return run.computing; })});
  for (size_t r = 0; r < RoleTimes::Times{}.size(); ++r) {
    const auto role = static_cast<traces::Role>(r);
    const QString name = QString::fromUtf8(traces::Name(role).data(),
                                           static_cast<qsizetype>(traces::Name(role).size()));
    BarMark exposed = bar(0, [&](const RoleTimes& run) { return run.exposed[r]; });
    BarMark busy = bar(1, [&](const RoleTimes& run) { return run.busy[r]; });
    const bool waits = some(exposed), works = some(busy);
    if (waits) {
      chart.series.push_back(
          {name + QStringLiteral(" exposed"), colors.Of(role), std::move(exposed), false});
    }
    if (waits || works) chart.series.push_back({name, colors.Of(role), std::move(busy)});
  }
  return chart;
}

Chart SweepChart(const std::vector<SweepPoint>& points, const SweptAxis& axis,
                 const ChartColors& colors) {
  Chart chart;
  chart.title = QStringLiteral("Step time against ") +
                (axis.title.isEmpty() ? QStringLiteral("a value") : axis.title);
  chart.note =
      QStringLiteral("dashed: ceiling, the least time that any order of the same work takes");
  chart.x = {.title = WithUnit(axis), .scale = axis.binary ? ScaleKind::kBinary : ScaleKind::kLog};
  chart.y = {.title = QStringLiteral("mean step time (ms)"), .from_zero = true};
  chart.empty = QStringLiteral("Run a sweep to fill this chart");
  const auto curves = Curves(points);
  const bool ceilings = curves.size() <= kMostCeilings;
  if (!ceilings) chart.note = QStringLiteral("ceilings are drawn for few methods only");
  double shortest = std::numeric_limits<double>::infinity(), longest = 0;
  for (size_t index = 0; index < curves.size(); ++index) {
    const auto& [name, curve] = curves[index];
    LineMark time{.points = {}, .dashed = false, .dots = true},
        ceiling{.points = {}, .dashed = true};
    for (const SweepPoint& point : curve) {
      if (std::isnan(point.x)) continue;  // a method without the value
      const sim::Metrics& metrics = point.prediction->metrics;
      const double x = point.x * axis.scale, mean = Milliseconds(metrics.step_mean);
      time.points.emplace_back(x, mean);
      time.ids.push_back(point.id);
      ceiling.points.emplace_back(x, Milliseconds(metrics.ceiling));
      shortest = std::min(shortest, mean);
      longest = std::max(longest, mean);
    }
    if (time.points.empty()) continue;
    const QColor color = colors.Series(index);
    if (ceilings) {
      chart.series.push_back({name + QStringLiteral(", ceiling"), color, ceiling, false});
    }
    chart.series.push_back({name, color, time, true, SeriesSymbol(index)});
  }
  // Where one method takes many times as long as another, both can be read.
  if (longest > kWide * shortest) {
    chart.y.scale = ScaleKind::kLog;
    chart.y.from_zero = false;
  }
  return chart;
}

Chart ParetoChart(const std::vector<SweepPoint>& points, const SweptAxis& axis,
                  const ChartColors& colors) {
  Chart chart;
  chart.title = QStringLiteral("Attention mass against step time");
  chart.note = QStringLiteral("filled and joined: no other point is both faster and more faithful");
  chart.x = {.title = QStringLiteral("mean step time (ms)"), .scale = ScaleKind::kLog};
  chart.y = {.title = QStringLiteral("attention mass")};
  chart.empty = QStringLiteral("Run a sweep to fill this chart");

  std::vector<SweepPoint> known;
  std::vector<std::vector<double>> goals;
  for (const SweepPoint& point : points) {
    const double mass = point.prediction->selection.attention_mass;
    if (!std::isfinite(mass)) continue;
    known.push_back(point);
    goals.push_back({Milliseconds(point.prediction->metrics.step_mean), -mass});
  }
  const std::vector<bool> front = sim::ParetoFront(goals);

  LineMark best{.points = {}, .dashed = true};
  std::map<QString, DotMark> dots;
  QStringList order;
  for (size_t i = 0; i < known.size(); ++i) {
    const QPointF at(goals[i][0], -goals[i][1]);
    DotMark& of_curve = dots[known[i].curve];
    if (!order.contains(known[i].curve)) order << known[i].curve;
    of_curve.points.push_back(at);
    of_curve.labels << (std::isnan(known[i].x) ? QStringLiteral("has no %1").arg(axis.title)
                                               : QStringLiteral("%1 %2 %3")
                                                     .arg(axis.title)
                                                     .arg(known[i].x * axis.scale, 0, 'g', 6)
                                                     .arg(axis.unit));
    of_curve.ids.push_back(known[i].id);
    of_curve.hits.push_back(front[i]);
    if (front[i]) best.points.push_back(at);
  }
  std::sort(best.points.begin(), best.points.end(),
            [](QPointF a, QPointF b) { return a.x() < b.x(); });
  if (best.points.size() > 1) {
    chart.series.push_back({QStringLiteral("front"), colors.muted(), best, false});
  }
  for (qsizetype i = 0; i < order.size(); ++i) {
    const auto index = static_cast<size_t>(i);
    chart.series.push_back(
        {order[i], colors.Series(index), dots[order[i]], true, SeriesSymbol(index)});
  }
  return chart;
}

Chart HelpsChart(const std::vector<HelpOf>& helps, double step_ms, const ChartColors& colors) {
  constexpr size_t kMostValues = 14;
  Chart chart;
  chart.title = QStringLiteral("What helps most");
  chart.note = QStringLiteral(
                   "each value by a factor of two, each switch, one at a time; bars to "
                   "the right make the step of %1 ms shorter")
                   .arg(step_ms, 0, 'g', 4);
  chart.x = {.title = QStringLiteral("mean step shorter by (ms)"), .from_zero = true};
  chart.y = {.title = QStringLiteral("value")};
  chart.empty =
      QStringLiteral("\u201cRank values\u201d changes each value and each switch in turn");
  // Two changes of a value stand side by side; of a choice with more, the two best.
  std::vector<std::pair<QString, std::vector<const HelpOf*>>> values;
  for (const HelpOf& help : helps) {
    auto found = std::ranges::find(values, help.value, [](const auto& v) { return v.first; });
    if (found == values.end()) found = values.insert(values.end(), {help.value, {}});
    found->second.push_back(&help);
  }
  for (auto& [name, changes] : values) {
    std::ranges::stable_sort(changes, std::ranges::greater(), &HelpOf::gain_ms);
  }
  std::ranges::stable_sort(values, std::ranges::greater(),
                           [](const auto& v) { return v.second.front()->gain_ms; });
  if (values.size() > kMostValues) values.resize(kMostValues);
  if (values.empty() || values.front().second.front()->gain_ms <= 0) return chart;
  BarMark better{.values = {}, .group = 0}, other{.values = {}, .group = 1};
  for (const auto& [name, changes] : values) {
    const HelpOf& best = *changes.front();
    chart.y.categories << QStringLiteral("%1: %2").arg(name, best.change);
    better.values.push_back(best.gain_ms);
    other.values.push_back(changes.size() > 1 ? changes.back()->gain_ms : 0);
  }
  chart.series.push_back({QStringLiteral("the better change"), colors.Series(1), better});
  chart.series.push_back({QStringLiteral("the opposite"), colors.Series(3), other});
  return chart;
}

}  // namespace stallcast::gui
