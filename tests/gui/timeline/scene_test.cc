// SPDX-License-Identifier: GPL-3.0-or-later
// Geometry: shapes counted and compared, without a painter.
#include "gui/timeline/scene.h"

#include <gtest/gtest.h>

#include <QStringList>
#include <set>

#include "gui/timeline/legend.h"
#include "gui/timeline/overlay.h"
#include "tests/gui/timeline/random_timeline.h"

namespace stallcast::gui {
namespace {

using traces::Timeline;

// Seven pixels a letter.
class PlainMeasure : public TextMeasure {
 public:
  explicit PlainMeasure(double scale) : scale_(scale) {}
  int Width(const QString& text, TextStyle) const override {
    return static_cast<int>(7 * scale_ * static_cast<double>(text.size()));
  }
  int Height(TextStyle) const override { return static_cast<int>(14 * scale_); }

 private:
  double scale_;
};

struct Drawn {
  std::shared_ptr<const TimelineModel> predicted, measured, ghost;
  std::shared_ptr<const TimelinePair> pair;
  Alignment alignment;
  Layout layout;
  std::unique_ptr<PlainMeasure> measure;
  SceneInput input;
  Scene scene;

  void Draw(int width, int height, double scale, AxisRange visible,
            const std::set<LaneKey>& pins = {}, std::array<int, 2> scroll = {},
            const std::set<LaneKey>& folded = {}) {
    LayoutInput in;
    in.folded = folded;
    in.pair = pair.get();
    in.ghost = ghost.get();
    in.pins = pins;
    in.scroll = scroll;
    in.width = width;
    in.height = height;
    in.scale = scale;
    in.header_width = static_cast<int>(110 * scale);
    measure = std::make_unique<PlainMeasure>(scale);
    in.legend_height = MakeLegend(*pair, input.color, pair->both(), width, scale, *measure).height;
    layout = Arrange(in);
    input.pair = pair.get();
    input.ghost = ghost.get();
    input.alignment = &alignment;
    input.visible = visible;
    input.layout = &layout;
    input.scale = scale;
    input.measure = measure.get();
    scene = gui::Draw(input, MinimapBars(*pair, alignment, layout.chart_width()));
  }
};

Drawn Two(uint32_t seed, bool ghost = false) {
  Drawn d;
  d.predicted = TimelineModel::Build(RandomTimeline(seed, 2000, 6));
  d.measured = TimelineModel::Build(RandomTimeline(seed + 1, 1500, 6, Timeline::Origin::kMeasured));
  if (ghost) d.ghost = TimelineModel::Build(RandomTimeline(seed + 2, 1000, 6));
  d.pair = TimelinePair::Make({d.predicted}, {d.measured});
  d.alignment = Align(d.predicted.get(), d.measured.get(), d.ghost.get());
  return d;
}

AxisRange Part(const Alignment& a, double from, double length) {
  const auto at = [&](double share) {
    return a.whole.begin +
           Picoseconds(static_cast<int64_t>(share * static_cast<double>(a.whole.length().count())));
  };
  return {at(from), at(from + length)};
}

// Every picture: in bounds, nothing written over something else.
void ExpectTidy(const Drawn& d, int width, int height) {
  const Frame& frame = d.scene.frame;
  const Box all{0, 0, width, height};
  std::vector<Box> rows;
  for (const LaneBox& lane : d.layout.lanes) {
    for (const LaneRow& row : lane.rows) {
      if (row.shown.empty()) continue;
      const Box& region = d.layout.region[static_cast<size_t>(lane.side)];
      EXPECT_GE(row.shown.y0, region.y0);
      EXPECT_LE(row.shown.y1, region.y1);
      for (const Box& other : rows) EXPECT_FALSE(row.shown.Overlaps(other));
      rows.push_back(row.shown);
    }
  }
  for (const BarShape& bar : frame.bars) {
    EXPECT_EQ(Intersection(bar.box, all), bar.box);
    EXPECT_FALSE(bar.box.empty());
  }
  for (const Fill& fill : frame.fills) EXPECT_EQ(Intersection(fill.box, all), fill.box);
  for (size_t i = 0; i < frame.labels.size(); ++i) {
    const Label& label = frame.labels[i];
    EXPECT_EQ(Intersection(label.box, all), label.box) << label.text.toStdString();
    EXPECT_LE(d.measure->Width(label.text, label.style), label.box.width())
        << label.text.toStdString();
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(label.box.Overlaps(frame.labels[j].box))
          << label.text.toStdString() << " over " << frame.labels[j].text.toStdString();
    }
  }
}

TEST(Scene, IsTidyAtEverySizeZoomAndScale) {
  const std::pair<int, int> sizes[] = {{1920, 1080}, {1000, 500}, {360, 240}};
  for (const auto& [w, h] : sizes) {
    for (double scale : {1.0, 1.5, 2.0}) {
      Drawn d = Two(3, true);
      const int width = static_cast<int>(w * scale), height = static_cast<int>(h * scale);
      for (const AxisRange visible :
           {d.alignment.whole, Part(d.alignment, 0.2, 0.1), Part(d.alignment, 0.4, 0.004)}) {
        SCOPED_TRACE(testing::Message() << w << " x " << h << " at " << scale << ", "
                                        << visible.length().count() << " ps");
        d.Draw(width, height, scale, visible);
        ExpectTidy(d, width, height);
      }
    }
  }
}

TEST(Scene, DrawsEveryRowOnce) {
  Drawn d = Two(8);
  d.Draw(1400, 4000, 1, {d.alignment.whole.begin, d.alignment.whole.end + Picoseconds{1000}});
  for (Side side : kSides) {
    std::vector<int> drawn(static_cast<size_t>(d.pair->model(side)->rows()));
    for (const BarShape& bar : d.scene.frame.bars) {
      if (bar.kind != BarShape::Kind::kOp || bar.side != side) continue;
      for (int64_t row = bar.first; row < bar.last; ++row) drawn[static_cast<size_t>(row)] = 1;
      EXPECT_EQ(bar.merged, bar.last - bar.first > 1);
    }
    EXPECT_EQ(std::count(drawn.begin(), drawn.end(), 0), 0);
  }
}

TEST(Scene, TheSidesAreMirroredAboutTheRuler) {
  Timeline t = EmptyTimeline();
  for (uint16_t lane = 0; lane < 4; ++lane) {
    Add(t, {.lane = lane, .op = lane, .step = 0, .start = lane * 10000, .duration = 8000});
  }
  Drawn d;
  d.predicted = TimelineModel::Build(t);
  d.measured = TimelineModel::Build(t);
  d.pair = TimelinePair::Make({d.predicted}, {d.measured});
  d.alignment = Align(d.predicted.get(), d.measured.get(), nullptr);
  d.Draw(1000, 900, 1, d.alignment.whole);
  const int up = d.layout.ruler.y0, down = d.layout.ruler.y1;
  ASSERT_EQ(d.layout.lanes.size(), 8u);
  for (size_t i = 0; i < 4; ++i) {
    const LaneBox &p = d.layout.lanes[i], &m = d.layout.lanes[i + 4];
    EXPECT_EQ(p.lane, m.lane);
    ASSERT_EQ(p.rows.size(), m.rows.size());
    for (size_t r = 0; r < p.rows.size(); ++r) {
      EXPECT_EQ(up - p.rows[r].box.y1, m.rows[r].box.y0 - down);
      EXPECT_EQ(up - p.rows[r].box.y0, m.rows[r].box.y1 - down);
    }
  }
  // From the axis outwards: compute, the other stream, the copy engine, the host.
  EXPECT_EQ(d.layout.lanes[0].lane, 1);
  EXPECT_EQ(d.layout.lanes[1].lane, 3);
  EXPECT_EQ(d.layout.lanes[2].lane, 2);
  EXPECT_EQ(d.layout.lanes[3].lane, 0);
}

TEST(Scene, PinnedLanesAreNearestTheAxisAndDoNotScroll) {
  Drawn d = Two(4);
  const std::set<LaneKey> pins = {{Side::kMeasured, "host"}};
  d.Draw(1000, 400, 1, d.alignment.whole, pins);
  ASSERT_GT(d.layout.scroll_limit[1], 0);
  const auto host = [&] {
    return std::find_if(d.layout.lanes.begin(), d.layout.lanes.end(),
                        [](const LaneBox& l) { return l.side == Side::kMeasured && l.pinned; });
  };
  ASSERT_NE(host(), d.layout.lanes.end());
  const Box before = host()->rows[0].box;
  EXPECT_LT(before.y0 - d.layout.ruler.y1, 20);
  d.Draw(1000, 400, 1, d.alignment.whole, pins, {0, d.layout.scroll_limit[1]});
  EXPECT_EQ(host()->rows[0].box, before);
  ExpectTidy(d, 1000, 400);
  // The outermost row has come into view whole.
  const LaneBox& last = d.layout.lanes.back();
  EXPECT_EQ(last.rows.back().shown, last.rows.back().box);
}

TEST(Scene, AFoldedLaneIsOneRowThatShowsAllItsOps) {
  Drawn d = Two(5);
  const LaneKey compute{Side::kPredicted, "compute"};
  d.Draw(1600, 900, 1, Part(d.alignment, 0.3, 0.05));
  const auto lane_of = [&]() -> const LaneBox& {
    for (const LaneBox& lane : d.layout.lanes) {
      if (lane.side == Side::kPredicted && lane.lane == 1) return lane;
    }
    throw std::logic_error("no compute lane");
  };
  const auto rows_drawn = [&] {
    std::set<int64_t> rows;
    for (const BarShape& bar : d.scene.frame.bars) {
      if (bar.kind != BarShape::Kind::kOp || bar.side != Side::kPredicted) continue;
      for (int64_t row = bar.first; row < bar.last; ++row) rows.insert(row);
    }
    return rows;
  };
  const std::set<int64_t> unfolded = rows_drawn();
  ASSERT_GT(lane_of().rows.size(), 2u) << "exposed time and overlapping ops";
  const int height = lane_of().header.height();
  d.Draw(1600, 900, 1, Part(d.alignment, 0.3, 0.05), {}, {}, {compute});
  ASSERT_EQ(lane_of().rows.size(), 1u);
  EXPECT_TRUE(lane_of().folded);
  EXPECT_LT(lane_of().header.height(), height / 2);
  EXPECT_EQ(rows_drawn(), unfolded) << "no op is dropped";
  const ModelLane& model = d.predicted->lanes()[1];
  for (int32_t k = 0; k < model.tracks; ++k) {
    EXPECT_EQ(d.layout.RowOf(Side::kPredicted, model.first_track + k), &lane_of().rows[0])
        << "what points at an op of any sub-lane finds it";
  }
  ExpectTidy(d, 1600, 900);
}

TEST(Scene, OneSideHangsBelowTheRuler) {
  Drawn d;
  d.measured = TimelineModel::Build(RandomTimeline(2, 300, 3, Timeline::Origin::kImported));
  d.pair = TimelinePair::Make({nullptr}, {d.measured});
  d.alignment = Align(nullptr, d.measured.get(), nullptr);
  d.Draw(900, 600, 1, d.alignment.whole);
  ExpectTidy(d, 900, 600);
  EXPECT_TRUE(d.layout.region[0].empty());
  EXPECT_EQ(d.layout.region[1].y0, d.layout.ruler.y1);
}

TEST(Scene, FilteredOutBarsAreDimmedAndNoneIsLost) {
  Drawn d = Two(6);
  d.Draw(1200, 3000, 1, d.alignment.whole);
  const auto all = d.scene.frame.bars;
  const FilterMask mask(Filter("role:recall"), *d.pair, Side::kPredicted);
  d.input.masks[0] = &mask;
  d.scene = gui::Draw(d.input, MinimapBars(*d.pair, d.alignment, d.layout.chart_width()));
  ASSERT_EQ(d.scene.frame.bars.size(), all.size());
  int dimmed = 0, shown = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const BarShape& bar = d.scene.frame.bars[i];
    EXPECT_EQ(bar.box, all[i].box);
    if (bar.kind != BarShape::Kind::kOp || bar.side != Side::kPredicted) {
      EXPECT_FALSE(bar.dimmed);
      continue;
    }
    EXPECT_EQ(bar.dimmed, mask.Count(bar.first, bar.last) == 0);
    (bar.dimmed ? dimmed : shown) += 1;
  }
  EXPECT_GT(dimmed, 0);
  EXPECT_GT(shown, 0);
}

