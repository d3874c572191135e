// SPDX-License-Identifier: GPL-3.0-or-later
// The window, driven by key and mouse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <QAbstractItemModelTester>
#include <QApplication>
#include <QCheckBox>
#include <QComboBox>
#include <QDir>
#include <QDockWidget>
#include <QDragEnterEvent>
#include <QDropEvent>
#include <QFile>
#include <QFileDialog>
#include <QLabel>
#include <QLineEdit>
#include <QListView>
#include <QMenu>
#include <QMenuBar>
#include <QMimeData>
#include <QProcess>
#include <QPushButton>
#include <QScreen>
#include <QScrollArea>
#include <QScrollBar>
#include <QSettings>
#include <QSignalSpy>
#include <QSlider>
#include <QSpinBox>
#include <QTableView>
#include <QTemporaryDir>
#include <QTest>
#include <QTimer>
#include <QToolButton>
#include <QTreeView>
#include <QUrl>
#include <csignal>
#include <functional>
#include <set>

#include "gui/app/command_palette.h"
#include "gui/app/commands.h"
#include "gui/app/message_bar.h"
#include "gui/timeline/timeline_view.h"
#include "gui/whatif/control_row.h"
#include "gui/whatif/number_box.h"
#include "gui/whatif/whatif_panel.h"
#include "sim/recorded_run.h"
#include "tests/gui/app/window_fixture.h"
#include "tests/gui/timeline/random_timeline.h"
#include "traces/common/error.h"
#include "traces/common/quantity.h"
#include "traces/convert/import.h"

