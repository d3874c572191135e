// SPDX-License-Identifier: GPL-3.0-or-later
// A recording that stands alone, changed by key and mouse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <QApplication>
#include <QFile>
#include <QInputDialog>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QSlider>
#include <QTimer>
#include <QTreeWidget>
#include <QUndoStack>

#include "gui/app/commands.h"
#include "gui/timeline/timeline_view.h"
#include "gui/whatif/replay_panel.h"
#include "gui/whatif/summary_card.h"
#include "tests/gui/app/window_fixture.h"
#include "traces/common/error.h"
#include "traces/convert/import.h"

namespace stallcast::gui {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

QString Recorded(const char* name) {
  return QStringLiteral(STALLCAST_SOURCE_DIR "/tests/sim/recordings/%1.kvt").arg(name);
}

// The median step of a shipped recording, changed, as the command line has it.
Picoseconds StepOf(const char* name, const std::vector<std::string>& changes) {
  const traces::Trace file = traces::Import(Recorded(name).toStdString()).trace;
  const sim::Replay replay(file.timelines.at(0),
                           sim::MakeReplayMachine(hardware::FindProfile("h200")));
  std::vector<sim::ReplayChange> parsed;
  for (const std::string& change : changes) parsed.push_back(sim::ParseReplayChange(change));
  return replay.Run(parsed).summary.step;
}

class RecordingView : public WindowView {
 protected:
  void OpenRecording(const char* name = "offloaded-32768") {
    window_->Open({Recorded(name)});
    ASSERT_TRUE(Idle());
    ASSERT_NE(window_->replayed(), nullptr);
  }
  bool Replayed(const std::function<void()>& act) {
    const SharedReplay before = window_->replayed();
    act();
    return QTest::qWaitFor([&] { return window_->replayed() != before && window_->idle(); },
                           60'000);
  }
  void Type(const char* change) {
    auto* entry = Part<QLineEdit>("new_change");
    entry->setFocus();
    entry->clear();
    QTest::keyClicks(entry, QLatin1String(change));
    QTest::keyClick(entry, Qt::Key_Return);
    // The offscreen platform leaves the list of completions active when it goes.
    window_->activateWindow();
    ASSERT_TRUE(QTest::qWaitForWindowActive(window_.get()));
  }
  template <class Widget>
  Widget* Part(const char* name) {
    return window_->replay().findChild<Widget*>(QLatin1String(name));
  }
  std::vector<std::string> Applied() const { return window_->replay().request().Applied(); }
  Picoseconds Step() const { return window_->replayed()->figures.summary.step; }
  Picoseconds Unchanged() const { return window_->replayed()->of->unchanged.summary.step; }
  const TimelinePair& pair() { return *window_->timeline().pair(); }
  bool Above() { return pair().model(Side::kPredicted) != nullptr; }

  // A place of the view where the mouse is over such an op of the recording.
  QPoint Find(const std::function<bool(const OpDetails&)>& wanted) {
    TimelineView& view = window_->timeline();
    bool over = false;
    const auto connection =
        QObject::connect(&view, &TimelineView::OpHovered, [&](const std::optional<OpDetails>& op) {
          over = op && op->op.ref.side == Side::kMeasured && wanted(*op);
        });
    QPoint found(-1, -1);
    for (int y = 20; y < view.height() && found.x() < 0; y += 4) {
      for (int x = view.width() / 4; x < view.width() && found.x() < 0; x += 5) {
        QTest::mouseMove(&view, {x, y});
        if (over) found = {x, y};
      }
    }
    QObject::disconnect(connection);
    return found;
  }
  // Of no other place before it.
  QMenu* MenuAt(QPoint at) {
    delete window_->timeline().findChild<QMenu*>(QStringLiteral("timeline_menu"));
    QTest::mouseClick(&window_->timeline(), Qt::RightButton, Qt::NoModifier, at);
    return window_->timeline().findChild<QMenu*>(QStringLiteral("timeline_menu"));
  }
  // The change of a menu's n-th target.
  static QAction* Change(const QMenu& menu, int target, const char* verb) {
    const auto targets = menu.findChildren<QMenu*>(QStringLiteral("changes_of"));
    if (target >= targets.size()) return nullptr;
    return targets[target]->findChild<QAction*>(QStringLiteral("change_") + QLatin1String(verb));
  }
};

TEST_F(RecordingView, StandsAloneUntilSomethingIsChanged) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording());
  EXPECT_TRUE(window_->replay().isVisible());
  EXPECT_FALSE(window_->whatif().isVisible());
  EXPECT_FALSE(Above());
  EXPECT_EQ(window_->timeline().ghost(), nullptr);
  EXPECT_NEAR(window_->replayed()->of->ReplayError(), 0, 0.001);
  EXPECT_EQ(Unchanged(), StepOf("offloaded-32768", {}));
  EXPECT_FALSE(CaveatNames().contains(QStringLiteral("not matched")));
  EXPECT_TRUE(CaveatNames().contains(QStringLiteral("replay"))) << "what it assumes";
}

