// SPDX-License-Identifier: GPL-3.0-or-later
// The real widget, driven by key, wheel and mouse.
#include "gui/timeline/timeline_view.h"

#include <gtest/gtest.h>

#include <QAction>
#include <QApplication>
#include <QImage>
#include <QInputDialog>
#include <QJsonArray>
#include <QJsonObject>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QSignalSpy>
#include <QTest>
#include <QTimer>
#include <QWheelEvent>
#include <set>

#include "gui/timeline/theme.h"
#include "tests/gui/timeline/random_timeline.h"

namespace stallcast::gui {
namespace {

using traces::Timeline;

// Six steps of four ops a side; the measured side is a quarter slower.
Timeline Decode(Timeline::Origin origin, double slower) {
  Timeline t = EmptyTimeline(origin);
  int64_t at = 0, op = 0;
  for (int32_t step = 0; step < 6; ++step) {
    for (int k = 0; k < 4; ++k, ++op) {
      const bool moves = k == 2;
      const auto duration = static_cast<int64_t>(1'000'000 * (1 + k) * slower);
      Add(t, {.lane = 0,
              .op = op,
              .step = step,
              .role = traces::Role::kHost,
              .name = 2,
              .start = at,
              .duration = 100'000});
      Add(t, {.lane = static_cast<uint16_t>(moves ? 2 : 1),
              .op = op,
              .step = step,
              .role = moves ? traces::Role::kRecall : traces::Role::kMlp,
              .name = moves ? 1U : 0U,
              .start = at + 200'000,
              .duration = duration,
              .bytes = moves ? 4096 : 0});
      if (op > 0) t.flows.push_back({op - 1, op});
      at += duration + 300'000;
    }
  }
  return t;
}

// Three steps of an op on each of 14 streams, longer from one to the next: more lanes than a low
// window shows.
Timeline ManyLanes(Timeline::Origin origin, double slower) {
  constexpr uint16_t kStreams = 14;
  Timeline t = EmptyTimeline(origin);
  t.lanes.resize(2);
  while (t.lanes.size() <= kStreams) {
    const std::string name = "stream " + std::to_string(t.lanes.size());
    t.lanes.push_back({name, traces::LaneKind::kStream, false});
  }
  int64_t op = 0;
  for (int32_t step = 0; step < 3; ++step) {
    for (uint16_t lane = 1; lane <= kStreams; ++lane, ++op) {
      const auto duration = static_cast<int64_t>(1'000'000 * (20 + lane) * slower);
      Add(t,
          {.lane = lane, .op = op, .step = step, .start = step * 50'000'000, .duration = duration});
    }
  }
  return t;
}

class TimelineViewTest : public testing::Test {
 protected:
  TimelineViewTest() {
    qRegisterMetaType<std::optional<OpDetails>>();
    predicted_ = TimelineModel::Build(Decode(Timeline::Origin::kPredicted, 1));
    measured_ = TimelineModel::Build(Decode(Timeline::Origin::kMeasured, 1.25));
    view_.resize(1000, 600);
    view_.SetSides({predicted_}, {measured_});
    view_.show();
    view_.setFocus();
    QApplication::setActiveWindow(&view_);
    QApplication::processEvents();
    QObject::connect(&view_, &TimelineView::Message,
                     [this](const QString& text) { message_ = text; });
  }

  void Key(Qt::Key key, Qt::KeyboardModifiers modifiers = Qt::NoModifier) {
    QTest::keyClick(&view_, key, modifiers);
    QApplication::processEvents();
  }
  void Wheel(QPoint at, int notches, Qt::KeyboardModifiers modifiers) {
    QWheelEvent event(at, view_.mapToGlobal(at), {}, {0, 120 * notches}, Qt::NoButton, modifiers,
                      Qt::NoScrollPhase, false);
    QApplication::sendEvent(&view_, &event);
  }
  void Drag(QPoint from, QPoint to, Qt::KeyboardModifiers modifiers = Qt::NoModifier,
            Qt::MouseButton button = Qt::LeftButton) {
    QTest::mousePress(&view_, button, modifiers, from);
    const auto move = [&](QPoint at) {
      QMouseEvent event(QEvent::MouseMove, at, view_.mapToGlobal(at), Qt::NoButton, button,
                        modifiers);
      QApplication::sendEvent(&view_, &event);
    };
    move((from + to) / 2);
    move(to);
    QTest::mouseRelease(&view_, button, modifiers, to);
    QApplication::processEvents();
  }
  // Where an op is on the widget, found by pointing at the places of a grid: every eighth of a row
  // first, since most ops are wide.
  QPoint Find(OpRef op, QPoint grid = {3, 6}) {
    std::optional<OpDetails> hovered;
    const auto connection =
        QObject::connect(&view_, &TimelineView::OpHovered,
                         [&](std::optional<OpDetails> details) { hovered = details; });
    const auto hits = [&](int x, int y) {
      QTest::mouseMove(&view_, {x, y});
      return hovered && hovered->op.ref == op;
    };
    QPoint found(-1, -1);
    for (const int step : {8 * grid.x(), grid.x()}) {
      for (int y = 10; y < view_.height() && found.x() < 0; y += grid.y()) {
        for (int x = 0; x < view_.width() && found.x() < 0; x += step) {
          if (!hits(x, y)) continue;
          while (x >= grid.x() && hits(x - grid.x(), y)) x -= grid.x();
          hits(x, y);
          // A little inside: at 200 % the cursor's place is rounded to whole logical pixels.
          found = {x + 1, y + 3};
        }
      }
    }
    QObject::disconnect(connection);
    return found;
  }
  QAction* Command(const char* name) {
    for (QAction* action : view_.actions()) {
      if (action->objectName() == QLatin1String(name)) return action;
    }
    return nullptr;
  }
  double Share(Picoseconds t) const {
    const AxisRange v = view_.visible();
    return static_cast<double>((t - v.begin).count()) / static_cast<double>(v.length().count());
  }

  std::shared_ptr<const TimelineModel> predicted_, measured_;
  TimelineView view_;
  QString message_;
};

TEST_F(TimelineViewTest, ShowsAllAtFirst) {
  EXPECT_EQ(view_.visible(), view_.alignment().whole);
  EXPECT_EQ(view_.alignment().stretches.size(), 6u);
}

TEST_F(TimelineViewTest, KeysZoomAndPan) {
  const AxisRange whole = view_.visible();
  Key(Qt::Key_W);
  const AxisRange near = view_.visible();
  EXPECT_LT(near.length(), whole.length());
  Key(Qt::Key_D);
  EXPECT_GT(view_.visible().begin, near.begin);
  EXPECT_EQ(view_.visible().length(), near.length());
  Key(Qt::Key_A);
  EXPECT_EQ(view_.visible(), near);
  Key(Qt::Key_S);
  Key(Qt::Key_S);
  EXPECT_EQ(view_.visible(), whole);
  Key(Qt::Key_A);
  EXPECT_EQ(view_.visible(), whole);  // there is nothing before it
}

TEST_F(TimelineViewTest, CtrlWheelZoomsAboutTheCursor) {
  // The pointer is over a place of the chart; that place stays where it is.
  const QPoint at(700, 300);
  const QPoint op = Find({Side::kPredicted, predicted_->rows() / 2});
  ASSERT_GE(op.x(), 0);
  const AxisRange before = view_.visible();
  Wheel(at, 3, Qt::ControlModifier);
  const AxisRange after = view_.visible();
  EXPECT_LT(after.length(), before.length());
  // The share of the axis left of the cursor is that of the chart left of it, before and after.
  const double chart_share_before = Share(after.begin);
  EXPECT_EQ(chart_share_before, 0);
  const auto ratio = static_cast<double>((after.begin - before.begin).count()) /
                     static_cast<double>((before.length() - after.length()).count());
  for (int i = 0; i < 5; ++i) {
    const AxisRange now = view_.visible();
    Wheel(at, 1, Qt::ControlModifier);
    const AxisRange next = view_.visible();
    EXPECT_NEAR(static_cast<double>((next.begin - now.begin).count()) /
                    static_cast<double>((now.length() - next.length()).count()),
                ratio, 1e-3);
  }
}

TEST_F(TimelineViewTest, ShiftDragPans) {
  Key(Qt::Key_W);
  Key(Qt::Key_W);
  const AxisRange before = view_.visible();
  Drag({600, 200}, {500, 200}, Qt::ShiftModifier);
  EXPECT_GT(view_.visible().begin, before.begin);
  EXPECT_EQ(view_.visible().length(), before.length());
  Drag({500, 200}, {600, 200}, Qt::ShiftModifier);
  EXPECT_NEAR(static_cast<double>((view_.visible().begin - before.begin).count()), 0,
              static_cast<double>(before.length().count()) / 500);
}

TEST_F(TimelineViewTest, ClickingSelectsAndTellsBothTwins) {
  std::optional<OpDetails> selected;
  QObject::connect(&view_, &TimelineView::OpSelected,
                   [&](std::optional<OpDetails> details) { selected = details; });
  view_.ShowStep(2);
  QApplication::processEvents();
  // The recall of step 2 on the copy lane.
  int64_t row = -1;
  for (int64_t r = 0; r < predicted_->rows(); ++r) {
    const auto i = static_cast<size_t>(r);
    if (predicted_->timeline().step[i] == 2 && predicted_->timeline().bytes[i] > 0) row = r;
  }
  const QPoint at = Find({Side::kPredicted, row});
  ASSERT_GE(at.x(), 0);
  QTest::mouseClick(&view_, Qt::LeftButton, Qt::NoModifier, at);
  ASSERT_TRUE(selected);
  EXPECT_EQ(selected->op.ref, (OpRef{Side::kPredicted, row}));
  EXPECT_EQ(selected->op.bytes, 4096);
  ASSERT_TRUE(selected->twin);
  EXPECT_EQ(selected->twin->ref.side, Side::kMeasured);
  EXPECT_NEAR(selected->relative_residual, -0.2, 1e-9);
  Key(Qt::Key_T);
  ASSERT_TRUE(view_.selected());
  EXPECT_EQ(*view_.selected(), selected->op.ref);
  EXPECT_EQ(view_.selected()->side, Side::kMeasured);
  Key(Qt::Key_Escape);
  EXPECT_FALSE(view_.selected());
  EXPECT_FALSE(selected);
}

TEST_F(TimelineViewTest, TheCardIsOfTheOpUnderTheCursorAfterEveryMove) {
  std::optional<OpDetails> hovered;
  QObject::connect(&view_, &TimelineView::OpHovered,
                   [&](std::optional<OpDetails> details) { hovered = details; });
  view_.ShowStep(2);
  QApplication::processEvents();
  const QPoint at = Find({Side::kPredicted, predicted_->ops().RowsOf(10)[1]});
  ASSERT_GE(at.x(), 0);
  QTest::mouseMove(&view_, at);
  const auto told = [&] { return hovered ? std::optional(hovered->op.ref) : std::nullopt; };
  const auto pointed_at_again = [&] {
    QTest::mouseMove(&view_, at + QPoint(0, 1));
    return told();
  };
  std::set<std::optional<int64_t>> met;
  const auto expect_right = [&](const char* after) {
    QApplication::processEvents();
    const auto before = told();
    EXPECT_EQ(before, pointed_at_again()) << after;
    met.insert(before ? std::optional(before->row) : std::nullopt);
  };
  for (const Qt::Key key : {Qt::Key_BracketRight, Qt::Key_D, Qt::Key_S, Qt::Key_A, Qt::Key_W,
                            Qt::Key_BracketLeft, Qt::Key_C, Qt::Key_Home}) {
    Key(key);
    expect_right(QKeySequence(key).toString().toUtf8());
  }
  for (int i = 0; i < 6; ++i) {
    Key(Qt::Key_Z, Qt::ControlModifier);
    expect_right("undo");
  }
  view_.SetSides({TimelineModel::Build(Decode(Timeline::Origin::kPredicted, 3))}, {measured_});
  expect_right("another side");
  view_.resize(800, 500);
  expect_right("another size");
  EXPECT_GE(met.size(), 3u) << "the moves bring other ops under the cursor";
}

TEST_F(TimelineViewTest, NextAndPreviousOpWalkTheTrack) {
  view_.Select(OpRef{Side::kPredicted, 0});
  Key(Qt::Key_Period);
  Key(Qt::Key_Period);
  EXPECT_EQ(view_.selected(), (OpRef{Side::kPredicted, 2}));
  Key(Qt::Key_Comma);
  EXPECT_EQ(view_.selected(), (OpRef{Side::kPredicted, 1}));
  Key(Qt::Key_Comma);
  Key(Qt::Key_Comma);
  EXPECT_EQ(view_.selected(), (OpRef{Side::kPredicted, 0}));
  EXPECT_FALSE(message_.isEmpty());
}

TEST_F(TimelineViewTest, GoesToWhatItWaitedFor) {
  const auto rows = predicted_->ops().RowsOf(7);
  view_.Select(OpRef{Side::kPredicted, rows[0]});
  Key(Qt::Key_B);
  ASSERT_TRUE(view_.selected());
  EXPECT_EQ(predicted_->timeline().op[static_cast<size_t>(view_.selected()->row)], 6);
}

TEST_F(TimelineViewTest, WorstResidualsComeInOrder) {
  double last = std::numeric_limits<double>::infinity();
  std::set<int64_t> seen;
  for (int i = 0; i < 24; ++i) {
    Key(Qt::Key_0);
    Key(Qt::Key_E);
    ASSERT_TRUE(view_.selected());
    const OpDetails details = Describe(*view_.pair(), *view_.selected());
    const auto off = std::abs(static_cast<double>(details.residual->count()));
    EXPECT_LE(off, last * 1.000001);
    EXPECT_TRUE(seen.insert(view_.selected()->row).second);
    last = off;
  }
}

class LowTimelineViewTest : public TimelineViewTest {
 protected:
  LowTimelineViewTest() {
    predicted_ = TimelineModel::Build(ManyLanes(Timeline::Origin::kPredicted, 1));
    measured_ = TimelineModel::Build(ManyLanes(Timeline::Origin::kMeasured, 1.25));
    view_.resize(390, 380);  // within the offscreen screen at 200 % too: there is no cursor outside
    view_.SetSides({predicted_}, {measured_});
    QApplication::processEvents();
  }

  // No op is narrow: few places tell.
  bool Seen(OpRef op) { return Find(op, {9, 5}) != QPoint(-1, -1); }
  OpRef Outermost(Side side) const {
    const TimelineModel& model = side == Side::kPredicted ? *predicted_ : *measured_;
    return {side, model.rows() - 2};
  }
  OpRef Innermost(Side side) const { return {side, 1}; }
  // The panels in the view (minimap, axis, legend), and what they look like.
  std::vector<std::pair<int, QImage>> Panels() {
    const QImage image = view_.grab().toImage();
    const bool dark = view_.palette().color(QPalette::Window).lightness() < 128;
    const QRgb panel = (dark ? Theme::Dark() : Theme::Light()).panel.rgb();
    std::vector<std::pair<int, QImage>> panels;
    for (int y = 0; y < image.height(); ++y) {
      const int from = y;
      while (y < image.height() && image.pixel(0, y) == panel) ++y;
      if (y > from) panels.emplace_back(from, image.copy(0, from, image.width(), y - from));
    }
    return panels;
  }
};

TEST_F(LowTimelineViewTest, KeysScrollLanesAndTheAxisStays) {
  QTest::mouseMove(&view_, {2, 2});
  const auto panels = Panels();
  ASSERT_EQ(panels.size(), 3u);
  EXPECT_FALSE(Seen(Outermost(Side::kMeasured)));
  EXPECT_FALSE(Seen(Outermost(Side::kPredicted)));
  const auto press = [&](Qt::Key key, int times) {
    QTest::mouseMove(&view_, {2, 2});
    for (int i = 0; i < times; ++i) Key(key);
  };
  press(Qt::Key_PageDown, 10);
  EXPECT_EQ(Panels(), panels) << "the axis stays";
  EXPECT_TRUE(Seen(Outermost(Side::kMeasured)));
  EXPECT_FALSE(Seen(Innermost(Side::kMeasured)));
  EXPECT_TRUE(Seen(Innermost(Side::kPredicted))) << "the other side has nothing below";
  press(Qt::Key_PageUp, 20);
  EXPECT_EQ(Panels(), panels);
  EXPECT_TRUE(Seen(Innermost(Side::kMeasured)));
  EXPECT_TRUE(Seen(Outermost(Side::kPredicted)));
  press(Qt::Key_Down, 20);
  EXPECT_TRUE(Seen(Innermost(Side::kPredicted)));
  press(Qt::Key_Down, 20);
  EXPECT_TRUE(Seen(Outermost(Side::kMeasured)));
  view_.resize(390, 1400);
  Key(Qt::Key_Up);
  EXPECT_EQ(message_, "All lanes are in view");
}

TEST_F(LowTimelineViewTest, OneSideScrollsByKeysToo) {
  view_.SetSides({predicted_}, {nullptr});
  QApplication::processEvents();
  ASSERT_FALSE(Seen(Outermost(Side::kPredicted)));
  for (int i = 0; i < 10; ++i) Key(Qt::Key_PageDown);
  EXPECT_TRUE(Seen(Outermost(Side::kPredicted)));
  for (int i = 0; i < 10; ++i) Key(Qt::Key_PageUp);
  EXPECT_TRUE(Seen(Innermost(Side::kPredicted)));
}

TEST_F(LowTimelineViewTest, WhatKeysSelectIsScrolledIntoView) {
  std::set<int32_t> tracks;
  for (int i = 0; i < 8; ++i) {
    Key(Qt::Key_E);
    ASSERT_TRUE(view_.selected());
    tracks.insert(measured_->TrackOf(view_.selected()->row));
    EXPECT_TRUE(Seen(*view_.selected())) << "residual " << i;
  }
  EXPECT_GT(tracks.size(), 2u);
  Key(Qt::Key_T);
  const OpRef op = *view_.selected();
  EXPECT_EQ(op.side, Side::kPredicted);
  EXPECT_TRUE(Seen(op)) << "the twin";
  Wheel({200, 100}, -20, Qt::NoModifier);
  Wheel({200, 240}, 20, Qt::NoModifier);
  ASSERT_FALSE(Seen(op));
  Key(Qt::Key_F);
  EXPECT_TRUE(Seen(op)) << "what is zoomed to";
  EXPECT_TRUE(Seen(*view_.pair()->Twin(op)));
}

TEST_F(TimelineViewTest, StepsAreJumpedTo) {
  QSignalSpy steps(&view_, &TimelineView::StepChanged);
  view_.ShowStep(3);
  EXPECT_EQ(view_.CurrentStep(), 3);
  Key(Qt::Key_BracketRight);
  EXPECT_EQ(view_.CurrentStep(), 4);
  Key(Qt::Key_BracketLeft);
  Key(Qt::Key_BracketLeft);
  EXPECT_EQ(view_.CurrentStep(), 2);
  EXPECT_EQ(steps.back()[0].toInt(), 2);
  message_.clear();
  view_.ShowStep(77);
  EXPECT_TRUE(message_.contains(QLatin1String("77")));
  EXPECT_EQ(view_.CurrentStep(), 2);
}

TEST_F(TimelineViewTest, DraggingSelectsAnAreaWithItsSums) {
  std::optional<AreaSums> area;
  QObject::connect(&view_, &TimelineView::AreaSelected,
                   [&](std::optional<AreaSums> sums) { area = sums; });
  Drag({view_.width() - 4, 60}, {2 + view_.width() / 4, view_.height() - 30});
  ASSERT_TRUE(area);
  ASSERT_TRUE(area->predicted && area->measured);
  const auto& mlp = (*area->predicted)[static_cast<size_t>(traces::Role::kMlp)];
  EXPECT_GT(mlp.busy.count(), 0);
  EXPECT_GT(mlp.ops, 0);
  EXPECT_GT((*area->measured)[static_cast<size_t>(traces::Role::kRecall)].bytes, 0);
  // Zooming keeps it; Escape drops it.
  Key(Qt::Key_W);
  EXPECT_TRUE(view_.area());
  Key(Qt::Key_F);
  EXPECT_EQ(view_.visible(), area->range);
  Key(Qt::Key_Escape);
  EXPECT_FALSE(view_.area());
  EXPECT_FALSE(area);
}

TEST_F(TimelineViewTest, ShowsNothingWithAFilterOn) {
  QTest::mouseMove(&view_, {500, 100});
  view_.SetFilter("gemm");
  view_.SetPair(nullptr);
  EXPECT_EQ(view_.pair(), nullptr);
  EXPECT_FALSE(view_.grab().isNull());
  view_.SetSides({predicted_}, {measured_});
  EXPECT_EQ(view_.filter(), "gemm") << "and is there again with the next timeline";
}

TEST_F(TimelineViewTest, ZoomAndFilterCanBeUndone) {
  const AxisRange whole = view_.visible();
  view_.ShowStep(1);
  const AxisRange step = view_.visible();
  EXPECT_TRUE(view_.SetFilter("role:recall"));
  view_.SetColorBy(ColorBy::kResidual);
  Key(Qt::Key_Z, Qt::ControlModifier);
  EXPECT_EQ(view_.color_by(), ColorBy::kRole);
  EXPECT_EQ(view_.filter(), "role:recall");
  Key(Qt::Key_Z, Qt::ControlModifier);
  EXPECT_EQ(view_.filter(), "");
  EXPECT_EQ(view_.visible(), step);
  Key(Qt::Key_Z, Qt::ControlModifier);
  EXPECT_EQ(view_.visible(), whole);
  Key(Qt::Key_Z, Qt::ControlModifier | Qt::ShiftModifier);
  EXPECT_EQ(view_.visible(), step);
}

TEST_F(TimelineViewTest, OneMovementIsOneStepBack) {
  const AxisRange whole = view_.visible();
  for (int i = 0; i < 5; ++i) Wheel({700, 300}, 1, Qt::ControlModifier);
  EXPECT_EQ(view_.undo_stack()->count(), 1);
  view_.undo_stack()->undo();
  EXPECT_EQ(view_.visible(), whole);
}

TEST_F(TimelineViewTest, SearchFiltersAndSteps) {
  Key(Qt::Key_F, Qt::ControlModifier);
  auto* search = view_.findChild<QLineEdit*>("search");
  ASSERT_NE(search, nullptr);
  EXPECT_TRUE(search->isVisible());
  QTest::keyClicks(search, "role:recall");
  QTest::keyClick(search, Qt::Key_Return);
  EXPECT_EQ(view_.filter(), "role:recall");
  ASSERT_TRUE(view_.selected());
  const auto role_of = [&] {
    const OpRef op = *view_.selected();
    return view_.pair()->model(op.side)->timeline().role[static_cast<size_t>(op.row)];
  };
  EXPECT_EQ(role_of(), traces::Role::kRecall);
  // From the first match on, all twelve are met, and no more.
  Command("clear_selection")->trigger();  // hides the search line
  Command("clear_selection")->trigger();
  view_.ShowRange({view_.alignment().whole.begin, Picoseconds{1}});
  int matches = 0;
  view_.Select(OpRef{Side::kPredicted, 0});
  message_.clear();
  while (message_.isEmpty() && matches < 100) {
    Command("next_match")->trigger();
    ++matches;
    EXPECT_EQ(role_of(), traces::Role::kRecall);
  }
  EXPECT_EQ(matches, 13);  // the last is the first again
  const OpRef first = *view_.selected();
  auto* found = view_.findChild<QLabel*>("found");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->text(), "1 of 12");
  message_.clear();
  Command("previous_match")->trigger();
  EXPECT_FALSE(message_.isEmpty());
  EXPECT_EQ(found->text(), "12 of 12");
  message_.clear();
  for (int i = 0; i < 11; ++i) Command("previous_match")->trigger();
  EXPECT_TRUE(message_.isEmpty());
  EXPECT_EQ(view_.selected(), first);
}

TEST_F(TimelineViewTest, ASearchBeginsAtTheLeftEdgeOfTheView) {
  auto* search = view_.findChild<QLineEdit*>("search");
  const auto step_found = [&] {
    const OpRef op = *view_.selected();
    return view_.pair()->model(op.side)->timeline().step[static_cast<size_t>(op.row)];
  };
  const auto look_for = [&](const char* words) {
    Key(Qt::Key_F, Qt::ControlModifier);
    search->clear();
    QTest::keyClicks(search, words);
    QTest::keyClick(search, Qt::Key_Return);
  };
  look_for("role:recall");
  ASSERT_TRUE(view_.selected());
  EXPECT_EQ(step_found(), 0);
  view_.ShowStep(4);
  look_for("step:1 role:recall");  // all before what is shown
  ASSERT_TRUE(view_.selected());
  EXPECT_EQ(step_found(), 1);
}

TEST_F(TimelineViewTest, AFilterIsSeenUntilItIsCleared) {
  auto* search = view_.findChild<QLineEdit*>("search");
  auto* found = view_.findChild<QLabel*>("found");
  ASSERT_TRUE(search && found);
  EXPECT_FALSE(search->isVisible());
  view_.SetFilter("role:recall");  // as a click on the legend does
  EXPECT_TRUE(search->isVisible());
  EXPECT_EQ(search->text(), "role:recall");
  EXPECT_EQ(found->text(), "12 found");
  EXPECT_LE(search->geometry().right(), found->geometry().left());
  EXPECT_LE(found->geometry().right(), view_.width());
  // Out of the line, then the selection, then the filter.
  Key(Qt::Key_F, Qt::ControlModifier);
  Command("clear_selection")->trigger();
  EXPECT_FALSE(search->hasFocus());
  EXPECT_TRUE(search->isVisible());
  view_.Select(OpRef{Side::kPredicted, 0});
  Command("clear_selection")->trigger();
  EXPECT_FALSE(view_.selected());
  EXPECT_EQ(view_.filter(), "role:recall");
  Command("clear_selection")->trigger();
  EXPECT_EQ(view_.filter(), "");
  EXPECT_FALSE(search->isVisible());
  EXPECT_FALSE(found->isVisible());
  // A line without words goes with the focus.
  Key(Qt::Key_F, Qt::ControlModifier);
  EXPECT_TRUE(search->isVisible());
  Command("clear_selection")->trigger();
  EXPECT_FALSE(search->isVisible());
}

TEST_F(TimelineViewTest, LettersTypedIntoTheSearchAreNoCommands) {
  const AxisRange whole = view_.visible();
  Key(Qt::Key_F, Qt::ControlModifier);
  auto* search = view_.findChild<QLineEdit*>("search");
  QTest::keyClicks(search, "wasd");
  EXPECT_EQ(search->text(), "wasd");
  EXPECT_EQ(view_.visible(), whole);
}

TEST_F(TimelineViewTest, AFilterThatMakesNoSenseSaysSoAndChangesNothing) {
  EXPECT_TRUE(view_.SetFilter("gemm"));
  message_.clear();
  EXPECT_FALSE(view_.SetFilter("role:nobody"));
  EXPECT_TRUE(message_.contains(QLatin1String("nobody")));
  EXPECT_EQ(view_.filter(), "gemm");
}

TEST_F(TimelineViewTest, TheMinimapMovesTheView) {
  view_.ShowStep(1);
  const AxisRange near = view_.visible();
  Drag({900, 15}, {980, 15});
  EXPECT_EQ(view_.visible().length(), near.length()) << "as wide as before";
  EXPECT_EQ(view_.visible().end, view_.alignment().whole.end) << "at the far end";
  EXPECT_EQ(view_.CurrentStep(), 5);
}

TEST_F(TimelineViewTest, MeasuringSnapsToOps) {
  view_.ShowStep(0);
  QApplication::processEvents();
  const QImage before = view_.grab().toImage();
  Drag({400, 200}, {600, 200}, Qt::NoModifier, Qt::RightButton);
  EXPECT_NE(view_.grab().toImage(), before);
  EXPECT_FALSE(view_.area());
  Key(Qt::Key_Escape);
  Key(Qt::Key_M);
  EXPECT_TRUE(Command("measure")->isChecked());
  Drag({400, 200}, {600, 200});
  EXPECT_FALSE(view_.area());
  Key(Qt::Key_M);
  EXPECT_FALSE(Command("measure")->isChecked());
}

TEST_F(TimelineViewTest, LanesArePinnedByKeyAndByDoubleClick) {
  const auto pins = [&] { return view_.SaveState()["pins"].toArray(); };
  view_.Select(OpRef{Side::kPredicted, 0});
  Key(Qt::Key_P);
  EXPECT_EQ(pins().size(), 1);
  view_.undo_stack()->undo();
  EXPECT_EQ(pins().size(), 0);
  view_.ShowAll();
  const QPoint op = Find({Side::kPredicted, predicted_->ops().RowsOf(2)[0]});
  ASSERT_GE(op.x(), 0);
  QTest::mouseDClick(&view_, Qt::LeftButton, Qt::NoModifier, {60, op.y()});
  ASSERT_EQ(pins().size(), 1);
  EXPECT_EQ(pins()[0].toObject()["lane"].toString(), "copy");
}

TEST_F(TimelineViewTest, LanesFoldByTriangleAndByKey) {
  const auto folded = [&] { return view_.SaveState()["folded"].toArray(); };
  const OpRef op{Side::kPredicted, predicted_->ops().RowsOf(2)[0]};
  const QPoint at = Find(op);
  ASSERT_GE(at.x(), 0);
  QTest::mouseClick(&view_, Qt::LeftButton, Qt::NoModifier, {8, at.y()});
  ASSERT_EQ(folded().size(), 1);
  EXPECT_EQ(folded()[0].toObject()["side"].toString(), "predicted");
  EXPECT_NE(Find(op), QPoint(-1, -1)) << "its ops are still there to point at";
  QTest::mouseClick(&view_, Qt::LeftButton, Qt::NoModifier, {60, Find(op).y()});
  EXPECT_EQ(folded().size(), 1) << "the name is no triangle";
  view_.undo_stack()->undo();
  EXPECT_EQ(folded().size(), 0);
  view_.undo_stack()->redo();
  EXPECT_EQ(folded().size(), 1);
  QTest::mouseMove(&view_, Find(op));
  Key(Qt::Key_C);
  EXPECT_EQ(folded().size(), 0);
  Key(Qt::Key_C);
  Key(Qt::Key_C, Qt::ShiftModifier);
  EXPECT_EQ(folded().size(), 0);
}

TEST_F(TimelineViewTest, AlignsByANamedRange) {
  view_.AlignByRange("copy");
  EXPECT_EQ(view_.alignment().by, Alignment::By::kRange);
  view_.undo_stack()->undo();
  EXPECT_EQ(view_.alignment().by, Alignment::By::kStep);
  view_.AlignByRange("nobody");
  EXPECT_EQ(view_.alignment().by, Alignment::By::kStep);
  EXPECT_TRUE(message_.contains("nobody")) << message_.toStdString();
  // The command offers the names that both sides have, the rare ones first.
  QStringList offered;
  QTimer::singleShot(0, &view_, [&] {
    auto* dialog = view_.findChild<QInputDialog*>();
    ASSERT_NE(dialog, nullptr);
    offered = dialog->comboBoxItems();
    dialog->setTextValue("copy");
    dialog->accept();
  });
  Key(Qt::Key_L);
  EXPECT_EQ(offered.mid(1), (QStringList{"copy", "gemm", "call gemm"}));
  EXPECT_EQ(view_.alignment().by, Alignment::By::kRange);
}

TEST_F(TimelineViewTest, StateIsSavedAndRestored) {
  view_.SetFilter("gemm");
  view_.SetColorBy(ColorBy::kResidual);
  view_.Select(OpRef{Side::kPredicted, 0});
  Key(Qt::Key_P);
  Key(Qt::Key_C);
  view_.ShowStep(4);
  const QJsonObject state = view_.SaveState();
  TimelineView other;
  other.resize(1000, 600);
  other.SetSides({predicted_}, {measured_});
  other.RestoreState(state);
  EXPECT_EQ(other.SaveState(), state);
  EXPECT_EQ(other.CurrentStep(), 4);
  // Nonsense changes nothing.
  other.RestoreState({{"begin_ps", 7},
                      {"filter", "role:nobody"},
                      {"color_by", "x"},
                      {"pins", QJsonArray{3, "a"}}});
  EXPECT_EQ(other.filter(), "gemm");
  EXPECT_EQ(other.color_by(), ColorBy::kResidual);
}

TEST_F(TimelineViewTest, AReplacedSideKeepsThePlace) {
  view_.ShowStep(3);
  view_.Select(OpRef{Side::kPredicted, predicted_->ops().RowsOf(13)[0]});
  view_.ShowStep(3);
  const auto offset = view_.visible().begin - view_.alignment().stretches[3].axis.begin;
  const auto slower = TimelineModel::Build(Decode(Timeline::Origin::kPredicted, 2));
  view_.SetSides({slower}, {measured_});
  view_.SetGhost(predicted_);
  EXPECT_EQ(view_.CurrentStep(), 3);
  EXPECT_LE(
      std::chrono::abs(view_.visible().begin - view_.alignment().stretches[3].axis.begin - offset),
      std::chrono::abs(offset));
  ASSERT_TRUE(view_.selected());
  EXPECT_EQ(slower->timeline().op[static_cast<size_t>(view_.selected()->row)], 13);
}

TEST_F(TimelineViewTest, EveryCommandHasAKeyATextAndATip) {
  std::set<QString> names;
  std::set<QKeySequence> keys;
  int commands = 0;
  for (const TimelineView::Menu& menu : view_.Commands()) {
    for (QAction* action : menu.actions) {
      if (action == nullptr) continue;
      ++commands;
      EXPECT_FALSE(action->text().isEmpty());
      EXPECT_FALSE(action->statusTip().isEmpty()) << action->text().toStdString();
      EXPECT_TRUE(names.insert(action->objectName()).second);
      ASSERT_FALSE(action->shortcuts().isEmpty()) << action->text().toStdString();
      for (const QKeySequence& key : action->shortcuts()) {
        EXPECT_TRUE(keys.insert(key).second) << key.toString().toStdString() << " twice";
      }
      EXPECT_TRUE(view_.actions().contains(action));
    }
  }
  EXPECT_GE(commands, 25);
}

TEST_F(TimelineViewTest, TellsHowLongAFrameTook) {
  QSignalSpy painted(&view_, &TimelineView::Painted);
  Key(Qt::Key_W);
  view_.repaint();
  ASSERT_GE(painted.count(), 1);
  EXPECT_GT(painted.back()[0].toLongLong(), 0);
}

TEST_F(TimelineViewTest, LightAndDarkDiffer) {
  const QImage light = view_.grab().toImage();
  QPalette dark;
  dark.setColor(QPalette::Window, Qt::black);
  view_.setPalette(dark);
  const QImage image = view_.grab().toImage();
  EXPECT_LT(image.pixelColor(image.width() - 3, image.height() / 8).lightness(), 100);
  EXPECT_GT(light.pixelColor(image.width() - 3, image.height() / 8).lightness(), 200);
}

TEST_F(TimelineViewTest, ShowsOneSideOrNone) {
  view_.SetSides({nullptr}, {measured_});
  view_.grab();
  Key(Qt::Key_R);
  EXPECT_EQ(view_.color_by(), ColorBy::kRole);
  EXPECT_FALSE(message_.isEmpty());
  view_.SetPair(nullptr);
  for (Qt::Key key : {Qt::Key_W, Qt::Key_S, Qt::Key_A, Qt::Key_D, Qt::Key_Period, Qt::Key_T,
                      Qt::Key_B, Qt::Key_E, Qt::Key_F, Qt::Key_P, Qt::Key_N, Qt::Key_BracketRight,
                      Qt::Key_X, Qt::Key_M, Qt::Key_Escape, Qt::Key_0}) {
    Key(key);
  }
  Drag({200, 200}, {400, 300});
  view_.grab();
  view_.SetSides({TimelineModel::Build(EmptyTimeline())}, {nullptr});
  Key(Qt::Key_W);
  Drag({200, 200}, {400, 300});
  Wheel({300, 200}, 1, Qt::ControlModifier);
  view_.grab();
}

TEST_F(TimelineViewTest, SurvivesAnySize) {
  for (QSize size : {QSize(1, 1), QSize(40, 30), QSize(200, 90), QSize(3000, 200)}) {
    view_.resize(size);
    view_.grab();
    Key(Qt::Key_W);
    Wheel({size.width() / 2, size.height() / 2}, -1, Qt::ControlModifier);
  }
}

TEST_F(TimelineViewTest, BeginsWithAStepOfUsualLength) {
  view_.ShowTypicalStep();
  const Alignment::Stretch* middle =
      view_.alignment().At(view_.visible().begin + view_.visible().length() / 2);
  ASSERT_NE(middle, nullptr);
  EXPECT_GE(view_.visible().length(), middle->axis.length());
  EXPECT_LE(view_.visible().length(), middle->axis.length() * 11 / 10);
  EXPECT_FALSE(Command("undo_view")->isEnabled()) << "it is where one begins";
}

TEST_F(TimelineViewTest, NotesKeepTheirPlaceInTheirStep) {
  const QJsonObject note{{"step", 3}, {"offset_ps", "500000"}, {"text", "here"}};
  QJsonObject state = view_.SaveState();
  state["notes"] = QJsonArray{note};
  view_.RestoreState(state);
  ASSERT_EQ(view_.SaveState()["notes"].toArray(), QJsonArray{note});
  view_.ShowStep(0);
  Key(Qt::Key_J);
  EXPECT_EQ(view_.CurrentStep(), 3);
  // The other side's steps are longer: step 3 begins later on the axis, and the note with it.
  const auto place = [&] {
    const AxisRange v = view_.visible();
    return v.begin + v.length() / 2 - view_.alignment().stretches.at(3).axis.begin;
  };
  const Picoseconds before = place();
  view_.SetSides({TimelineModel::Build(Decode(Timeline::Origin::kPredicted, 2))}, {measured_});
  view_.ShowStep(0);
  Key(Qt::Key_J);
  EXPECT_EQ(view_.CurrentStep(), 3);
  EXPECT_EQ(place(), before);
}

TEST_F(TimelineViewTest, HiddenLanesComeBack) {
  const auto hidden = [&] { return view_.SaveState()["hidden"].toArray().size(); };
  view_.Select(OpRef{Side::kPredicted, predicted_->rows() - 1});
  QTest::mouseMove(&view_, {0, 0});
  Key(Qt::Key_H);
  EXPECT_EQ(hidden(), 1);
  Key(Qt::Key_Z, Qt::ControlModifier);
  EXPECT_EQ(hidden(), 0);
  Key(Qt::Key_H);
  Key(Qt::Key_H, Qt::ShiftModifier);
  EXPECT_EQ(hidden(), 0);
}

TEST_F(TimelineViewTest, RightClickOffersWhatCanBeDoneThere) {
  view_.ShowStep(2);
  QApplication::processEvents();
  const OpRef op{Side::kPredicted, predicted_->ops().RowsOf(10)[1]};
  const QPoint at = Find(op);
  ASSERT_GE(at.x(), 0);
  QTest::mouseClick(&view_, Qt::RightButton, Qt::NoModifier, at);
  auto* menu = view_.findChild<QMenu*>(QStringLiteral("timeline_menu"));
  ASSERT_NE(menu, nullptr);
  EXPECT_EQ(view_.selected(), op);
  EXPECT_TRUE(menu->actions().contains(Command("find_alike")));
  EXPECT_TRUE(menu->actions().contains(Command("pin_lane")));
  EXPECT_TRUE(menu->actions().contains(Command("add_note")));
  Command("find_alike")->trigger();
  EXPECT_NE(view_.filter(), "");
  menu->close();
}

}  // namespace
}  // namespace stallcast::gui