namespace stallcast::gui {
namespace {

using testing::HasSubstr;

QString Source(const char* path) {
  return QStringLiteral(STALLCAST_SOURCE_DIR "/") + QLatin1String(path);
}

TEST_F(WindowView, EveryCommandHasAKeyOfItsOwnAndAMenuEntry) {
  std::set<QAction*> in_menus;
  for (QAction* menu : window_->menuBar()->actions()) {
    ASSERT_NE(menu->menu(), nullptr);
    for (QAction* action : menu->menu()->actions()) in_menus.insert(action);
  }
  std::map<QString, QString> keys;
  std::set<QString> names;
  for (QAction* action : window_->commands().actions()) {
    const std::string name = action->objectName().toStdString();
    EXPECT_FALSE(name.empty()) << action->text().toStdString();
    EXPECT_TRUE(names.insert(action->objectName()).second) << name;
    EXPECT_TRUE(in_menus.count(action)) << name << " is in no menu";
    EXPECT_FALSE(action->statusTip().isEmpty()) << name << " has no tip";
    ASSERT_FALSE(action->shortcuts().isEmpty()) << name << " has no key";
    for (const QKeySequence& key : action->shortcuts()) {
      const auto [found, fresh] = keys.try_emplace(key.toString(), action->objectName());
      EXPECT_TRUE(fresh) << name << " and " << found->second.toStdString() << " share "
                         << key.toString().toStdString();
    }
  }
}

TEST_F(WindowView, PaletteFindsAndRunsACommand) {
  QTest::keyClick(window_.get(), Qt::Key_P, Qt::ControlModifier | Qt::ShiftModifier);
  auto* palette = window_->findChild<CommandPalette*>();
  ASSERT_TRUE(palette && palette->isVisible());
  auto* words = palette->findChild<QLineEdit*>();
  QTest::keyClicks(words, QStringLiteral("darkth"));
  EXPECT_THAT(palette->findChild<QListView*>()->currentIndex().data().toString().toStdString(),
              HasSubstr("Dark Theme"));
  QTest::keyClick(words, Qt::Key_Return);
  EXPECT_TRUE(QTest::qWaitFor([&] { return IsDark(window_->palette()); }, 1000));
  EXPECT_FALSE(palette->isVisible());
}

TEST_F(WindowView, PaletteModelKeepsTheRules) {
  CommandModel model(window_->commands());
  const QAbstractItemModelTester tester(&model,
                                        QAbstractItemModelTester::FailureReportingMode::Fatal);
  const int all = model.rowCount();
  EXPECT_EQ(all, window_->commands().actions().size());
  model.SetWords(QStringLiteral("zoom in"));
  EXPECT_LT(model.rowCount(), all);
  EXPECT_EQ(model.ActionAt(0)->objectName(), QStringLiteral("zoom_in"));
  model.SetWords(QStringLiteral("qqqq"));
  EXPECT_EQ(model.rowCount(), 0);
}

TEST_F(WindowView, SampleGivesAFirstPicture) {
  window_->OpenSample();
  ASSERT_TRUE(Idle());
  ASSERT_NE(window_->result(), nullptr);
  EXPECT_EQ(window_->result()->prediction.metrics.step_times.size(), 64u);
  ASSERT_NE(window_->timeline().pair(), nullptr);
  EXPECT_GT(window_->timeline().pair()->model(Side::kPredicted)->rows(), 10'000);
  EXPECT_TRUE(CaveatNames().contains(QStringLiteral("projected")));
  EXPECT_TRUE(window_->messages().messages().isEmpty());
}

TEST_F(WindowView, ValuesThatCannotBePredictedLeaveNoPredictionOfNow) {
  OpenSmall();
  auto* sink = In<NumberBox>("param.sink");
  sink->selectAll();
  QTest::keyClicks(sink, QStringLiteral("4000"));
  QTest::keyClick(sink, Qt::Key_Return);
  ASSERT_TRUE(Idle());
  const QString error = window_->whatif().row("param.sink")->error();
  ASSERT_FALSE(error.isEmpty());
  const auto label = [&](const char* name) {
    return window_->findChild<QLabel*>(QLatin1String(name))->text();
  };
  EXPECT_EQ(label("step"), "No prediction");
  EXPECT_TRUE(label("problem").contains(error)) << "said where the number was, too";
  EXPECT_TRUE(CaveatNames().contains(QStringLiteral("former values"))) << "said at the timeline";
  window_->ShowChart(ChartsPanel::Kind::kSteps);
  EXPECT_TRUE(window_->charts().view().chart().series.empty());
  QTest::keyClick(window_.get(), Qt::Key_1, Qt::ControlModifier);
  EXPECT_EQ(window_->comparison().pinned(Pin::kA), nullptr) << "there is nothing to pin";
  ASSERT_TRUE(Predicted([&] {
    window_->whatif().row("param.sink")->findChild<QToolButton*>(QStringLiteral("reset"))->click();
  }));
  EXPECT_TRUE(label("step").contains("median step"));
  EXPECT_FALSE(CaveatNames().contains(QStringLiteral("former values")));
}

TEST_F(WindowView, APromptThatCannotBePredictedLeavesTheSteps) {
  OpenSmall();
  sim::PredictRequest request = window_->result()->request;
  request.context = 900'000'000;  // its prefill would take days
  ASSERT_TRUE(Predicted([&] { window_->SetRequest(request); }));
  EXPECT_EQ(window_->result()->request.context, request.context);
  EXPECT_EQ(window_->messages().messages().size(), 1) << "why there is no time of the prompt";
  EXPECT_TRUE(window_->findChild<QLabel*>(QStringLiteral("step"))->text().contains("median step"));
  EXPECT_FALSE(CaveatNames().contains(QStringLiteral("former values")));
}

TEST_F(WindowView, SliderPredictsAgainAndLeavesAGhost) {
  OpenSmall();
  const double before = Step();
  const auto model = window_->result()->model;
  auto* slider = In<QSlider>("machine.memory.bandwidth");
  ASSERT_NE(slider, nullptr);
  ASSERT_TRUE(Predicted([&] {
    slider->setFocus();
    QTest::keyClick(slider, Qt::Key_Home);  // the least
  }));
  EXPECT_GT(Step(), before);
  EXPECT_TRUE(CaveatNames().contains(QStringLiteral("overridden")));
  EXPECT_NE(window_->timeline().pair()->model(Side::kPredicted), model);
  auto* reset = window_->whatif()
                    .row("machine.memory.bandwidth")
                    ->findChild<QToolButton*>(QStringLiteral("reset"));
  ASSERT_TRUE(Predicted([&] { reset->click(); }));
  EXPECT_EQ(Step(), before);
  EXPECT_FALSE(CaveatNames().contains(QStringLiteral("overridden")));
}

TEST_F(WindowView, WhatAPredictionLeavesOutIsSaidByItsName) {
  OpenSmall();
  sim::PredictRequest request = window_->result()->request;
  request.model = "llama-3.1-8b";
  request.tensor_parallel = 2;
  ASSERT_TRUE(Predicted([&] { window_->SetRequest(request); }));
  EXPECT_TRUE(CaveatNames().contains(QStringLiteral("predicted only")));
  EXPECT_FALSE(CaveatNames().contains(QStringLiteral("note")));
}

TEST_F(WindowView, WhatIsTakenBackIsNotPredictedAgain) {
  OpenSmall();
  const auto before = window_->result()->model;
  auto* box = In<NumberBox>("param.budget");
  ASSERT_TRUE(Predicted([&] {
    box->setFocus();
    QTest::keyClick(box, Qt::Key_Down);
  }));
  ASSERT_NE(window_->result()->model, before);
  ASSERT_TRUE(Predicted([&] {
    window_->whatif()
        .row("param.budget")
        ->findChild<QToolButton*>(QStringLiteral("reset"))
        ->click();
  }));
  EXPECT_EQ(window_->result()->model, before);
  EXPECT_EQ(window_->timeline().pair()->model(Side::kPredicted), before);
  EXPECT_TRUE(window_->result()->prediction.sampled) << "its quantiles are there again";
}

TEST_F(WindowView, OnlyTheLastOfManyMovesIsShown) {
  OpenSmall();
  auto* slider = In<QSlider>("machine.link.h2d");
  for (int i = 0; i <= 40; ++i) slider->setValue(i * 25);
  ASSERT_TRUE(Idle());
  const double last = window_->whatif().row("machine.link.h2d")->control().AtShare(1);
  ASSERT_EQ(window_->result()->request.machine_overrides.size(), 1u);
  EXPECT_DOUBLE_EQ(
      ParseQuantity(window_->result()->request.machine_overrides[0].second, Dimension::kRate, ""),
      last);
}

TEST_F(WindowView, ErrorsStandBesideTheirControl) {
  OpenSmall();
  const auto type = [&](const char* row, const char* text) {
    auto* box = In<NumberBox>(row);
    box->setFocus();
    box->selectAll();
    QTest::keyClicks(box, QLatin1String(text));
    QTest::keyClick(box, Qt::Key_Return);
    EXPECT_TRUE(Idle());
    return window_->whatif().row(row)->error().toStdString();
  };
  EXPECT_THAT(type("param.budget", "many"), HasSubstr("whole number"));
  EXPECT_THAT(type("param.budget", "1000"), HasSubstr("not a whole number of 32-token pages"));
  EXPECT_THAT(type("machine.link.h2d", "128GB"), HasSubstr("is a size"));
  EXPECT_NE(window_->whatif().row("param.budget")->error(), QString())
      << "what is still wrong is still said";
  EXPECT_EQ(type("param.budget", "2048"), "");
  EXPECT_THAT(type("tp", "3"), HasSubstr("cannot be divided"));
  EXPECT_THAT(type("batch", "0"), HasSubstr("not a number"));
  EXPECT_NE(window_->result(), nullptr) << "the last good picture stays";
  EXPECT_EQ(type("tp", "1"), "");
}

// As with --chart sweep, which is there before the trace has been read.
TEST_F(WindowView, SweepChosenBeforeATraceIsOpenAsksForNoTraceAfterIt) {
  window_->ShowChart(ChartsPanel::Kind::kSweep);
  const Chart& chart = window_->charts().view().chart();
  EXPECT_THAT(chart.empty.toStdString(), HasSubstr("Open a trace"));
  OpenSmall();
  EXPECT_THAT(chart.empty.toStdString(), HasSubstr("Run a sweep"));
}

TEST_F(WindowView, SweepAxisTakesAMethodThatRefusesTheFormerValue) {
  OpenSmall();
  In<QComboBox>("method")->setCurrentText(QStringLiteral("louiskv"));
  auto* tau = In<NumberBox>("param.tau");
  tau->selectAll();
  QTest::keyClicks(tau, QStringLiteral("-0.5"));
  QTest::keyClick(tau, Qt::Key_Return);
  ASSERT_EQ(window_->whatif().request().params.at("tau"), "-0.5");
  ASSERT_TRUE(Idle());
  ASSERT_TRUE(
      Predicted([&] { In<QComboBox>("method")->setCurrentText(QStringLiteral("freekv")); }));
  window_->ShowChart(ChartsPanel::Kind::kSweep);
  window_->charts().findChild<QComboBox*>(QStringLiteral("axis"))->setCurrentText("tau");
  EXPECT_FALSE(window_->charts().findChild<QLineEdit*>(QStringLiteral("values"))->text().isEmpty());
}

TEST_F(WindowView, SessionWithAValueThatIsNoneIsMended) {
  QFile file(Path("bad.stallcast"));
  ASSERT_TRUE(file.open(QIODevice::WriteOnly));
  file.write(R"({"stallcast_session": 1, "files": ["small.kvt"], "trace": "small.kvt",
                 "request": {"method": "freekv", "params": {"budget": "abc"}}})");
  file.close();
  window_->Open({Path("bad.stallcast")});
  ASSERT_TRUE(Idle());
  EXPECT_EQ(window_->result(), nullptr);
  EXPECT_THAT(window_->whatif().row("param.budget")->error().toStdString(),
              HasSubstr("whole number"));
  In<NumberBox>("batch")->setFocus();
  QTest::keyClick(In<NumberBox>("batch"), Qt::Key_Up);
  ASSERT_TRUE(Idle());
  ASSERT_TRUE(Predicted([&] {
    window_->whatif()
        .row("param.budget")
        ->findChild<QToolButton*>(QStringLiteral("reset"))
        ->click();
  }));
  EXPECT_EQ(window_->result()->request.batch, 2);
}

TEST_F(WindowView, ChoosingAMethodKeepsPlaceAndFocus) {
  OpenSmall();
  auto* scroll = window_->whatif().findChild<QScrollArea*>()->verticalScrollBar();
  ASSERT_GT(scroll->maximum(), 0);
  In<QComboBox>("method")->setFocus();
  const int place = scroll->value();
  for (int i = 0; i < 2; ++i) {
    const QString before = In<QComboBox>("method")->currentText();
    QTest::keyClick(window_->focusWidget(), Qt::Key_Down);
    EXPECT_NE(In<QComboBox>("method")->currentText(), before) << "again by the same key";
    EXPECT_EQ(window_->focusWidget(), In<QComboBox>("method"));
    ASSERT_TRUE(Idle());
    QTest::qWait(20);
    EXPECT_EQ(scroll->value(), place);
  }
}

TEST_F(WindowView, TabGoesRoundWhatIsSeen) {
  OpenSmall();
  QTest::keyClick(window_.get(), Qt::Key_K, Qt::ControlModifier);
  QTest::qWait(20);
  std::vector<QWidget*> seen{window_->focusWidget()};
  EXPECT_EQ(seen[0]->objectName(), "search");
  bool round = false;
  for (int i = 0; i < 400 && !round; ++i) {
    QTest::keyClick(window_->focusWidget(), Qt::Key_Tab);
    QWidget* now = window_->focusWidget();
    EXPECT_NE(now, seen.back()) << "a trap: " << now->metaObject()->className();
    EXPECT_FALSE(window_->findChild<QTableView*>()->isAncestorOf(now)) << "under another tab";
    EXPECT_NE(now, window_->findChild<QTableView*>()) << "under another tab";
    seen.push_back(now);
    round = now == seen[0];
  }
  QStringList last;  // stops, to find where it goes in a circle of its own
  for (size_t i = seen.size() - std::min<size_t>(seen.size(), 12); i < seen.size(); ++i) {
    last << QLatin1String(seen[i]->metaObject()->className()) + ' ' + seen[i]->objectName();
  }
  EXPECT_TRUE(round) << last.join(", ").toStdString();
}

TEST_F(WindowView, ValueThatWasFoundIsSetByKeys) {
  OpenSmall();
  QTest::keyClick(window_.get(), Qt::Key_K, Qt::ControlModifier);
  QTest::keyClicks(window_->focusWidget(), QStringLiteral("budget"));
  QTest::keyClick(window_->focusWidget(), Qt::Key_Return);
  EXPECT_EQ(window_->focusWidget(), In<NumberBox>("param.budget"));
  ASSERT_TRUE(Predicted([&] { QTest::keyClick(window_->focusWidget(), Qt::Key_Up); }));
  QTest::keyClick(window_.get(), Qt::Key_K, Qt::ControlModifier);
  QTest::keyClicks(window_->focusWidget(), QStringLiteral("zzz"));
  auto* none = window_->whatif().findChild<QLabel*>(QStringLiteral("none_found"));
  EXPECT_TRUE(none->isVisible());
  EXPECT_THAT(none->text().toStdString(), HasSubstr("zzz"));
  QTest::keyClick(window_->focusWidget(), Qt::Key_Escape);
  EXPECT_FALSE(none->isVisible());
  EXPECT_TRUE(window_->whatif().row("param.budget")->isVisible());
}

TEST_F(WindowView, MethodChangesItsControls) {
  OpenSmall();
  auto* method = In<QComboBox>("method");
  ASSERT_TRUE(Predicted([&] { method->setCurrentText(QStringLiteral("full")); }));
  EXPECT_EQ(window_->whatif().row("param.budget"), nullptr);
  EXPECT_EQ(window_->result()->log, nullptr);
  EXPECT_DOUBLE_EQ(window_->result()->prediction.selection.attention_mass, 1);
}

TEST_F(WindowView, TellsWhichMemoryIsTooSmall) {
  OpenSmall();
  const auto problem = [&] {
    const auto* label = window_->findChild<QLabel*>(QStringLiteral("problem"));
    return label->isVisible() ? label->text().toStdString() : std::string();
  };
  EXPECT_EQ(problem(), "");
  ASSERT_TRUE(Predicted([&] {
    auto* memory = In<NumberBox>("machine.host.bytes");
    memory->selectAll();
    QTest::keyClicks(memory, QStringLiteral("1MiB"));
    QTest::keyClick(memory, Qt::Key_Return);
  }));
  EXPECT_THAT(problem(), HasSubstr("on the host, where 0.0 are free"));
  EXPECT_THAT(problem(), testing::Not(HasSubstr("GPU")));
  EXPECT_TRUE(CaveatNames().contains(QStringLiteral("does not fit")));
}

TEST_F(WindowView, SaysThatThePredictionIsOnItsWay) {
  const auto* step = window_->findChild<QLabel*>(QStringLiteral("step"));
  EXPECT_EQ(step->text(), "No prediction");
  window_->Open({Path("small.kvt")});
  EXPECT_EQ(step->text(), "...");
  ASSERT_TRUE(Idle());
  EXPECT_TRUE(step->text().contains("median step"));
  window_->commands().Find(QStringLiteral("close_files"))->trigger();
  EXPECT_EQ(step->text(), "No prediction");
}

TEST_F(WindowView, PinsAreCompared) {
  OpenSmall();
  QTest::keyClick(window_.get(), Qt::Key_1, Qt::ControlModifier);
  ASSERT_NE(window_->comparison().pinned(Pin::kA), nullptr);
  const auto pinned = window_->result()->request;
  ASSERT_TRUE(
      Predicted([&] { In<QComboBox>("method")->setCurrentText(QStringLiteral("streaming")); }));
  const ComparisonModel& model = window_->comparison();
  const QAbstractItemModelTester tester(&window_->comparison(),
                                        QAbstractItemModelTester::FailureReportingMode::Fatal);
  QStringList rows;
  for (int i = 0; i < model.rowCount(); ++i) {
    rows << model.headerData(i, Qt::Vertical, Qt::DisplayRole).toString();
  }
  const auto method = static_cast<int>(rows.indexOf("method"));
  ASSERT_GE(method, 0);
  EXPECT_EQ(model.index(method, ComparisonModel::kNow).data().toString(), "streaming");
  EXPECT_EQ(model.index(method, ComparisonModel::kA).data().toString(), "freekv");
  const auto step = static_cast<int>(rows.indexOf("median step"));
  ASSERT_GE(step, 0);
  EXPECT_TRUE(model.index(step, ComparisonModel::kAgainstA).data().toString().startsWith('-'));
  ASSERT_TRUE(Predicted([&] { QTest::keyClick(window_.get(), Qt::Key_1, Qt::AltModifier); }));
  EXPECT_EQ(window_->result()->request.method, pinned.method);
  QTest::keyClick(window_.get(), Qt::Key_1, Qt::ControlModifier | Qt::ShiftModifier);
  EXPECT_EQ(window_->comparison().pinned(Pin::kA), nullptr);
}

TEST_F(WindowView, PinsKeepTheirTrace) {
  QFile::copy(Path("small.kvt"), Path("other.kvt"));
  OpenSmall();
  const double step = Step();
  QTest::keyClick(window_.get(), Qt::Key_1, Qt::ControlModifier);
  ASSERT_TRUE(Predicted([&] { window_->Open({Path("other.kvt")}); }));
  const ComparisonModel& model = window_->comparison();
  ASSERT_EQ(model.headerData(0, Qt::Vertical, Qt::DisplayRole).toString(), "trace")
      << "all that they differ in";
  EXPECT_EQ(model.index(0, ComparisonModel::kNow).data().toString(), "other.kvt");
  EXPECT_EQ(model.index(0, ComparisonModel::kA).data().toString(), "small.kvt");
  EXPECT_THAT(window_->findChild<QLabel*>(QStringLiteral("change"))->text().toStdString(),
              HasSubstr("pin A of small.kvt"));
  window_->SaveSessionTo(Path("two.stallcast"));

  ASSERT_TRUE(Predicted([&] { QTest::keyClick(window_.get(), Qt::Key_1, Qt::AltModifier); }));
  EXPECT_EQ(window_->result()->trace, Path("small.kvt"));
  EXPECT_EQ(Step(), step);

  Start();
  window_->Open({Path("two.stallcast")});
  ASSERT_TRUE(Idle());
  EXPECT_EQ(window_->result()->trace, Path("other.kvt"));
  ASSERT_NE(window_->comparison().pinned(Pin::kA), nullptr);
  EXPECT_EQ(window_->comparison().pinned(Pin::kA)->trace, Path("small.kvt"));
}

TEST_F(WindowView, SweepRunsAndIsCancelled) {
  OpenSmall();
  QTest::keyClick(window_.get(), Qt::Key_3, Qt::AltModifier | Qt::ShiftModifier);
  ASSERT_EQ(window_->charts().kind(), ChartsPanel::Kind::kSweep);
  auto* values = window_->charts().findChild<QLineEdit*>(QStringLiteral("values"));
  values->setText(QStringLiteral("1280,1536,2048"));
  QTest::keyClick(values, Qt::Key_Return);
  ASSERT_TRUE(Idle());
  const Chart& chart = window_->charts().view().chart();
  ASSERT_EQ(chart.series.size(), 2u);  // ceiling and time
  const auto& time = std::get<LineMark>(chart.series[1].mark);
  ASSERT_EQ(time.points.size(), 3u);
  EXPECT_EQ(time.points[1].x(), 1536);

  values->setText(QStringLiteral("1:2"));
  QTest::keyClick(values, Qt::Key_Return);
  EXPECT_THAT(window_->charts().findChild<QLabel*>(QStringLiteral("note"))->text().toStdString(),
              HasSubstr("not a range"));

  values->setText(QStringLiteral("1280:40000:32"));
  QTest::keyClick(values, Qt::Key_Return);
  EXPECT_TRUE(window_->charts().busy());
  QTest::mouseClick(window_->charts().findChild<QPushButton*>(QStringLiteral("cancel")),
                    Qt::LeftButton);
  EXPECT_FALSE(window_->charts().busy());
  EXPECT_TRUE(Idle());
}

TEST_F(WindowView, FailuresInTheBackgroundAreTold) {
  Q_EMIT window_->charts().Failed(Error("there is not enough memory", "sweep", "use fewer values"));
  EXPECT_THAT(window_->messages().messages().join('\n').toStdString(), HasSubstr("enough memory"));
}

TEST_F(WindowView, ChartsShowUnitsAndMethods) {
  OpenSmall();
  window_->ShowChart(ChartsPanel::Kind::kUnits);
  ASSERT_FALSE(window_->charts().view().chart().series.empty())
      << "begins with a layer that selects";
  EXPECT_TRUE(std::holds_alternative<CellMark>(window_->charts().view().chart().series.at(0).mark));
  window_->ShowChart(ChartsPanel::Kind::kRoles);
  window_->charts().RunSweep();
  ASSERT_TRUE(Idle());
  EXPECT_TRUE(window_->charts().view().chart().y.categories.contains(QStringLiteral("streaming")));
}

TEST_F(WindowView, ChartsSayOfWhatTheyAre) {
  OpenSmall();
  const auto chart = [&]() -> const Chart& { return window_->charts().view().chart(); };
  auto* base = window_->charts().findChild<QLabel*>(QStringLiteral("base"));
  ASSERT_NE(base, nullptr);
  window_->ShowChart(ChartsPanel::Kind::kSteps);
  EXPECT_THAT(chart().subject.join('\n').toStdString(), HasSubstr("now: freekv, h200"));

  window_->ShowChart(ChartsPanel::Kind::kSweep);
  auto* values = window_->charts().findChild<QLineEdit*>(QStringLiteral("values"));
  values->setText(QStringLiteral("1280,1536"));
  QTest::keyClick(values, Qt::Key_Return);
  ASSERT_TRUE(Idle());
  EXPECT_EQ(chart().subject, QStringList{"freekv, h200, from small.kvt"});
  EXPECT_FALSE(base->isVisible());
  const QColor full = chart().series[1].color;

  window_->ShowChart(ChartsPanel::Kind::kRoles);
  window_->charts().RunSweep();
  ASSERT_TRUE(Idle());
  EXPECT_TRUE(chart().subject.contains("all methods, h200, from small.kvt"));
  EXPECT_TRUE(chart().subject.contains("now: freekv, h200"));

  // Another machine: the sweeps are not of it.
  sim::PredictRequest request = window_->whatif().request();
  request.machine = "a100-40gb";
  ASSERT_TRUE(Predicted([&] { window_->SetRequest(request); }));
  EXPECT_TRUE(base->isVisible());
  EXPECT_THAT(base->text().toStdString(), HasSubstr("all methods, h200, from small.kvt"));
  EXPECT_TRUE(chart().subject.contains("now: freekv, a100-40gb"));
  const auto& bars = std::get<BarMark>(chart().series[0].mark);
  EXPECT_FALSE(bars.pale[0]) << "now";
  EXPECT_TRUE(bars.pale[1]) << "of the sweep";
  window_->ShowChart(ChartsPanel::Kind::kSweep);
  EXPECT_TRUE(base->isVisible());
  ASSERT_EQ(chart().series.size(), 2u);
  EXPECT_NE(chart().series[1].color, full);
  EXPECT_EQ(chart().subject, QStringList{"freekv, h200, from small.kvt"});
  window_->charts().RunSweep();
  ASSERT_TRUE(Idle());
  EXPECT_FALSE(base->isVisible());
  EXPECT_EQ(chart().series[1].color, full);
  EXPECT_EQ(chart().subject, QStringList{"freekv, a100-40gb, from small.kvt"});

  // The value swept may be any; another method makes the curve one of the method before.
  request.params["budget"] = "1536";
  ASSERT_TRUE(Predicted([&] { window_->SetRequest(request); }));
  EXPECT_FALSE(base->isVisible());
  request.method = "full";
  request.params.clear();
  ASSERT_TRUE(Predicted([&] { window_->SetRequest(request); }));
  EXPECT_TRUE(base->isVisible());
  EXPECT_EQ(chart().series.size(), 2u) << "it stays, pale";

  // The same in another trace.
  request.method = "freekv";
  ASSERT_TRUE(Predicted([&] { window_->SetRequest(request); }));
  EXPECT_FALSE(base->isVisible());
  sim::WriteSmallTrace(Path("other.kvt").toStdString());
  window_->Open({Path("other.kvt")});
  ASSERT_TRUE(Idle());
  EXPECT_TRUE(base->isVisible());
}

TEST_F(WindowView, MeasuredBesidePredictedGivesResiduals) {
  OpenSmall();
  traces::Timeline measured = window_->result()->model->timeline();
  measured.origin = traces::Timeline::Origin::kMeasured;
  for (auto& duration : measured.duration) duration = duration * 9 / 10;
  WriteTimeline(Path("measured.kvt"), measured);
  QMimeData files;
  files.setUrls({QUrl::fromLocalFile(Path("measured.kvt"))});
  QDragEnterEvent enter(QPoint(20, 20), Qt::CopyAction, &files, Qt::LeftButton, Qt::NoModifier);
  QApplication::sendEvent(window_.get(), &enter);
  EXPECT_TRUE(enter.isAccepted());
  QDropEvent drop(QPointF(20, 20), Qt::CopyAction, &files, Qt::LeftButton, Qt::NoModifier);
  QApplication::sendEvent(window_.get(), &drop);
  ASSERT_TRUE(Idle());
  ASSERT_NE(window_->timeline().pair(), nullptr);
  EXPECT_GT(window_->timeline().pair()->matched(), 100);
  // As if a recorder had slowed it; what that costs is predicted when asked for.
  EXPECT_TRUE(CaveatNames().contains(QStringLiteral("recorded")));
  const double unrecorded = Step();
  auto* recorded = In<QCheckBox>("machine.host.recorded");
  ASSERT_NE(recorded, nullptr);
  ASSERT_TRUE(Predicted([&] { recorded->click(); }));
  EXPECT_GT(Step(), unrecorded);
  EXPECT_FALSE(CaveatNames().contains(QStringLiteral("recorded")));
  ASSERT_TRUE(Predicted([&] { recorded->click(); }));
  window_->ShowChart(ChartsPanel::Kind::kResiduals);
  ASSERT_TRUE(Idle());
  const Chart& chart = window_->charts().view().chart();
  ASSERT_EQ(chart.series.size(), 2u);
  for (const BoxMark::Five& box : std::get<BoxMark>(chart.series[1].mark).boxes) {
    if (box.count > 0) {
      EXPECT_NEAR(box.p50, 100.0 / 9, 0.5);
    }
  }
  // The first box opens the histogram of its kind.
  const ChartGeometry& geometry = window_->charts().view().geometry_of_chart();
  ASSERT_FALSE(geometry.rects.empty());
  QTest::mouseDClick(&window_->charts().view(), Qt::LeftButton, Qt::NoModifier,
                     geometry.rects[0].rect.center().toPoint());
  EXPECT_TRUE(
      std::holds_alternative<HistogramMark>(window_->charts().view().chart().series.at(0).mark));
}

class RecordingAloneView : public WindowView {
 protected:
  // Opens it as if a run of these values, on a trace of this name, had been recorded.
  void OpenRecording(const QString& path, const std::string& trace) {
    OpenSmall();
    sim::PredictRequest request;
    request.params["budget"] = "1536";
    request.batch = 2;
    request.steps = 5;
    request.context = 2000;
    ASSERT_TRUE(Predicted([&] { window_->SetRequest(request); }));
    traces::Timeline timeline = window_->result()->model->timeline();
    timeline.origin = traces::Timeline::Origin::kMeasured;
    traces::proto::TraceInfo info;
    if (!trace.empty()) sim::SetRun({request, trace}, &info);
    WriteTimeline(path, timeline, info);
    window_->commands().Find("close_files")->trigger();
    window_->SetRequest({});
    EXPECT_FALSE(button().isVisible());
    window_->Open({path});
    ASSERT_TRUE(Idle());
    EXPECT_EQ(window_->timeline().pair()->model(Side::kPredicted), nullptr);
  }
  QToolButton& button() {
    return *window_->findChild<QToolButton*>(QStringLiteral("predict_recording"));
  }
  void ExpectPredicted() {
    ASSERT_NE(window_->result(), nullptr);
    const sim::PredictRequest& request = window_->result()->request;
    EXPECT_EQ(request.params.at("budget"), "1536");
    EXPECT_EQ(request.batch, 2);
    const TimelinePair& pair = *window_->timeline().pair();
    ASSERT_TRUE(pair.both());
    EXPECT_GT(pair.matched(), 100);
    EXPECT_EQ(pair.unlike(), 0);
    EXPECT_EQ(pair.model(Side::kPredicted)->rows(), pair.model(Side::kMeasured)->rows());
    EXPECT_TRUE(In<QCheckBox>("machine.host.recorded")->isChecked()) << "it was recorded";
    EXPECT_FALSE(button().isVisible());
  }
};

TEST_F(RecordingAloneView, IsPredictedByAClick) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording(Path("measured.kvt"), "/elsewhere/small.kvt"));
  ASSERT_TRUE(button().isVisible());
  ASSERT_TRUE(Predicted([&] { QTest::mouseClick(&button(), Qt::LeftButton); }))
      << "its trace lies beside it";
  ExpectPredicted();
  EXPECT_TRUE(window_->messages().messages().isEmpty());
}