TEST_F(RecordingView, ATypedChangeStandsAboveAndIsTakenBack) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording());
  ASSERT_TRUE(Replayed([&] { Type("scale kind=offload 0.001"); }));
  EXPECT_EQ(Step(), StepOf("offloaded-32768", {"scale kind=offload 0.001"}));
  ASSERT_TRUE(Above());
  EXPECT_GT(pair().matched(), 4000) << "an op of the replay is one of the recording";
  EXPECT_EQ(pair().unlike(), 0);
  int64_t copies = 0;
  const TimelineModel& replay = *pair().model(Side::kPredicted);
  for (int64_t row = 0; row < replay.rows(); ++row) {
    if (replay.timeline().role[static_cast<size_t>(row)] != traces::Role::kOffload ||
        replay.IsCall(row)) {
      continue;
    }
    EXPECT_LT(pair().Residual({Side::kPredicted, row}), -0.9);
    ++copies;
  }
  EXPECT_GT(copies, 100);
  EXPECT_EQ(window_->timeline().ghost(), window_->replayed()->of->model)
      << "the ghost is the recording, replayed";
  const auto* list = Part<QTreeWidget>("changes");
  ASSERT_EQ(list->topLevelItemCount(), 1);
  EXPECT_THAT(list->topLevelItem(0)->text(1).toStdString(), StartsWith("-"));

  ASSERT_TRUE(Replayed([&] { Type("scale kind=recall 0.25"); }));
  EXPECT_EQ(Applied().size(), 2u);
  const Picoseconds both = Step();
  QUndoStack* undo = window_->timeline().undo_stack();
  ASSERT_TRUE(Replayed([&] { undo->undo(); }));
  EXPECT_THAT(Applied(), ElementsAre("scale kind=offload 0.001"));
  ASSERT_TRUE(Replayed([&] { undo->undo(); }));
  EXPECT_FALSE(Above());
  ASSERT_TRUE(Replayed([&] { undo->redo(); }));
  ASSERT_TRUE(Replayed([&] { undo->redo(); }));
  EXPECT_EQ(Step(), both);
}

