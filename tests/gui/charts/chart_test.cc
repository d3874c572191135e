// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/charts/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <QApplication>
#include <QFile>
#include <QFontMetricsF>
#include <QImage>
#include <QPainter>
#include <QSvgRenderer>
#include <QTemporaryDir>
#include <cmath>
#include <map>
#include <random>
#include <utility>

#include "gui/charts/chart_export.h"
#include "gui/charts/chart_geometry.h"
#include "gui/charts/chart_painter.h"
#include "gui/charts/scale.h"
#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::Le;

Chart Lines() {
  Chart chart;
  chart.title = "Lines";
  chart.note = "with a note";
  chart.x = {.title = "step"};
  chart.y = {.title = "time (ms)", .from_zero = true};
  chart.series.push_back({"a", Qt::blue, LineMark{.points = {{0, 10}, {5, 20}, {10, 15}}}});
  chart.series.push_back({"b", Qt::red, LineMark{.points = {{0, 5}, {10, 5}}, .dashed = true}});
  return chart;
}

Chart Bars(bool horizontal) {
  Chart chart;
  chart.title = "Bars";
  ChartAxis names{.title = "method", .categories = {"one", "two", "a rather long name"}};
  ChartAxis values{.title = "ms", .from_zero = true};
  chart.x = horizontal ? values : names;
  chart.y = horizontal ? names : values;
  chart.series.push_back({"lower", Qt::blue, BarMark{{1, 2, 3}, 0}});
  chart.series.push_back({"upper", Qt::red, BarMark{{4, 0, 1}, 0}});
  chart.series.push_back({"beside", Qt::green, BarMark{{2, 2, 2}, 1}});
  return chart;
}

TEST(Scale, TicksAreRoundInsideAndFew) {
  EXPECT_THAT(Ticks(ScaleKind::kLinear, {0, 10}, 6, false), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(Ticks(ScaleKind::kLinear, {0, 3}, 10, true), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Ticks(ScaleKind::kBinary, {500, 9000}, 8, false),
              ElementsAre(512, 1024, 2048, 4096, 8192));
  EXPECT_THAT(Ticks(ScaleKind::kLog, {1, 1000}, 5, false), ElementsAre(1, 10, 100, 1000));
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const double low = std::pow(10, std::uniform_real_distribution(-6.0, 6.0)(random));
    const double high = low * std::uniform_real_distribution(1.01, 1e4)(random);
    const int most = std::uniform_int_distribution(2, 12)(random);
    for (const ScaleKind kind : {ScaleKind::kLinear, ScaleKind::kLog, ScaleKind::kBinary}) {
      const std::vector<double> ticks = Ticks(kind, {low, high}, most, false);
      EXPECT_LE(ticks.size(), static_cast<size_t>(most));
      EXPECT_THAT(ticks, Each(Ge(low * (1 - 1e-6))));
      EXPECT_THAT(ticks, Each(Le(high * (1 + 1e-6))));
      EXPECT_TRUE(std::is_sorted(ticks.begin(), ticks.end()));
    }
  }
}

TEST(Scale, MapsThereAndBack) {
  for (const ScaleKind kind : {ScaleKind::kLinear, ScaleKind::kLog, ScaleKind::kBinary}) {
    const ScaleMap map(kind, {2, 800}, 100, 0);  // upside down, as y is
    EXPECT_DOUBLE_EQ(map.At(2), 100);
    EXPECT_NEAR(map.At(800), 0, 1e-9);
    for (const double v : {2.0, 3.0, 77.0, 800.0}) EXPECT_NEAR(map.Value(map.At(v)), v, v * 1e-9);
  }
  EXPECT_TRUE(std::isnan(ScaleMap(ScaleKind::kLog, {1, 10}, 0, 1).At(0)));
}

TEST(Scale, LabelsTellTicksApart) {
  EXPECT_EQ(TickLabel(0.25, 0.25), "0.25");
  EXPECT_EQ(TickLabel(2.5, 2.5), "2.5");
  EXPECT_EQ(TickLabel(32768, 0), "32,768");
  EXPECT_EQ(TickLabel(0.3, 0.1), "0.3");
  EXPECT_EQ(TickLabel(-0.0, 1), "0");
}