TEST(Scene, TheLegendFramesTheRoleThatIsFilteredBy) {
  Drawn d = Two(6);
  d.Draw(1200, 900, 1, d.alignment.whole);
  EXPECT_TRUE(d.scene.frame.outlines.empty());
  d.input.chosen_role = traces::Role::kRecall;
  d.Draw(1200, 900, 1, d.alignment.whole);
  ASSERT_EQ(d.scene.frame.outlines.size(), 1u);
  for (const LegendItem& item : d.scene.legend) {
    EXPECT_EQ(d.scene.frame.outlines[0].box.Overlaps(item.box), item.role == traces::Role::kRecall);
  }
}

TEST(Scene, TheRulerTellsEachStepsTimesTheLastOnesToo) {
  Drawn d;
  Timeline p = EmptyTimeline(), m = EmptyTimeline(Timeline::Origin::kMeasured);
  for (int32_t step = 0; step < 2; ++step) {
    Add(p, {.lane = 1, .op = step, .step = step, .start = step * 80'000, .duration = 80'000});
    Add(m, {.lane = 1, .op = step, .step = step, .start = step * 100'000, .duration = 100'000});
  }
  d.predicted = TimelineModel::Build(p);
  d.measured = TimelineModel::Build(m);
  d.pair = TimelinePair::Make({d.predicted}, {d.measured});
  d.alignment = Align(d.predicted.get(), d.measured.get(), nullptr);
  d.Draw(1600, 900, 1, d.alignment.whole);
  QStringList texts;
  for (const Label& label : d.scene.frame.labels) texts << label.text;
  for (const char* step : {"step 0", "step 1"}) {
    EXPECT_TRUE(texts.contains(QStringLiteral("%1   predicted 80 ns   measured 100 ns   −20.0 %")
                                   .arg(QLatin1String(step))))
        << texts.join(" | ").toStdString();
  }
}