TEST_F(RecordingView, ChangesAreSwitchedOffMovedAndDeleted) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording());
  ASSERT_TRUE(Replayed([&] { Type("scale kind=recall 0.25"); }));
  ASSERT_TRUE(Replayed([&] { Type("graph all"); }));
  auto* list = Part<QTreeWidget>("changes");
  ASSERT_TRUE(Replayed([&] { list->topLevelItem(0)->setCheckState(0, Qt::Unchecked); }));
  EXPECT_THAT(Applied(), ElementsAre("graph all"));
  EXPECT_EQ(Step(), StepOf("offloaded-32768", {"graph all"}));
  ASSERT_TRUE(Replayed([&] { list->topLevelItem(0)->setCheckState(0, Qt::Checked); }));
  list->setFocus();
  list->setCurrentItem(list->topLevelItem(1));
  ASSERT_TRUE(Replayed([&] { QTest::keyClick(list, Qt::Key_Up, Qt::AltModifier); }));
  EXPECT_THAT(Applied(), ElementsAre("graph all", "scale kind=recall 0.25"));
  ASSERT_TRUE(Replayed([&] { QTest::keyClick(list, Qt::Key_Delete); }));
  EXPECT_THAT(Applied(), ElementsAre("scale kind=recall 0.25"));
  // Written anew in its place; what is no change is told and not taken.
  list->topLevelItem(0)->setText(0, QStringLiteral("forget kind=recall"));
  QTest::qWait(20);
  EXPECT_THAT(Applied(), ElementsAre("scale kind=recall 0.25"));
  EXPECT_TRUE(Part<QLabel>("change_error")->isVisible());
  ASSERT_TRUE(
      Replayed([&] { list->topLevelItem(0)->setText(0, QStringLiteral("remove kind=recall")); }));
  EXPECT_THAT(Applied(), ElementsAre("remove kind=recall"));
}

TEST_F(RecordingView, AChangeOfNothingIsToldAndGoesAgain) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording());
  Type("remove layer=77");
  ASSERT_TRUE(QTest::qWaitFor([&] { return Part<QLabel>("change_error")->isVisible(); }, 10'000));
  EXPECT_THAT(window_->findChild<SummaryCard*>()->text().toStdString(), HasSubstr("matches no op"));
  ASSERT_TRUE(Idle());
  ASSERT_TRUE(Replayed([&] { window_->timeline().undo_stack()->undo(); }));
  EXPECT_FALSE(Part<QLabel>("change_error")->isVisible());
  EXPECT_THAT(window_->findChild<SummaryCard*>()->text().toStdString(), HasSubstr("measured"));
}

TEST_F(RecordingView, SlidersChangeTheMachineAndOneMoveIsOneStepBack) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording("static-eager-8192"));
  auto* slider = window_->replay().setting("host.speed")->findChild<QSlider*>();
  ASSERT_NE(slider, nullptr);
  const int steps = window_->timeline().undo_stack()->count();
  ASSERT_TRUE(Replayed([&] {
    slider->setFocus();
    QTest::keyClick(slider, Qt::Key_PageUp);
    QTest::keyClick(slider, Qt::Key_PageUp);
  }));
  EXPECT_LT(Step(), Unchanged()) << "its host decides";
  EXPECT_EQ(window_->timeline().undo_stack()->count(), steps + 1);
  EXPECT_EQ(Step(), StepOf("static-eager-8192", Applied()));
  ASSERT_TRUE(Replayed([&] { window_->timeline().undo_stack()->undo(); }));
  EXPECT_TRUE(Applied().empty());
  EXPECT_EQ(slider->value(), (slider->minimum() + slider->maximum()) / 2);
}

TEST_F(RecordingView, TheRankingIsChosenByAClickAndRemovedByTwo) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording());
  auto* top = Part<QTreeWidget>("top");
  ASSERT_EQ(top->topLevelItemCount(), 10);
  const auto click = [&](int row, bool twice) {
    const QPoint at = top->visualItemRect(top->topLevelItem(row)).center();
    if (twice) return QTest::mouseDClick(top->viewport(), Qt::LeftButton, Qt::NoModifier, at);
    QTest::mouseClick(top->viewport(), Qt::LeftButton, Qt::NoModifier, at);
  };
  click(0, false);
  TimelineView& view = window_->timeline();
  const TimelineModel& recording = *pair().model(Side::kMeasured);
  int64_t chosen = 0;
  for (int64_t row = 0; row < recording.rows(); ++row) {
    if (!view.Chooses({Side::kMeasured, row})) continue;
    EXPECT_EQ(recording.timeline().role[static_cast<size_t>(row)], traces::Role::kOffload);
    ++chosen;
  }
  EXPECT_EQ(chosen, 195) << "65 in each of three steps";
  const double gain = top->topLevelItem(0)->text(3).toDouble();
  EXPECT_GT(gain, 5);
  ASSERT_TRUE(Replayed([&] { click(0, true); }));
  ASSERT_EQ(Applied().size(), 1u);
  EXPECT_THAT(Applied()[0], StartsWith("remove name="));
  EXPECT_NEAR(Milliseconds(Unchanged() - Step()), gain, 0.006) << "as it was told";
}