// Every text inside the picture, none over another, at sizes from tiny to large.
void ExpectTidy(const Chart& chart) {
  for (const QSizeF size :
       {QSizeF(300, 90), QSizeF(220, 140), QSizeF(320, 200), QSizeF(900, 400), QSizeF(2000, 300)}) {
    const ChartGeometry geometry = LayOut(chart, size, QApplication::font());
    const QRectF all(QPointF(-1, -1), size + QSizeF(2, 2));
    for (size_t i = 0; i < geometry.texts.size(); ++i) {
      const ChartText& text = geometry.texts[i];
      if (text.text.isEmpty()) continue;
      EXPECT_TRUE(all.contains(text.rect)) << text.text.toStdString() << " at " << size.width();
      if (!(text.align & Qt::TextWordWrap)) {
        QFont font = QApplication::font();
        font.setBold(text.tone == ChartText::Tone::kStrong);
        EXPECT_LE(QFontMetricsF(font).horizontalAdvance(text.text), text.rect.width() + 1)
            << text.text.toStdString() << " is cut at " << size.width();
      }
      for (size_t k = i + 1; k < geometry.texts.size(); ++k) {
        const QRectF common = text.rect & geometry.texts[k].rect;
        EXPECT_FALSE(common.width() > 1 && common.height() > 1)
            << text.text.toStdString() << " over " << geometry.texts[k].text.toStdString() << " at "
            << size.width();
      }
    }
    for (const ChartRect& rect : geometry.rects) {
      EXPECT_TRUE(geometry.plot.adjusted(-1, -1, 1, 1).contains(rect.rect));
    }
    for (const ChartPolyline& line : geometry.polylines) {
      for (const QPointF& point : line.points) {
        EXPECT_TRUE(geometry.plot.adjusted(-1, -1, 1, 1).contains(point));
      }
    }
  }
}

TEST(ChartGeometry, NothingIsCutOrOverlaps) {
  ExpectTidy(Lines());
  ExpectTidy(Bars(true));
  ExpectTidy(Bars(false));
  Chart log = Lines();
  log.x.scale = ScaleKind::kBinary;
  log.y.from_zero = false;
  log.y.scale = ScaleKind::kLog;
  log.series[0].mark = LineMark{.points = {{512, 0.004}, {32768, 1234567}}, .dots = true};
  ExpectTidy(log);
}

TEST(ChartGeometry, LinesAreNamedBehindTheTitleWhereThereIsRoom) {
  const ChartGeometry wide = LayOut(Lines(), {520, 150}, QApplication::font());
  ASSERT_EQ(wide.swatches.size(), 2u);
  EXPECT_LT(wide.swatches[0].rect.bottom(), wide.plot.top());
  EXPECT_GE(wide.swatches[0].rect.left(), wide.texts[0].rect.right());
  Chart titled = Lines();
  titled.title = QString(60, 'x');
  const ChartGeometry full = LayOut(titled, {520, 400}, QApplication::font());
  ASSERT_EQ(full.swatches.size(), 2u);
  EXPECT_GE(full.swatches[0].rect.top(), full.texts[0].rect.bottom());
}

TEST(ChartGeometry, AtItsLeastHeightEveryCategoryHasItsName) {
  Chart chart = Bars(true);
  chart.y.categories.clear();
  for (int i = 0; i < 20; ++i) chart.y.categories << QStringLiteral("method %1").arg(i);
  for (ChartSeries& series : chart.series) {
    std::get<BarMark>(series.mark).values.assign(20, 1.0);
  }
  const int least = LeastHeight(chart, QApplication::font());
  const ChartGeometry geometry =
      LayOut(chart, {520, static_cast<double>(least)}, QApplication::font());
  int named = 0;
  for (const ChartText& text : geometry.texts) named += text.text.startsWith("method ") ? 1 : 0;
  EXPECT_EQ(named, 20);
  EXPECT_EQ(LeastHeight(Lines(), QApplication::font()), 0);
}