TEST_F(RecordingAloneView, IsPredictedAtOnceBesideItsTrace) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording(Path("measured.kvt"), "/elsewhere/small.kvt"));
  for (const QStringList& paths : {QStringList{Path("small.kvt"), Path("measured.kvt")},
                                   QStringList{Path("measured.kvt"), Path("small.kvt")}}) {
    Start();
    window_->Open(paths);
    ASSERT_TRUE(Idle());
    ExpectPredicted();
  }
}

TEST_F(RecordingAloneView, DoesNotChangeWhatWasAskedFor) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording(Path("measured.kvt"), "/elsewhere/small.kvt"));
  sim::PredictRequest request;
  request.params["budget"] = "1280";
  window_->SetRequest(request);
  window_->Open({Path("small.kvt")});
  ASSERT_TRUE(Idle());
  ASSERT_NE(window_->result(), nullptr);
  EXPECT_EQ(window_->result()->request.params.at("budget"), "1280");
}

TEST_F(RecordingAloneView, AsksForATraceThatIsNotThere) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording(Path("measured.kvt"), "/elsewhere/gone.kvt"));
  QString asked;
  QTimer::singleShot(0, window_.get(), [&] {
    auto* dialog = qobject_cast<QFileDialog*>(QApplication::activeModalWidget());
    ASSERT_NE(dialog, nullptr);
    asked = dialog->windowTitle();
    dialog->findChild<QLineEdit*>(QStringLiteral("fileNameEdit"))->setText(Path("small.kvt"));
    QMetaObject::invokeMethod(dialog, "accept");
  });
  ASSERT_TRUE(Predicted([&] { QTest::keyClick(window_.get(), Qt::Key_R, Qt::ControlModifier); }));
  EXPECT_THAT(asked.toStdString(), HasSubstr("gone.kvt"));
  ExpectPredicted();
}

