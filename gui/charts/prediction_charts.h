// SPDX-License-Identifier: GPL-3.0-or-later
// Charts of predictions: step times, where a step goes, sweeps, time against attention mass.
#pragma once

#include <QString>
#include <array>
#include <string>
#include <vector>

#include "gui/charts/chart.h"
#include "gui/charts/chart_colors.h"
#include "sim/compare.h"
#include "sim/predict.h"

namespace stallcast::gui {

/// Steps of one run, predicted or measured.
struct StepTimes {
  QString name;
  std::vector<Picoseconds> times;
  std::vector<sim::Quantiles> spread = {};  ///< one a step, or empty: no band
  Picoseconds ceiling{0};                   ///< 0: not known
  int32_t first_step = 0;
  QString of = {};  ///< what it is a run of: configuration, trace
};

/// Step time over steps, the P10-P90 band of those that have one, and the first one's ceiling.
Chart StepTimeChart(const std::vector<StepTimes>& runs, const ChartColors& colors);

/// Where the mean step of a run goes.
struct RoleTimes {
  using Times = std::array<Picoseconds, traces::kRoles>;
  QString name;
  Picoseconds computing{0};
  Times exposed{}, busy{};
  QString of = {};    ///< what it is a run of
  bool pale = false;  ///< not of now
};
RoleTimes RoleTimesOf(const QString& name, const sim::Metrics& metrics);
/// "predicted" and "measured", mean over the steps of both; nothing where no exposed time is known.
std::vector<RoleTimes> RoleTimesOf(const sim::Comparison& comparison);

/// For each run two bars: what a step is made of (computing, and the compute lane's idle time by
/// the role that it waited for; together the mean step), and how long each role is busy.
Chart RoleChart(const std::vector<RoleTimes>& runs, const ChartColors& colors);

/// One point of a sweep that was predicted.
struct SweepPoint {
  QString curve;  ///< points of one name are joined: the method
  double x = 0;   ///< along the axis swept, in its base unit; NaN: its method does not have it
  const sim::Prediction* prediction = nullptr;
  int64_t id = 0;  ///< what a click on it chooses
};

/// What a sweep goes over.
struct SweptAxis {
  QString title;        ///< without unit: "budget"
  QString unit = {};    ///< "tokens", "GB/s", ...
  double scale = 1;     ///< from the base unit to `unit`
  bool binary = false;  ///< token counts and the like, labelled at powers of two
};

/// Mean step time over the axis, a curve a method, each with its ceiling dashed.
Chart SweepChart(const std::vector<SweepPoint>& points, const SweptAxis& axis,
                 const ChartColors& colors);

/// Attention mass against mean step time, points that no other one beats in both filled and
/// joined. Points without a known mass are left out.
Chart ParetoChart(const std::vector<SweepPoint>& points, const SweptAxis& axis,
                  const ChartColors& colors);

/// What one change of a value does to the mean step.
struct HelpOf {
  QString value;       ///< what is changed: "link.h2d (GB/s)"
  QString change;      ///< how: "twice", "half", "on"
  double gain_ms = 0;  ///< by which the mean step gets shorter
  int64_t id = 0;      ///< what a click on it chooses
};
/// A bar a change, two a value, the values that gain most first.
Chart HelpsChart(const std::vector<HelpOf>& helps, double step_ms, const ChartColors& colors);

}  // namespace stallcast::gui