TEST(ChartGeometry, PointsStandWhereTheirValuesAre) {
  const Chart chart = Lines();
  const ChartGeometry g = LayOut(chart, {600, 300}, QApplication::font());
  ASSERT_EQ(g.polylines.size(), 2u);
  EXPECT_DOUBLE_EQ(g.polylines[0].points[0].x(), g.plot.left());
  EXPECT_DOUBLE_EQ(g.polylines[0].points[1].x(), g.plot.center().x());
  EXPECT_DOUBLE_EQ(g.polylines[0].points[1].y(), g.plot.top());  // 20 of 0 to 20
  EXPECT_DOUBLE_EQ(g.polylines[1].points[0].y(), g.plot.bottom() - g.plot.height() / 4);
  EXPECT_TRUE(g.polylines[1].dashed);
}

TEST(ChartGeometry, BarsStackWithinTheirGroup) {
  for (const bool horizontal : {false, true}) {
    const ChartGeometry g = LayOut(Bars(horizontal), {600, 400}, QApplication::font());
    ASSERT_EQ(g.rects.size(), 8u);  // nothing is drawn for the zero
    const auto length = [&](const QRectF& r) { return horizontal ? r.width() : r.height(); };
    const double unit = length(g.rects[0].rect);  // of the value 1
    EXPECT_NEAR(length(g.rects[2].rect), 3 * unit, 1e-6);
    const QRectF lower = g.rects[0].rect, upper = g.rects[3].rect, beside = g.rects[5].rect;
    EXPECT_NEAR(length(upper), 4 * unit, 1e-6);
    if (horizontal) {
      EXPECT_NEAR(upper.left(), lower.right(), 1e-6);
      EXPECT_NEAR(beside.top(), lower.bottom() + 2, 1e-6) << "groups stand apart";
    } else {
      EXPECT_NEAR(upper.bottom(), lower.top(), 1e-6);
      EXPECT_NEAR(beside.left(), lower.right() + 2, 1e-6);
    }
  }
}

TEST(ChartGeometry, LongLinesKeepTheirExtremes) {
  LineMark line;
  for (int i = 0; i < 200'000; ++i) line.points.emplace_back(i, i == 123'456 ? 100.0 : i % 7);
  Chart chart = Lines();
  chart.series = {{"a", Qt::blue, line}};
  const ChartGeometry g = LayOut(chart, {600, 300}, QApplication::font());
  ASSERT_EQ(g.polylines.size(), 1u);
  EXPECT_LE(g.polylines[0].points.size(), 4 * 600);
  EXPECT_DOUBLE_EQ(g.polylines[0].points.boundingRect().top(), g.plot.top());
}