TEST_F(RecordingView, AnOpIsChangedFromItsMenu) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording());
  const QPoint at = Find([](const OpDetails& op) { return op.op.role == traces::Role::kRecall; });
  ASSERT_GE(at.x(), 0);
  QMenu* menu = MenuAt(at);
  ASSERT_NE(menu, nullptr);
  QAction* move = Change(*menu, 0, "move");
  ASSERT_NE(move, nullptr);
  ASSERT_NE(Change(*menu, 0, "batch"), nullptr) << "it is a copy";
  ASSERT_TRUE(Replayed([&] { move->trigger(); }));
  ASSERT_EQ(Applied().size(), 1u);
  EXPECT_THAT(Applied()[0], StartsWith("move name=\"Memcpy HtoD"));
  EXPECT_THAT(Applied()[0], HasSubstr("stream 73\" new"));
  EXPECT_TRUE(Above());
  const traces::Timeline& moved = pair().model(Side::kPredicted)->timeline();
  EXPECT_EQ(moved.lanes.back().name, "new stream 1");
}

TEST_F(RecordingView, AnAreaIsChangedInEveryStep) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording());
  TimelineView& view = window_->timeline();
  view.ShowStep(pair().model(Side::kMeasured)->steps().at(1).step);
  const QPoint at = Find([](const OpDetails& op) { return op.op.role == traces::Role::kRecall; });
  ASSERT_GE(at.x(), 0);
  QTest::mousePress(&view, Qt::LeftButton, Qt::NoModifier, at);
  QTest::mouseMove(&view, at + QPoint(30, 1));
  QTest::mouseMove(&view, at + QPoint(120, 2));
  QTest::mouseRelease(&view, Qt::LeftButton, Qt::NoModifier, at + QPoint(120, 2));
  ASSERT_TRUE(view.area());
  QMenu* menu = MenuAt(at + QPoint(60, 1));
  ASSERT_NE(menu, nullptr);
  QAction* remove = nullptr;
  for (int target = 0; QAction* action = Change(*menu, target, "remove"); ++target) {
    const bool of_area = action->toolTip().contains(QStringLiteral("start="));
    if (of_area && remove == nullptr) remove = action;
  }
  ASSERT_NE(remove, nullptr);
  ASSERT_TRUE(Replayed([&] { remove->trigger(); }));
  ASSERT_EQ(Applied().size(), 1u);
  EXPECT_THAT(Applied()[0], HasSubstr("stream 73"));
  EXPECT_GT(window_->replayed()->effects.at(0).ops, 0);
}

