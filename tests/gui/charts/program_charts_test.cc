// SPDX-License-Identifier: GPL-3.0-or-later
// The charts of the program, from data whose picture is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "gui/charts/chart_geometry.h"
#include "gui/charts/log_chart.h"
#include "gui/charts/prediction_charts.h"
#include "gui/charts/residual_chart.h"

namespace stallcast::gui {
namespace {

using testing::ElementsAre;

constexpr Picoseconds kMs{1'000'000'000};

sim::Prediction Predict(double ms, double mass) {
  sim::Prediction p;
  p.metrics.step_mean = FromSeconds(ms * 1e-3);
  p.metrics.ceiling = FromSeconds(ms * 0.5e-3);
  p.metrics.compute_busy = FromSeconds(ms * 0.25e-3);
  p.metrics.roles[static_cast<size_t>(traces::Role::kRecall)].exposed = FromSeconds(ms * 0.75e-3);
  p.metrics.roles[static_cast<size_t>(traces::Role::kRecall)].busy = FromSeconds(ms * 0.9e-3);
  p.selection.attention_mass = mass;
  return p;
}

TEST(StepTimeChart, HasBandLineAndCeiling) {
  StepTimes run{.name = "now", .times = {3 * kMs, 4 * kMs}, .ceiling = 2 * kMs, .first_step = 7};
  run.spread = {{2 * kMs, 3 * kMs, 5 * kMs}, {3 * kMs, 4 * kMs, 6 * kMs}};
  const Chart chart = StepTimeChart({run, {.name = "measured", .times = {kMs}}}, {});
  ASSERT_EQ(chart.series.size(), 4u);
  const auto& band = std::get<BandMark>(chart.series[0].mark);
  EXPECT_THAT(band.x, ElementsAre(7, 8));
  EXPECT_THAT(band.high, ElementsAre(5, 6));
  EXPECT_THAT(std::get<LineMark>(chart.series[1].mark).points,
              ElementsAre(QPointF(7, 3), QPointF(8, 4)));
  EXPECT_THAT(std::get<LineMark>(chart.series[3].mark).points,
              ElementsAre(QPointF(7, 2), QPointF(8, 2)));
}

TEST(StepTimeChart, ARunHasOneColorBesideAnyOther) {
  const auto colors_of = [](const std::vector<QString>& names) {
    std::vector<StepTimes> runs;
    for (const QString& name : names) runs.push_back({.name = name, .times = {kMs, kMs}});
    std::map<QString, QRgb> colors;
    for (const ChartSeries& s : StepTimeChart(runs, {}).series) colors[s.name] = s.color.rgb();
    return colors;
  };
  const auto all = colors_of({"now", "pin A", "pin B", "measured"});
  std::set<QRgb> apart;
  for (const auto& [name, color] : all) apart.insert(color);
  EXPECT_EQ(apart.size(), 4u);
  for (const auto& some : {colors_of({"measured"}), colors_of({"predicted", "measured"}),
                           colors_of({"pin B", "measured"}), colors_of({"now", "pin B"})}) {
    for (const auto& [name, color] : some) {
      EXPECT_EQ(color, all.at(name == "predicted" ? QString("now") : name)) << name.toStdString();
    }
  }
}

TEST(RoleChart, ComputingAndExposedAddUpToTheStep) {
  const sim::Prediction p = Predict(8, 1);
  const Chart chart = RoleChart({RoleTimesOf("freekv", p.metrics)}, {});
  double step = 0, busy = 0;
  for (const ChartSeries& series : chart.series) {
    const auto& bar = std::get<BarMark>(series.mark);
    (bar.group == 0 ? step : busy) += bar.values[0];
  }
  EXPECT_NEAR(step, 8, 1e-9);
  EXPECT_NEAR(busy, 7.2, 1e-9);
}

TEST(RoleChart, TellsPredictedFromMeasured) {
  sim::Comparison comparison;
  EXPECT_TRUE(RoleTimesOf(comparison).empty());
  for (int32_t step : {0, 1}) {
    comparison.steps.push_back({step, {{10 * kMs}, {12 * kMs}}});
    sim::MatchedOp op;
    op.step = step;
    op.role = traces::Role::kRecall;
    op.duration = {{4 * kMs}, {5 * kMs}};
    comparison.ops.push_back(op);
    op.call = true;
    comparison.ops.push_back(op);
  }
  comparison.exposed.emplace();
  comparison.exposed->total = {{3 * kMs}, {4 * kMs}};
  const auto recall = static_cast<size_t>(traces::Role::kRecall);
  comparison.exposed->roles[recall] = comparison.exposed->total;
  const std::vector<RoleTimes> sides = RoleTimesOf(comparison);
  ASSERT_EQ(sides.size(), 2u);
  EXPECT_EQ(sides[0].name, "predicted");
  EXPECT_EQ(sides[0].computing, 7 * kMs);
  EXPECT_EQ(sides[1].computing, 8 * kMs);
  EXPECT_EQ(sides[0].exposed[recall], 3 * kMs);
  EXPECT_EQ(sides[1].busy[recall], 5 * kMs);
}

TEST(SweepChart, DrawsACurveAndItsCeilingAMethod) {
  const sim::Prediction a = Predict(10, 0.9), b = Predict(20, 0.95), c = Predict(5, 0.8);
  const Chart chart = SweepChart({{"x", 4096, &b}, {"x", 2048, &a}, {"y", 2048, &c}},
                                 {.title = "budget", .unit = "tokens", .binary = true}, {});
  ASSERT_EQ(chart.series.size(), 4u);
  EXPECT_EQ(chart.x.title, "budget (tokens)");
  EXPECT_THAT(std::get<LineMark>(chart.series[1].mark).points,
              ElementsAre(QPointF(2048, 10), QPointF(4096, 20)));
  EXPECT_TRUE(std::get<LineMark>(chart.series[0].mark).dashed);
  EXPECT_EQ(std::get<LineMark>(chart.series[0].mark).points[1].y(), 10);
  EXPECT_EQ(chart.series[0].color, chart.series[1].color);
}

TEST(SweepChart, TellsManyMethodsApartThatTakeLittleAndLong) {
  std::vector<sim::Prediction> predictions;
  for (int i = 0; i < 14; ++i) predictions.push_back(Predict(i == 0 ? 600 : 4 + i, 0.9));
  std::vector<SweepPoint> points;
  for (size_t i = 0; i < predictions.size(); ++i) {
    points.push_back({QString::number(i), 1, &predictions[i]});
  }
  const Chart chart = SweepChart(points, {.title = "n"}, {});
  EXPECT_EQ(chart.y.scale, ScaleKind::kLog);
  std::set<std::pair<QRgb, Symbol>> looks;
  for (const ChartSeries& series : chart.series) looks.emplace(series.color.rgb(), series.symbol);
  EXPECT_EQ(chart.series.size(), 14u);
  EXPECT_EQ(looks.size(), 14u);
}

TEST(ParetoChart, FillsWhatNothingBeats) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const sim::Prediction a = Predict(10, 0.9), b = Predict(20, 0.95), worse = Predict(21, 0.94),
                        unknown = Predict(1, nan);
  const Chart chart = ParetoChart(
      {{"x", 1, &a}, {"x", 2, &b}, {"x", 3, &worse}, {"x", 4, &unknown}}, {.title = "n"}, {});
  ASSERT_EQ(chart.series.size(), 2u);
  EXPECT_THAT(std::get<LineMark>(chart.series[0].mark).points,
              ElementsAre(QPointF(10, 0.9), QPointF(20, 0.95)));
  EXPECT_THAT(std::get<DotMark>(chart.series[1].mark).hits, ElementsAre(true, true, false));
}

TEST(ProgramCharts, EveryLineOfTheDataNamesItsSeries) {
  const sim::Prediction a = Predict(10, 0.9), b = Predict(20, 0.95);
  StepTimes run{.name = "now", .times = {3 * kMs, 4 * kMs}, .ceiling = 2 * kMs};
  run.spread = {{2 * kMs, 3 * kMs, 5 * kMs}, {3 * kMs, 4 * kMs, 6 * kMs}};
  const std::vector<SweepPoint> points = {{"x", 4096, &b}, {"x", 2048, &a}};
  sim::Comparison comparison;
  comparison.ops.resize(2);
  for (sim::MatchedOp& op : comparison.ops) {
    op.name = "gemm";
    op.duration.predicted.value = op.duration.measured.value = kMs;
  }
  for (const Chart& chart :
       {StepTimeChart({run}, {}), RoleChart({RoleTimesOf("now", a.metrics)}, {}),
        SweepChart(points, {.title = "budget"}, {}), ParetoChart(points, {.title = "budget"}, {}),
        ResidualChart(comparison, {}), ResidualHistogram(comparison, "gemm", {})}) {
    ASSERT_TRUE(chart.HasData());
    const QStringList lines = ToCsv(chart).split('\n', Qt::SkipEmptyParts);
    EXPECT_EQ(lines[0].section(',', 0, 0), "series");
    for (const QString& line : lines.mid(1)) {
      EXPECT_FALSE(line.startsWith(',')) << chart.title.toStdString() << ": " << line.toStdString();
    }
    std::set<QString> names;
    for (const ChartSeries& series : chart.series) {
      EXPECT_TRUE(names.insert(series.name).second) << series.name.toStdString();
    }
  }
}

TEST(RoleChart, PointingAtABarTellsItsRoleAndTheBarsStandApart) {
  const sim::Prediction p = Predict(8, 1);
  const Chart chart = RoleChart({RoleTimesOf("freekv", p.metrics)}, {});
  const ChartGeometry geometry = LayOut(chart, {800, 400}, {});
  std::map<QString, QRectF> bars;
  for (const ChartRect& rect : geometry.rects) {
    bars[chart.series[rect.series].name] = rect.rect;
    const auto hit = HitTest(chart, geometry, rect.rect.center());
    ASSERT_TRUE(hit);
    EXPECT_TRUE(hit->text.startsWith(chart.series[rect.series].name + "\nfreekv\n"))
        << hit->text.toStdString();
  }
  ASSERT_TRUE(bars.contains("recall") && bars.contains("recall exposed"));
  EXPECT_GE(bars["recall"].top() - bars["recall exposed"].bottom(), 2);
}

TEST(UnitMap, TellsHitsFromRecalls) {
  traces::AccessLog log;
  log.method = "test";
  log.unit = "page";
  log.steps = 3;
  log.layers.resize(2);
  log.layers[0].dense = true;
  traces::LayerAccess& layer = log.layers[1];
  layer.heads = 1;
  const auto add = [&](std::vector<uint32_t> selected, std::vector<uint32_t> now,
                       std::vector<uint32_t> ahead) {
    layer.selected.Append(selected);
    layer.recalled_now.Append(now);
    layer.recalled_ahead.Append(ahead);
  };
  add({1, 5}, {5}, {7, 9});
  add({1, 5, 7}, {}, {});
  add({1}, {}, {});
  const Chart chart = UnitMap(log, 1, 0, {});
  std::map<QString, std::vector<CellMark::Run>> runs;
  for (const ChartSeries& s : chart.series) runs[s.name] = std::get<CellMark>(s.mark).runs;
  ASSERT_EQ(runs.size(), 4u);
  const auto is = [](int64_t column, int64_t row, int64_t length) {
    return testing::AllOf(testing::Field(&CellMark::Run::column, column),
                          testing::Field(&CellMark::Run::row, row),
                          testing::Field(&CellMark::Run::length, length));
  };
  EXPECT_THAT(runs["hit: on the GPU already"], ElementsAre(is(0, 1, 3), is(1, 5, 1)));
  EXPECT_THAT(runs["recalled before attention"], ElementsAre(is(0, 5, 1)));
  EXPECT_THAT(runs["recalled a step ahead"], ElementsAre(is(1, 7, 1)));
  EXPECT_THAT(runs["recalled ahead in vain"], ElementsAre(is(1, 9, 1)));
  EXPECT_FALSE(UnitMap(log, 0, 0, {}).HasData());
  EXPECT_FALSE(UnitMap(log, 1, 1, {}).HasData());
  EXPECT_FALSE(UnitMap(log, 9, 0, {}).HasData());
}

TEST(ResidualChart, SumsUpEachKind) {
  sim::Comparison comparison;
  for (int i = 0; i <= 100; ++i) {
    sim::MatchedOp op;
    op.name = "gemm";
    op.duration.predicted.value = (1000 + i) * kMs;
    op.duration.measured.value = 1000 * kMs;
    comparison.ops.push_back(op);
    op.name = "call";
    op.call = true;
    comparison.ops.push_back(op);
  }
  const Chart chart = ResidualChart(comparison, {});
  EXPECT_EQ(chart.y.categories, QStringList{"gemm"});
  const BoxMark::Five box = std::get<BoxMark>(chart.series[1].mark).boxes.at(0);
  EXPECT_NEAR(box.p10, 1, 1e-9);
  EXPECT_NEAR(box.p50, 5, 1e-9);
  EXPECT_NEAR(box.p90, 9, 1e-9);
  EXPECT_EQ(box.count, 101);
  const Chart bins = ResidualHistogram(comparison, "gemm", {});
  double total = 0;
  for (const double count : std::get<HistogramMark>(bins.series[0].mark).counts) total += count;
  EXPECT_EQ(total, 101);
}

TEST(ResidualChart, TakesTheQuantilesThatCompareTells) {
  sim::Comparison comparison;
  for (int i = 1; i <= 10; ++i) {
    sim::MatchedOp op;
    op.name = "gemm";
    op.duration.predicted.value = (1000 + i) * kMs;
    op.duration.measured.value = 1000 * kMs;
    comparison.ops.push_back(op);
  }
  const Chart chart = ResidualChart(comparison, {});
  const BoxMark::Five box = std::get<BoxMark>(chart.series[1].mark).boxes.at(0);
  const sim::ResidualSummary told = sim::Summarize(comparison, sim::GroupBy::kName).at(0);
  EXPECT_DOUBLE_EQ(box.p50, told.median_relative * 100);
  EXPECT_DOUBLE_EQ(box.p90, told.p90_relative * 100);
}

}  // namespace
}  // namespace stallcast::gui