TEST_F(RecordingAloneView, SaysWhatItDoesNotTell) {
  ASSERT_NO_FATAL_FAILURE(OpenRecording(Path("measured.kvt"), ""));
  QTest::mouseClick(&button(), Qt::LeftButton);
  ASSERT_TRUE(Idle());
  ASSERT_EQ(window_->messages().messages().size(), 1);
  EXPECT_THAT(window_->messages().messages()[0].toStdString(), HasSubstr("holds no method"));
  EXPECT_EQ(window_->result(), nullptr);
}

TEST_F(WindowView, ExportedTimelineKeepsItsWaits) {
  OpenSmall();
  const auto waits = static_cast<size_t>(window_->result()->model->ops().flows());
  ASSERT_GT(waits, 0u);
  for (const char* name : {"shown.kvt", "shown.pftrace", "shown.json"}) {
    window_->ExportTimelineTo(Path(name));
    const traces::Trace written = traces::Import(Path(name).toStdString(), {}).trace;
    ASSERT_EQ(written.timelines.size(), 1u) << name;
    EXPECT_EQ(written.timelines[0].rows(), window_->result()->model->rows()) << name;
    EXPECT_EQ(written.timelines[0].flows.size(), waits) << name;
  }
  EXPECT_EQ(traces::ReadTrace(Path("shown.kvt").toStdString()).info.model().name(), "small");
}