TEST_F(RecordingView, WhatTheFilterChoosesIsScaled) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording());
  window_->timeline().SetFilter(QStringLiteral("role:recall bytes>1MB"));
  const QPoint empty(window_->timeline().width() - 30, window_->timeline().height() - 4);
  QMenu* menu = MenuAt(empty);
  ASSERT_NE(menu, nullptr);
  QAction* scale = Change(*menu, 0, "scale");
  ASSERT_NE(scale, nullptr);
  QTimer::singleShot(0, window_.get(), [] {
    auto* dialog = qobject_cast<QInputDialog*>(QApplication::activeModalWidget());
    ASSERT_NE(dialog, nullptr);
    dialog->setTextValue(QStringLiteral("0.25"));
    dialog->accept();
  });
  ASSERT_TRUE(Replayed([&] { scale->trigger(); }));
  EXPECT_THAT(Applied(), ElementsAre("scale role=recall,bytes=1000000- 0.25"));
  window_->timeline().SetFilter(QStringLiteral("dur>1us"));
  menu = MenuAt(empty);
  ASSERT_NE(menu, nullptr);
  EXPECT_EQ(Change(*menu, 0, "scale"), nullptr) << "a change has no filter for durations";
  EXPECT_FALSE(menu->actions().at(0)->isEnabled());
}

TEST_F(RecordingView, TheSessionAndTheReportKeepTheChanges) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording());
  ASSERT_TRUE(Replayed([&] { Type("scale kind=recall 0.25"); }));
  ASSERT_TRUE(Replayed([&] { Type("graph all"); }));
  ASSERT_TRUE(Replayed(
      [&] { Part<QTreeWidget>("changes")->topLevelItem(0)->setCheckState(0, Qt::Unchecked); }));
  const ReplayRequest request = window_->replay().request();
  const Picoseconds step = Step();
  window_->SaveReportTo(Path("report.html"));
  QFile report(Path("report.html"));
  ASSERT_TRUE(report.open(QIODevice::ReadOnly));
  EXPECT_THAT(report.readAll().toStdString(), HasSubstr("--change 'graph all'"));
  window_->SaveSessionTo(Path("changed.stallcast"));
  Start();
  window_->Open({Path("changed.stallcast")});
  ASSERT_TRUE(Idle());
  ASSERT_NE(window_->replayed(), nullptr);
  EXPECT_EQ(window_->replay().request(), request);
  EXPECT_EQ(Step(), step);
  window_->commands().Find(QStringLiteral("close_files"))->trigger();
  EXPECT_FALSE(window_->replay().isVisible());
  EXPECT_EQ(window_->replayed(), nullptr);
}

TEST_F(RecordingView, ARecordingOfCallsAloneSaysThatItCannotBeReplayed) {
  traces::Timeline calls;
  calls.title = "calls";
  calls.lanes = {{"thread 1", traces::LaneKind::kHost, false}};
  calls.names = {"cudaLaunchKernel"};
  calls.lane = {0};
  calls.op = {1};
  calls.step = {0};
  calls.layer = {-1};
  calls.role = {traces::Role::kHost};
  calls.name = {0};
  calls.start = {Picoseconds(0)};
  calls.duration = {Picoseconds(5'000'000)};
  calls.bytes = {0};
  WriteTimeline(Path("calls.kvt"), calls);
  window_->Open({Path("calls.kvt")});
  ASSERT_TRUE(Idle());
  EXPECT_EQ(window_->replayed(), nullptr);
  EXPECT_FALSE(window_->replay().isVisible());
  EXPECT_THAT(window_->findChild<SummaryCard*>()->text().toStdString(),
              HasSubstr("cannot be replayed"));
}

TEST_F(RecordingView, NothingOfThePanelIsCutInASmallWindow) {
  window_->resize(800, 560);
  ASSERT_NO_FATAL_FAILURE(OpenRecording());
  ASSERT_TRUE(Replayed([&] { Type("scale kind=recall 0.25"); }));
  QTest::qWait(50);
  EXPECT_LE(window_->width(), 800);
  for (const QWidget* widget : window_->replay().findChildren<QWidget*>()) {
    if (!widget->isVisible() || !widget->parentWidget()->isVisible()) continue;
    const QRect parent = widget->parentWidget()->rect();
    EXPECT_TRUE(widget->x() >= 0 && widget->geometry().right() <= parent.right())
        << widget->metaObject()->className() << " " << widget->objectName().toStdString();
  }
}

}  // namespace
}  // namespace stallcast::gui