// A wait that outlasts its step, on the side whose step is shorter: no time passes in its slack.
TEST(Scene, AnOpThatGoesOnOverSlackIsNotDrawnThere) {
  Drawn d;
  Timeline p = EmptyTimeline(), m = EmptyTimeline(Timeline::Origin::kMeasured);
  for (int32_t step = 0; step < 3; ++step) {
    Add(p, {.lane = 1, .op = 2 * step, .step = step, .start = step * 50'000, .duration = 50'000});
    Add(m, {.lane = 1, .op = 2 * step, .step = step, .start = step * 100'000, .duration = 100'000});
  }
  Add(p, {.lane = 0, .op = 1, .step = 0, .start = 20'000, .duration = 35'000});
  d.predicted = TimelineModel::Build(p);
  d.measured = TimelineModel::Build(m);
  d.pair = TimelinePair::Make({d.predicted}, {d.measured});
  d.alignment = Align(d.predicted.get(), d.measured.get(), nullptr);
  d.Draw(1600, 900, 1, d.alignment.whole);
  ExpectTidy(d, 1600, 900);
  const auto x = [&](int64_t axis) {
    return ColumnOf(Picoseconds{axis}, d.alignment.whole, d.layout);
  };
  const auto op = std::find_if(
      d.scene.frame.bars.begin(), d.scene.frame.bars.end(),
      [&](const BarShape& bar) { return bar.side == Side::kPredicted && bar.box.x0 == x(20'000); });
  ASSERT_NE(op, d.scene.frame.bars.end());
  EXPECT_EQ(op->box.x1, x(105'000));
  // Its lane's color over it, and the hatch of slack over that.
  ASSERT_EQ(d.scene.frame.gaps.size(), 2u);
  for (const Fill& gap : d.scene.frame.gaps) {
    EXPECT_EQ(gap.box, (Box{x(50'000), op->box.y0, x(100'000), op->box.y1}));
  }
  EXPECT_FALSE(d.scene.frame.gaps[0].hatched);
  EXPECT_TRUE(d.scene.frame.gaps[1].hatched);
  for (const Label& label : d.scene.frame.labels) {
    const Box over = Intersection(label.box, op->box);
    EXPECT_TRUE(over.empty() || over.x1 <= x(50'000)) << label.text.toStdString();
  }
}

TEST(Scene, TheRulerSaysWhichStepsOneSideHasAlone) {
  Drawn d;
  Timeline p = EmptyTimeline(), m = EmptyTimeline(Timeline::Origin::kMeasured);
  for (int32_t step = 0; step < 3; ++step) {
    Add(p, {.lane = 1, .op = step, .step = step, .start = step * 80'000, .duration = 80'000});
  }
  Add(m, {.lane = 1, .op = 0, .step = 0, .start = 0, .duration = 100'000});
  d.predicted = TimelineModel::Build(p);
  d.measured = TimelineModel::Build(m);
  d.pair = TimelinePair::Make({d.predicted}, {d.measured});
  d.alignment = Align(d.predicted.get(), d.measured.get(), nullptr);
  d.Draw(1600, 900, 1, d.alignment.whole);
  QStringList texts;
  for (const Label& label : d.scene.frame.labels) texts << label.text;
  for (const char* text : {"step 0   predicted 80 ns   measured 100 ns   −20.0 %",
                           "step 1, predicted only   80 ns", "step 2, predicted only   80 ns"}) {
    EXPECT_TRUE(texts.contains(QString::fromUtf8(text))) << texts.join(" | ").toStdString();
  }
  ExpectTidy(d, 1600, 900);
}

TEST(Scene, ResidualColorsComeFromTheTwins) {
  Timeline p = EmptyTimeline(), m = EmptyTimeline(Timeline::Origin::kMeasured);
  const int64_t predicted[] = {100'000, 103'000, 130'000, 60'000};
  for (int64_t op = 0; op < 4; ++op) {
    Add(p, {.op = op, .step = 0, .start = op * 200'000, .duration = predicted[op]});
    Add(m, {.op = op, .step = 0, .start = op * 200'000, .duration = 100'000});
  }
  Add(p, {.step = 0, .start = 900'000, .duration = 100'000});
  Drawn d;
  d.predicted = TimelineModel::Build(p);
  d.measured = TimelineModel::Build(m);
  d.pair = TimelinePair::Make({d.predicted}, {d.measured});
  d.alignment = Align(d.predicted.get(), d.measured.get(), nullptr);
  d.input.color = ColorBy::kResidual;
  d.Draw(1000, 600, 1, d.alignment.whole);
  std::vector<Ink> inks;
  for (const BarShape& bar : d.scene.frame.bars) {
    if (bar.kind == BarShape::Kind::kOp && bar.side == Side::kPredicted && bar.last > bar.first) {
      inks.push_back(bar.ink);
    }
  }
  const Ink::Kind kShade = Ink::Kind::kResidual;
  EXPECT_EQ(inks,
            (std::vector<Ink>{
                {kShade, 4}, {kShade, 5}, {kShade, 8}, {kShade, 0}, {Ink::Kind::kNoTwin, 0}}));
}

TEST(Overlay, HoveringLightsBothTwinsAndTheirFacts) {
  Drawn d = Two(12);
  d.Draw(1400, 3000, 1, Part(d.alignment, 0.3, 0.05));
  int tried = 0;
  for (const BarShape& bar : d.scene.frame.bars) {
    if (bar.kind != BarShape::Kind::kOp || bar.merged || bar.box.width() < 5) continue;
    const int x = (bar.box.x0 + bar.box.x1) / 2, y = (bar.box.y0 + bar.box.y1) / 2;
    const Hit hit = HitAt(d.scene.frame, x, y);
    ASSERT_EQ(hit, (Hit{Hit::Kind::kOp, bar.side, bar.first, bar.last}));
    OverlayInput in;
    in.scene = &d.input;
    in.base = &d.scene.frame;
    in.hover = hit;
    in.cursor_x = x;
    in.cursor_y = y;
    const Frame overlay = DrawOverlay(in);
    const auto outlined = [&](OpRef op) {
      const auto box = BoxOf(d.input, op);
      return !box || std::any_of(overlay.outlines.begin(), overlay.outlines.end(),
                                 [&](const Outline& o) { return o.box == *box; });
    };
    EXPECT_TRUE(outlined({bar.side, bar.first}));
    const auto twin = d.pair->Twin({bar.side, bar.first});
    if (twin) {
      EXPECT_TRUE(outlined(*twin));
    }
    ASSERT_EQ(overlay.panels.size(), 1u);
    const Box& card = overlay.panels[0].box;
    EXPECT_EQ(Intersection(card, {0, 0, 1400, 3000}), card);
    EXPECT_FALSE(card.Contains(x, y));  // what is pointed at stays visible
    for (const Outline& lit : overlay.outlines) {
      if (lit.thickness < 2) continue;  // other rows of the same op
      EXPECT_TRUE(lit.halo);
      const bool room = lit.box.width() < 1200;  // the card may stand above it or below
      EXPECT_TRUE(!room || !card.Overlaps(lit.box));
    }
    EXPECT_EQ(std::count_if(overlay.outlines.begin(), overlay.outlines.end(),
                            [](const Outline& o) { return o.thickness == 2; }),
              1 + (twin && BoxOf(d.input, *twin)));
    for (size_t i = 0; i < overlay.labels.size(); ++i) {
      EXPECT_EQ(Intersection(overlay.labels[i].box, card), overlay.labels[i].box);
      for (size_t j = 0; j < i; ++j) {
        EXPECT_FALSE(overlay.labels[i].box.Overlaps(overlay.labels[j].box));
      }
    }
    ++tried;
  }
  EXPECT_GT(tried, 20);
}

TEST(Overlay, TheCardOfOneOverTheOtherCoversNeither) {
  Timeline p = EmptyTimeline(), m = EmptyTimeline(Timeline::Origin::kMeasured);
  for (int32_t op = 0; op < 8; ++op) {
    Add(p, {.op = op, .step = 0, .start = op * 100'000, .duration = 90'000});
    Add(m, {.op = op, .step = 0, .start = op * 110'000, .duration = 100'000});
  }
  Drawn d;
  d.predicted = TimelineModel::Build(p);
  d.measured = TimelineModel::Build(m);
  d.pair = TimelinePair::Make({d.predicted}, {d.measured});
  d.alignment = Align(d.predicted.get(), d.measured.get(), nullptr);
  d.Draw(1000, 600, 1, d.alignment.whole);
  for (Side side : kSides) {
    for (int64_t row = 0; row < 8; ++row) {
      const Box op = *BoxOf(d.input, {side, row}), twin = *BoxOf(d.input, {Other(side), row});
      for (int x = op.x0; x < op.x1; x += 5) {
        OverlayInput in;
        in.scene = &d.input;
        in.base = &d.scene.frame;
        in.hover = {Hit::Kind::kOp, side, row, row + 1};
        in.cursor_x = x;
        in.cursor_y = (op.y0 + op.y1) / 2;
        const Frame overlay = DrawOverlay(in);
        ASSERT_EQ(overlay.panels.size(), 1u);
        const Box card = overlay.panels[0].box;
        EXPECT_FALSE(card.Overlaps(op));
        EXPECT_FALSE(card.Overlaps(twin));
        EXPECT_FALSE(card.Overlaps(d.layout.ruler)) << "there is room beside it";
        EXPECT_EQ(Intersection(card, {0, 0, 1000, 600}), card);
      }
    }
  }
}

TEST(Overlay, ATwinOutsideIsPointedAt) {
  Drawn d = Two(12);
  int outside = 0;
  for (int64_t row = 0; row < d.predicted->rows(); row += 37) {
    const OpRef op{Side::kPredicted, row};
    const auto twin = d.pair->Twin(op);
    if (!twin) continue;
    const Picoseconds at = d.alignment.predicted.ToAxis(d.predicted->Start(row));
    d.Draw(1400, 3000, 1, {at - Picoseconds{2000}, at + Picoseconds{3000}});
    OverlayInput in;
    in.scene = &d.input;
    in.base = &d.scene.frame;
    in.selected = op;
    const Frame overlay = DrawOverlay(in);
    const Picoseconds other = d.alignment.measured.ToAxis(d.measured->Start(twin->row));
    const bool visible = other >= d.input.visible.begin && other < d.input.visible.end;
    outside += !visible;
    ASSERT_EQ(overlay.panels.size(), visible ? 0u : 1u);
    if (visible) continue;
    const bool left = other < d.input.visible.begin;
    EXPECT_EQ(overlay.panels[0].box.x0 < 700, left);
    EXPECT_TRUE(overlay.labels[0].text.contains(left ? QString("earlier") : QString("later")));
  }
  EXPECT_GT(outside, 5);
}

TEST(Overlay, TheGhostHasItsNameAndTellsItsTimes) {
  const auto steps = [](int64_t longer) {
    Timeline t = EmptyTimeline();
    for (int32_t op = 0; op < 4; ++op) {
      Add(t, {.op = op, .step = 0, .start = op * 200'000, .duration = 90'000 + longer});
    }
    return t;
  };
  Timeline former = steps(45'000);
  Add(former, {.op = 9, .step = 0, .name = 3, .start = 800'000, .duration = 50'000});
  Drawn d;
  d.predicted = TimelineModel::Build(steps(0));
  d.ghost = TimelineModel::Build(former);
  d.pair = TimelinePair::Make({d.predicted}, {nullptr});
  d.alignment = Align(d.predicted.get(), nullptr, d.ghost.get());
  d.input.ghost_name = "pin B";
  d.Draw(1600, 900, 1, d.alignment.whole);
  EXPECT_TRUE(std::any_of(d.scene.frame.labels.begin(), d.scene.frame.labels.end(),
                          [](const Label& label) { return label.text == "pin B"; }));
  int of_now = 0, gone = 0, asked = 0;
  for (const BarShape& bar : d.scene.frame.bars) {
    const bool ghost = bar.kind == BarShape::Kind::kGhost;
    if (!ghost && bar.kind != BarShape::Kind::kOp) continue;
    if (bar.last <= bar.first) continue;
    const int x = (bar.box.x0 + bar.box.x1) / 2, y = (bar.box.y0 + bar.box.y1) / 2;
    OverlayInput in;
    in.scene = &d.input;
    in.base = &d.scene.frame;
    in.hover = HitAt(d.scene.frame, x, y);
    in.cursor_x = x;
    in.cursor_y = y;
    const Frame overlay = DrawOverlay(in);
    QStringList texts;
    for (const Label& label : overlay.labels) texts << label.text;
    EXPECT_TRUE(texts.contains("pin B")) << texts.join(" | ").toStdString();
    if (texts.contains("now")) {
      EXPECT_TRUE(texts.contains("90 ns") && texts.contains("135 ns"))
          << texts.join(" | ").toStdString();
      (ghost ? asked : of_now) += 1;
    } else {
      EXPECT_TRUE(texts.contains("50 ns")) << texts.join(" | ").toStdString();
      ++gone;
    }
  }
  EXPECT_EQ(of_now, 4);
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(gone, 1);
}

TEST(Overlay, WaitsAreArrowsFromEndToStart) {
  Timeline t = EmptyTimeline();
  Add(t, {.lane = 2,
          .op = 0,
          .step = 0,
          .role = traces::Role::kRecall,
          .name = 1,
          .start = 0,
          .duration = 10'000});
  Add(t, {.lane = 1, .op = 1, .step = 0, .start = 12'000, .duration = 8'000});
  t.flows = {{0, 1}};
  Drawn d;
  d.predicted = TimelineModel::Build(t);
  d.pair = TimelinePair::Make({d.predicted}, {nullptr});
  d.alignment = Align(d.predicted.get(), nullptr, nullptr);
  d.Draw(1000, 600, 1, d.alignment.whole);
  const int64_t copy = d.predicted->timeline().lane[0] == 2 ? 0 : 1;
  for (const OpRef op : {OpRef{Side::kPredicted, copy}, OpRef{Side::kPredicted, 1 - copy}}) {
    OverlayInput in;
    in.scene = &d.input;
    in.base = &d.scene.frame;
    in.selected = op;
    const Frame overlay = DrawOverlay(in);
    ASSERT_EQ(overlay.arrows.size(), 1u);
    const Box from = *BoxOf(d.input, {Side::kPredicted, copy});
    const Box to = *BoxOf(d.input, {Side::kPredicted, 1 - copy});
    EXPECT_EQ(overlay.arrows[0].x0, from.x1);
    EXPECT_EQ(overlay.arrows[0].x1, to.x0);
    EXPECT_TRUE(from.Contains(from.x0, overlay.arrows[0].y0));
    EXPECT_TRUE(to.Contains(to.x0, overlay.arrows[0].y1));
  }
}

}  // namespace
}  // namespace stallcast::gui