TEST_F(WindowView, ExportThatFailsLeavesTheFormerFile) {
  EXPECT_THROW(window_->ExportTimelineTo(Path("none.json")), Error);
  EXPECT_FALSE(QFile::exists(Path("none.json")));
  OpenSmall();
  EXPECT_THROW(window_->ExportTimelineTo(Path("shown.doc")), Error);
  window_->ExportTimelineTo(Path("shown.json"));
  const auto size = QFileInfo(Path("shown.json")).size();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto on_signal = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = static_cast<rlim_t>(size / 2), .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);  // as if the disk were full
  EXPECT_THROW(window_->ExportTimelineTo(Path("shown.json")), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, on_signal);
  EXPECT_EQ(QFileInfo(Path("shown.json")).size(), size);
}

TEST_F(WindowView, SessionComesBack) {
  OpenSmall();
  traces::Timeline measured = window_->result()->model->timeline();
  measured.origin = traces::Timeline::Origin::kMeasured;
  WriteTimeline(Path("measured.kvt"), measured);
  window_->Open({Path("measured.kvt")});
  QTest::keyClick(window_.get(), Qt::Key_2, Qt::ControlModifier);  // pin B
  ASSERT_TRUE(Predicted([&] {
    sim::PredictRequest request = window_->whatif().request();
    request.batch = 2;
    request.params["budget"] = "1536";
    request.machine_overrides = {{"link.h2d", "100GB/s"}};
    window_->SetRequest(request);
  }));
  window_->ShowChart(ChartsPanel::Kind::kUnits);
  QTest::keyClick(window_.get(), Qt::Key_2, Qt::ControlModifier | Qt::AltModifier);  // its ghost
  window_->timeline().ShowStep(3);
  const AxisRange visible = window_->timeline().visible();
  const double step = Step();
  window_->SaveSessionTo(Path("run.stallcast"));

  Start();
  window_->Open({Path("run.stallcast")});
  ASSERT_TRUE(Idle());
  ASSERT_NE(window_->result(), nullptr);
  EXPECT_EQ(Step(), step);
  EXPECT_EQ(window_->whatif().request().batch, 2);
  EXPECT_EQ(window_->whatif().request().params.at("budget"), "1536");
  EXPECT_EQ(window_->charts().kind(), ChartsPanel::Kind::kUnits);
  EXPECT_TRUE(window_->commands().Find(Name(Ghost::kPinB))->isChecked());
  ASSERT_NE(window_->comparison().pinned(Pin::kB), nullptr);
  EXPECT_EQ(window_->comparison().pinned(Pin::kB)->request.batch, 1);
  EXPECT_EQ(window_->comparison().pinned(Pin::kA), nullptr);
  EXPECT_NE(window_->timeline().pair()->model(Side::kMeasured), nullptr);
  EXPECT_NEAR(Seconds(window_->timeline().visible().length()), Seconds(visible.length()),
              Seconds(visible.length()) * 0.02);
}