TEST(ChartGeometry, LongBandsCoverAllOfTheirValues) {
  BandMark band;
  std::mt19937 random(5);
  std::uniform_real_distribution<double> value(10, 20);
  for (int i = 0; i < 50'000; ++i) {
    band.x.push_back(i);
    band.low.push_back(value(random) - (i == 20'000 ? 30 : 10));
    band.high.push_back(value(random) + (i == 30'000 ? 30 : 10));
  }
  Chart chart = Lines();
  chart.series = {{"a", Qt::blue, band}};
  const ChartGeometry g = LayOut(chart, {600, 300}, QApplication::font());
  ASSERT_EQ(g.areas.size(), 1u);
  const QPolygonF& outline = g.areas[0].outline;
  EXPECT_LE(outline.size(), 2 * 600 + 2);
  EXPECT_NEAR(outline.boundingRect().left(), g.x.At(0), 1e-6);
  EXPECT_NEAR(outline.boundingRect().right(), g.x.At(49'999), 1e-6);
  // At the left of a pixel column its edges are those of all that lies in the column.
  std::map<double, std::pair<double, double>> columns;
  for (size_t i = 0; i < band.x.size(); ++i) {
    const double low = g.y.At(band.low[i]), high = g.y.At(band.high[i]);
    const auto [column, fresh] = columns.try_emplace(std::floor(g.x.At(band.x[i])), high, low);
    column->second.first = std::min(column->second.first, high);
    column->second.second = std::max(column->second.second, low);
  }
  std::map<double, std::pair<double, double>> drawn;
  for (const QPointF& point : outline) {
    const auto [column, fresh] = drawn.try_emplace(std::floor(point.x()), point.y(), point.y());
    column->second.first = std::min(column->second.first, point.y());
    column->second.second = std::max(column->second.second, point.y());
  }
  EXPECT_EQ(drawn, columns);
}

// However long, and whatever it does, a line is the same stroke: what is painted on a screen in
// segments covers what a file has as one path.
TEST(ChartPainter, SegmentsCoverTheSameAsThePath) {
  LineMark line;
  std::mt19937 random(7);
  std::uniform_real_distribution<double> value(0, 100);
  for (int i = 0; i < 300; ++i) line.points.emplace_back(i, value(random));
  Chart chart = Lines();
  chart.series = {{"a", Qt::blue, line}};
  const QSize size(600, 300);
  const ChartGeometry g = LayOut(chart, size, QApplication::font());
  QImage screen(size, QImage::Format_RGB32), path(size, QImage::Format_RGB32);
  {
    QPainter painter(&screen);
    Paint(painter, chart, g, ChartTheme::From(QPalette()), QApplication::font());
  }
  {
    ChartGeometry rest = g;
    rest.polylines.clear();
    QPainter painter(&path);
    Paint(painter, chart, rest, ChartTheme::From(QPalette()), QApplication::font());
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setPen(QPen(Qt::blue, 2, Qt::SolidLine, Qt::RoundCap, Qt::RoundJoin));
    painter.setBrush(Qt::NoBrush);
    painter.drawPolyline(g.polylines[0].points);
  }
  int64_t off = 0, blue = 0;
  for (int y = 0; y < size.height(); ++y) {
    for (int x = 0; x < size.width(); ++x) {
      if (!g.plot.contains(x, y)) continue;
      blue += qRed(path.pixel(x, y)) < 128;
      off += std::abs(qRed(path.pixel(x, y)) - qRed(screen.pixel(x, y))) > 96;
    }
  }
  EXPECT_GT(blue, 10'000);
  EXPECT_LT(off, blue / 50);
}

TEST(ChartGeometry, GapsBreakLinesAndUnplaceableValuesAreLeftOut) {
  Chart chart = Lines();
  const double nan = std::nan("");
  chart.series = {{"a", Qt::blue, LineMark{.points = {{1, 1}, {2, 2}, {3, nan}, {4, 4}, {5, 5}}}}};
  EXPECT_EQ(LayOut(chart, {600, 300}, QApplication::font()).polylines.size(), 2u);
  chart.y = {.title = "log", .scale = ScaleKind::kLog};
  chart.series = {{"a", Qt::blue, DotMark{.points = {{1, 0}, {2, 10}, {3, -5}}}}};
  EXPECT_EQ(LayOut(chart, {600, 300}, QApplication::font()).dots.size(), 1u);
}

TEST(ChartGeometry, HitsTellTheirValues) {
  const Chart chart = Bars(true);
  const ChartGeometry g = LayOut(chart, {600, 400}, QApplication::font());
  const auto hit = HitTest(chart, g, g.rects[3].rect.center());
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->series, 1u);
  EXPECT_EQ(hit->index, 0);
  EXPECT_EQ(hit->text, "upper\none\nms: 4");
  EXPECT_FALSE(HitTest(chart, g, {2, 2}));
  const Chart lines = Lines();
  const ChartGeometry l = LayOut(lines, {600, 300}, QApplication::font());
  const auto point = HitTest(lines, l, l.polylines[0].points[1] + QPointF(3, 4));
  ASSERT_TRUE(point);
  EXPECT_EQ(point->index, 1);
}

TEST(ChartGeometry, EmptyChartsSayWhy) {
  Chart chart = Lines();
  chart.series.clear();
  chart.empty = "nothing yet";
  const ChartGeometry g = LayOut(chart, {600, 300}, QApplication::font());
  EXPECT_EQ(g.texts.back().text, "nothing yet");
  EXPECT_TRUE(g.grid.empty());
}

TEST(ChartGeometry, TheSubjectStandsBelowTheTitleWhereThereIsRoom) {
  Chart chart = Lines();
  chart.subject = {"now: freekv, h200", "pin A: louiskv, h200"};
  ExpectTidy(chart);
  chart.y.title.clear();
  const auto has = [&](double height) {
    QStringList texts;
    for (const ChartText& text : LayOut(chart, {600, height}, QApplication::font()).texts) {
      texts << text.text;
    }
    return texts.contains(chart.subject[0]) && texts.contains(chart.subject[1]) &&
           texts.contains(chart.note) && texts.contains("a");
  };
  EXPECT_TRUE(has(FullHeight(chart, QApplication::font())));
  EXPECT_FALSE(has(120));
}

TEST(ChartCsv, EveryLineSaysWhatItIsOf) {
  Chart chart = Lines();
  chart.subject = {"now: freekv, h200", "pin A: quest"};
  EXPECT_TRUE(
      ToCsv(chart).startsWith("series,of,step,time (ms)\n"
                              "a,\"now: freekv, h200; pin A: quest\",0,10\n"));
}

TEST(ChartCsv, HasALineAPoint) {
  EXPECT_EQ(ToCsv(Lines()), "series,step,time (ms)\na,0,10\na,5,20\na,10,15\nb,0,5\nb,10,5\n");
  Chart chart = Bars(true);
  chart.y.categories[1] = "two, \"quoted\"";
  EXPECT_TRUE(ToCsv(chart).contains("lower,\"two, \"\"quoted\"\"\",2\n"));
}

class ChartFiles : public testing::Test {
 protected:
  QString Save(const char* name) {
    const QString path = folder_.filePath(QLatin1String(name));
    SaveChart(Lines(), path, {400, 200}, ChartTheme::From(QPalette(Qt::white)),
              QApplication::font());
    return path;
  }
  QTemporaryDir folder_;
};

TEST_F(ChartFiles, AreWhatTheirEndingSays) {
  const QImage image(Save("a.png"));
  EXPECT_EQ(image.size(), QSize(800, 400));
  QSvgRenderer svg(Save("a.svg"));
  ASSERT_TRUE(svg.isValid());
  EXPECT_EQ(svg.viewBox().size(), QSize(400, 200));
  QImage drawn(400, 200, QImage::Format_RGB32);
  drawn.fill(Qt::white);
  QPainter painter(&drawn);
  svg.render(&painter);
  painter.end();
  int blue = 0;
  for (int y = 0; y < 200; ++y) {
    for (int x = 0; x < 400; ++x) blue += drawn.pixelColor(x, y) == QColor(Qt::blue) ? 1 : 0;
  }
  EXPECT_GT(blue, 300);
  QFile pdf(Save("a.pdf"));
  ASSERT_TRUE(pdf.open(QIODevice::ReadOnly));
  EXPECT_TRUE(pdf.readAll().startsWith("%PDF-"));
  QFile csv(Save("a.csv"));
  ASSERT_TRUE(csv.open(QIODevice::ReadOnly));
  EXPECT_EQ(QString::fromUtf8(csv.readAll()), ToCsv(Lines()));
  EXPECT_THROW(Save("a.bmp"), Error);
  // A picture is high enough for what it is of.
  Chart chart = Lines();
  chart.subject = {"one", "two", "three", "four", "five"};
  SaveChart(chart, folder_.filePath("b.png"), {400, 100}, ChartTheme::From(QPalette(Qt::white)),
            QApplication::font());
  EXPECT_EQ(QImage(folder_.filePath("b.png")).height(),
            2 * FullHeight(chart, QApplication::font()));
  EXPECT_THROW(Save("absent/a.png"), Error);
}

}  // namespace
}  // namespace stallcast::gui