TEST_F(WindowView, SessionOfAPredictionAloneComesBackToItsView) {
  OpenSmall();
  window_->timeline().ShowStep(3);
  const AxisRange visible = window_->timeline().visible();
  window_->SaveSessionTo(Path("run.stallcast"));
  Start();
  window_->Open({Path("run.stallcast")});
  ASSERT_TRUE(Idle());
  EXPECT_EQ(window_->timeline().visible(), visible);
}

TEST_F(WindowView, BadFilesAreToldAndTheProgramGoesOn) {
  const auto write = [&](const char* name, const QByteArray& bytes) {
    QFile file(Path(name));
    ASSERT_TRUE(file.open(QIODevice::WriteOnly));
    file.write(bytes);
  };
  QFile whole(Path("small.kvt"));
  ASSERT_TRUE(whole.open(QIODevice::ReadOnly));
  const QByteArray bytes = whole.readAll();
  write("cut.kvt", bytes.left(bytes.size() * 2 / 3));
  write("noise.kvt", QByteArray(3000, 'x'));
  write("empty.json", {});
  write("no.stallcast", "{\"files\": [3]}");
  write("newer.stallcast", "{\"stallcast_session\": 99}");
  write("wrong.stallcast", "{\"stallcast_session\": 1, \"request\": {\"batch\": -1}}");
  window_->Open({Path("absent.kvt"), Path("noise.kvt"), Path("empty.json"), Path("no.stallcast"),
                 Path("newer.stallcast"), Path("wrong.stallcast"), folder_.path()});
  ASSERT_TRUE(Idle());
  const std::string told = window_->messages().messages().join('\n').toStdString();
  for (const char* name :
       {"absent.kvt", "noise.kvt", "empty.json", "no.stallcast", "newer.stallcast"}) {
    EXPECT_THAT(told, HasSubstr(name));
  }
  EXPECT_THAT(told, HasSubstr("batch"));
  EXPECT_EQ(window_->files().files().size(), 0u);

  window_->Open({Path("cut.kvt")});
  ASSERT_TRUE(Idle());
  EXPECT_THAT(window_->messages().messages().join('\n').toStdString(), HasSubstr("truncated"));
  EXPECT_TRUE(CaveatNames().contains(QStringLiteral("truncated")) || window_->result() == nullptr);
  QTest::keyClick(window_.get(), Qt::Key_D, Qt::ControlModifier);
  EXPECT_FALSE(window_->messages().isVisible());
  OpenSmall();
  EXPECT_TRUE(CaveatNames().contains(QStringLiteral("synthetic")));
}

TEST_F(WindowView, DamagedCorpusNeverStopsTheWindow) {
  const QDir corpus(Source("tests/traces/corpus"));
  for (const QString& name : corpus.entryList({QStringLiteral("*.kvt")})) {
    window_->Open({corpus.filePath(name)});
  }
  ASSERT_TRUE(Idle());
  const QAbstractItemModelTester tester(&window_->files(),
                                        QAbstractItemModelTester::FailureReportingMode::Fatal);
  EXPECT_GT(window_->files().files().size(), 5u);
  EXPECT_FALSE(window_->messages().messages().isEmpty());
  auto* tree = window_->findChild<QTreeView*>();
  for (QModelIndex i = tree->indexAt({2, 2}); i.isValid(); i = tree->indexBelow(i)) {
    tree->setCurrentIndex(i);
    QTest::keyClick(tree, Qt::Key_Return);
    ASSERT_TRUE(Idle());
  }
}

TEST_F(WindowView, FilesModelKeepsTheRules) {
  FilesModel model;
  const QAbstractItemModelTester tester(&model,
                                        QAbstractItemModelTester::FailureReportingMode::Fatal);
  auto file = std::make_shared<OpenedFile>();
  file->path = QStringLiteral("/a.kvt");
  file->timelines = {TimelineModel::Build(RandomTimeline(1, 50))};
  file->report.problems = {"truncated"};
  EXPECT_EQ(model.Add(file), 0u);
  auto other = std::make_shared<OpenedFile>(*file);
  other->path = QStringLiteral("/b.kvt");
  EXPECT_EQ(model.Add(other), 1u);
  const QModelIndex timeline = model.IndexOf({FilesModel::Kind::kTimeline, 1, 0});
  ASSERT_TRUE(timeline.isValid());
  EXPECT_EQ(model.ItemAt(timeline).file, 1u);
  model.SetShown({timeline});
  EXPECT_TRUE(timeline.data(Qt::FontRole).value<QFont>().bold());
  auto again = std::make_shared<OpenedFile>();
  again->path = file->path;
  EXPECT_EQ(model.Add(again), 0u) << "a file that is open already keeps its place";
  EXPECT_EQ(model.rowCount(model.index(0, 0)), 0);
  model.Clear();
  EXPECT_EQ(model.rowCount(), 0);
}

TEST_F(WindowView, NothingIsCutInASmallWindow) {
  window_->resize(800, 560);
  OpenSmall();
  QTest::qWait(50);
  EXPECT_LE(window_->width(), 800);
  EXPECT_LE(window_->height(), 560);
  for (const QWidget* widget : window_->whatif().findChildren<QWidget*>()) {
    if (!widget->isVisible() || !widget->parentWidget()->isVisible()) continue;
    const QRect parent = widget->parentWidget()->rect();
    EXPECT_TRUE(widget->x() >= 0 && widget->geometry().right() <= parent.right())
        << widget->metaObject()->className() << " " << widget->objectName().toStdString();
  }
}

TEST_F(WindowView, ComesBackAsItWasClosed) {
  window_->resize(700, 500);
  window_->findChild<QDockWidget*>(QStringLiteral("files"))->hide();
  window_->commands().Find(QStringLiteral("dark"))->trigger();
  window_->close();
  Start();
  window_->RestoreLayout(/*with_size=*/true, /*with_theme=*/true);
  EXPECT_EQ(window_->size(), QSize(700, 500));
  EXPECT_TRUE(window_->findChild<QDockWidget*>(QStringLiteral("files"))->isHidden());
  EXPECT_TRUE(IsDark(QApplication::palette()));
  window_->commands().Find(QStringLiteral("reset_layout"))->trigger();
  EXPECT_FALSE(window_->findChild<QDockWidget*>(QStringLiteral("files"))->isHidden());
}

TEST_F(WindowView, FirstSizeFitsTheScreen) {
  const QSize screen = window_->screen()->availableSize();
  EXPECT_LE(window_->sizeHint().width(), screen.width());
  EXPECT_LE(window_->sizeHint().height(), screen.height());
}

TEST_F(WindowView, RecentFilesAreKept) {
  OpenSmall();
  QTest::keyClick(window_.get(), Qt::Key_O, Qt::ControlModifier | Qt::ShiftModifier);
  auto* menu = window_->findChild<QMenu*>(QStringLiteral("recent"));
  ASSERT_NE(menu, nullptr);
  EXPECT_EQ(menu->actions().at(0)->text(), Path("small.kvt"));
  menu->close();
}

class Program : public testing::Test {
 protected:
  int Run(const QStringList& arguments) {
    QProcess process;
    process.setProcessChannelMode(QProcess::MergedChannels);
    process.start(QStringLiteral(STALLCAST_GUI), arguments);
    EXPECT_TRUE(process.waitForFinished(120'000));
    output_ = process.readAll().toStdString();
    return process.exitCode();
  }
  QTemporaryDir folder_;
  std::string output_;
};

TEST_F(Program, DrawsItselfWithoutAScreen) {
  const QString picture = folder_.filePath(QStringLiteral("a.png"));
  ASSERT_EQ(Run({"--screenshot", picture, "--size", "900x600", "--scale", "2", "--theme", "dark"}),
            0)
      << output_;
  const QImage image(picture);
  EXPECT_EQ(image.size(), QSize(1800, 1200));
  EXPECT_LT(image.pixelColor(5, 300).lightness(), 100);
  EXPECT_EQ(output_, "");
}

TEST_F(Program, SaysWhatIsWrong) {
  EXPECT_EQ(Run({"--size", "9x9", "--screenshot", "a.png"}), 2);
  EXPECT_THAT(output_, HasSubstr("--size"));
  EXPECT_EQ(Run({"--chart", "pie", "--screenshot", "a.png"}), 2);
  EXPECT_THAT(output_, HasSubstr("residuals"));
  EXPECT_EQ(Run({"--screenshot", "/nowhere/a.png", "--size", "400x300"}), 1);
  EXPECT_THAT(output_, HasSubstr("/nowhere/a.png"));
}

TEST_F(Program, SaysWhichFilesItCouldNotOpen) {
  const QString picture = folder_.filePath(QStringLiteral("a.png"));
  const QString noise = folder_.filePath(QStringLiteral("noise.kvt"));
  QFile file(noise);
  ASSERT_TRUE(file.open(QIODevice::WriteOnly));
  file.write(QByteArray(3000, 'x'));
  file.close();
  EXPECT_EQ(Run({"--screenshot", picture, "--size", "400x300", noise, "absent.kvt"}), 1);
  EXPECT_THAT(output_, HasSubstr("noise.kvt"));
  EXPECT_THAT(output_, HasSubstr("absent.kvt"));
  EXPECT_TRUE(QFile::exists(picture)) << "with what could be opened, and the message";
}

}  // namespace
}  // namespace stallcast::gui
