// SPDX-License-Identifier: GPL-3.0-or-later
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <QApplication>
#include <QLineEdit>
#include <QSlider>
#include <QTemporaryDir>
#include <QTest>
#include <QToolButton>
#include <QWheelEvent>
#include <atomic>
#include <cmath>
#include <future>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "gui/whatif/control.h"
#include "gui/whatif/control_row.h"
#include "gui/whatif/latest_job.h"
#include "gui/whatif/number_box.h"
#include "gui/whatif/prediction_worker.h"
#include "gui/whatif/request_json.h"
#include "gui/whatif/whatif_panel.h"
#include "models/hardware/profile.h"
#include "sim/names.h"
#include "tests/sim/small_trace.h"
#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

using testing::HasSubstr;

traces::proto::TraceInfo Info() {
  traces::proto::TraceInfo info;
  info.mutable_model()->set_name("tiny");
  info.set_prompt_tokens(8192);
  info.set_decode_steps(100);
  return info;
}

const Control& Of(const std::vector<Control>& controls, std::string_view path) {
  for (const Control& control : controls) {
    if (control.path == path) return control;
  }
  throw std::out_of_range(std::string(path));
}

TEST(Controls, CoverWhatMethodsAndMachinesDeclare) {
  for (const std::string& method : sim::MethodNames()) {
    sim::PredictRequest request;
    request.method = method;
    const auto controls = Controls(request, Info());
    size_t params = 0, machine = 0;
    for (const Control& control : controls) {
      params += control.path.starts_with("param.") ? 1 : 0;
      machine += control.path.starts_with("machine.") ? 1 : 0;
      EXPECT_FALSE(control.help.isEmpty()) << control.path;
      // The default is a value like any other.
      sim::PredictRequest changed = request;
      EXPECT_NO_THROW(control.write(changed, control.default_value.toStdString())) << control.path;
      control.write(changed, std::nullopt);
      EXPECT_EQ(control.read(changed), std::nullopt) << control.path;
    }
    EXPECT_EQ(params, methods::MakeMethod(method, {}).info->params.size()) << method;
    EXPECT_EQ(machine, hardware::ProfileFields().size() +
                           hardware::KernelKinds().size() * hardware::KernelFields().size());
  }
}

TEST(Controls, SlidersGiveValuesThatPeopleChoose) {
  const auto controls = Controls({}, Info());
  const Control& budget = Of(controls, "param.budget");
  for (int i = 0; i <= 1000; ++i) {
    const double value = budget.AtShare(i / 1000.0);
    EXPECT_EQ(std::fmod(value, 32), 0) << "whole pages";
    EXPECT_NEAR(budget.ShareOf(value), i / 1000.0, 0.05);
  }
  EXPECT_EQ(budget.AtShare(budget.ShareOf(2048)), 2048);
  for (const Control& control : controls) {
    if (control.kind != Control::Kind::kNumber) continue;
    double before = -1;
    for (int i = 0; i <= 200; ++i) {
      const double value = control.AtShare(i / 200.0);
      EXPECT_GE(value, before * (1 - 1e-12)) << control.path;  // "100 ns" and "0.1 us" are one
      before = value;
      EXPECT_NO_THROW(control.parse(control.format(value))) << control.path << " " << value;
    }
  }
}

TEST(Controls, ErrorsAreAssignedToTheControlThatTheyName) {
  const auto controls = Controls({}, Info());
  EXPECT_EQ(Culprit(Error("a budget of 3 is too small", "freekv", "raise it"), controls, "batch"),
            "param.budget");
  EXPECT_EQ(Culprit(Error("senseless", "link.both_h2d", "change it"), controls, ""),
            "machine.link.both_h2d");
  EXPECT_EQ(Culprit(Error("no such thing", "elsewhere", "change it"), controls, "batch"), "batch");
  EXPECT_EQ(Culprit(Error("no such thing", "elsewhere", "change it"), controls, ""), "");
  EXPECT_EQ(Culprit(Error("sink and window exceed the budget", "freekv", "lower them"), controls,
                    "param.window"),
            "param.window")
      << "of those named, the one that was moved";
}

TEST(Controls, MethodKeepsParametersThatTheNewOneHas) {
  sim::PredictRequest request;
  request.params = {{"budget", "4096"}, {"tau", "0.5"}};
  ChangeMethod(request, "quest");
  EXPECT_EQ(request.params, (methods::ParamValues{{"budget", "4096"}}));
  EXPECT_THROW(ChangeMethod(request, "nothing"), Error);
}

TEST(Controls, MethodDropsValuesThatTheNewOneRefuses) {
  sim::PredictRequest request;
  request.method = "louiskv";
  request.params = {{"tau", "-0.5"}, {"window", "256"}};
  ChangeMethod(request, "freekv");
  EXPECT_EQ(request.params, (methods::ParamValues{{"window", "256"}}));
}

TEST(Controls, NumberOfAValueThatDoesNotParseIsTheDefault) {
  sim::PredictRequest request;
  request.params = {{"budget", "4096"}};
  const auto controls = Controls(request, Info());
  EXPECT_EQ(Of(controls, "param.budget").Number(request), 4096);
  request.params = {{"budget", "abc"}};
  EXPECT_EQ(Of(controls, "param.budget").Number(request), 2048);
}

TEST(RequestJson, ComesBack) {
  sim::PredictRequest request;
  request.method = "quest";
  request.model = "llama-3.1-8b";
  request.machine = "a100-40gb";
  request.batch = 4;
  request.context = 65536;
  request.steps = 12;
  request.tensor_parallel = 2;
  request.host = plan::Host::kGraph;
  request.params = {{"budget", "4096"}};
  request.machine_overrides = {{"link.h2d", "100GB/s"}, {"host.launch", "2us"}};
  const sim::PredictRequest back = RequestFromJson(ToJson(request));
  EXPECT_EQ(ToJson(back), ToJson(request));
  EXPECT_EQ(back.machine_overrides, request.machine_overrides);
  EXPECT_EQ(back.context, 65536);
  for (const char* wrong : {"batch", "context", "steps"}) {
    for (const QJsonValue& value : {QJsonValue(-1), QJsonValue(1.5), QJsonValue("x"),
                                    QJsonValue(1e300), QJsonValue(QJsonValue::Null)}) {
      EXPECT_THROW(RequestFromJson({{wrong, value}}), Error);
    }
  }
  EXPECT_THROW(RequestFromJson({{"method", 3}}), Error);
}

// Ends a job only when it is asked to stop.
void AwaitStop(const std::stop_token& stop) {
  while (!stop.stop_requested()) std::this_thread::yield();
}

void TellNobody(const Error&) {}

TEST(LatestJob, RunsTheLastAndStopsTheOthers) {
  std::atomic<int> begun = 0, stopped = 0;
  std::promise<void> ran;
  LatestJob jobs;
  const auto job = [&](const std::stop_token& stop) {
    ++begun;
    AwaitStop(stop);
    ++stopped;
  };
  jobs.Run(job, TellNobody);
  while (begun == 0) std::this_thread::yield();
  for (int i = 0; i < 49; ++i) jobs.Run(job, TellNobody);
  jobs.Run([&](const std::stop_token&) { ran.set_value(); }, TellNobody);
  ASSERT_EQ(ran.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_EQ(stopped, begun) << "each that began was stopped";
  EXPECT_LT(begun, 50) << "those that waited behind it were replaced";
}

TEST(LatestJob, StopsTheOneUnderWayWhenItGoes) {
  std::atomic<bool> begun = false, stopped = false;
  {
    LatestJob jobs;
    jobs.Run(
        [&](const std::stop_token& stop) {
          begun = true;
          AwaitStop(stop);
          stopped = true;
        },
        TellNobody);
    while (!begun) std::this_thread::yield();
  }
  EXPECT_TRUE(stopped);
}

TEST(LatestJob, FailuresAreToldAndTheNextJobRuns) {
  std::vector<std::string> told;
  std::promise<void> ran;
  {
    LatestJob jobs;
    const auto fail = [&](const std::function<void()>& thrown) {
      std::promise<void> done;
      jobs.Run([&](const std::stop_token&) { thrown(); },
               [&](const Error& error) {
                 told.push_back(error.problem());
                 done.set_value();
               });
      done.get_future().wait();
    };
    fail([] { throw Error("cut", "file", "record again"); });
    fail([] { throw std::bad_alloc(); });
    fail([] { throw std::logic_error("no such layer"); });
    fail([] { throw 3; });
    jobs.Run([&](const std::stop_token&) { ran.set_value(); }, TellNobody);
    ran.get_future().wait();
  }
  EXPECT_THAT(told, testing::ElementsAre("cut", "there is not enough memory", "no such layer",
                                         "an unknown failure"));
}

TEST(LatestJob, NobodyIsToldOfAJobThatWasStopped) {
  std::atomic<bool> begun = false, told = false;
  {
    LatestJob jobs;
    jobs.Run(
        [&](const std::stop_token& stop) {
          begun = true;
          AwaitStop(stop);
          throw std::runtime_error("stopped");
        },
        [&](const Error&) { told = true; });
    while (!begun) std::this_thread::yield();
  }
  EXPECT_FALSE(told);
}

class WorkerTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(folder_.isValid());
    const std::string trace = Path("small.kvt");
    sim::WriteSmallTrace(trace);
    worker_.SetPredictor(std::make_shared<sim::Predictor>(trace));
    QObject::connect(&worker_, &PredictionWorker::Predicted, &worker_,
                     [this](const SharedResult& result) { predicted_ = result; });
    QObject::connect(&worker_, &PredictionWorker::Refined, &worker_,
                     [this](const SharedResult& result) { refined_ = result; });
  }
  std::string Path(const char* name) const {
    return folder_.filePath(QLatin1String(name)).toStdString();
  }
  SharedResult Predict(const sim::PredictRequest& request) {
    predicted_ = refined_ = nullptr;
    worker_.Predict(request);
    EXPECT_TRUE(QTest::qWaitFor([&] { return refined_ != nullptr; }, 60'000));
    return predicted_;
  }
  static sim::PredictRequest OfBatch(int32_t batch) {
    sim::PredictRequest request;
    request.batch = batch;
    return request;
  }

  QTemporaryDir folder_;
  SharedResult predicted_, refined_;
  PredictionWorker worker_;
};

TEST_F(WorkerTest, KeepsTheLastPredictionsAndNoMore) {
  const SharedResult first = Predict(OfBatch(1));
  const SharedResult of_first = refined_;
  const SharedResult second = Predict(OfBatch(2));
  EXPECT_EQ(Predict(OfBatch(1)), first);
  EXPECT_EQ(refined_, of_first);
  for (int32_t batch = 3; batch <= 9; ++batch) Predict(OfBatch(batch));
  EXPECT_EQ(Predict(OfBatch(1)), first) << "used after the second";
  EXPECT_NE(Predict(OfBatch(2)), second);
  worker_.SetPredictor(std::make_shared<sim::Predictor>(Path("small.kvt")));
  EXPECT_NE(Predict(OfBatch(1)), first) << "the trace may be another";
}

TEST_F(WorkerTest, WhatWasNotRefinedYetIsRefinedLater) {
  worker_.Predict(OfBatch(1));
  ASSERT_TRUE(QTest::qWaitFor([&] { return predicted_ != nullptr; }, 60'000));
  const SharedResult first = predicted_;
  worker_.Predict(OfBatch(2));
  EXPECT_EQ(Predict(OfBatch(1)), first);
  EXPECT_TRUE(refined_->prediction.sampled);
  EXPECT_FALSE(worker_.busy());
}

TEST_F(WorkerTest, AnEditedMachineIsPredictedAnew) {
  sim::PredictRequest request;
  request.machine = Path("mine.toml");
  hardware::Profile machine = hardware::FindProfile("h200");
  hardware::SaveProfile(machine, request.machine);
  const SharedResult before = Predict(request);
  hardware::Set(machine, "memory.bandwidth", "1TB/s");
  QTest::qWait(20);  // clocks of files are coarse
  hardware::SaveProfile(machine, request.machine);
  EXPECT_GT(Predict(request)->prediction.metrics.step_mean, before->prediction.metrics.step_mean);
}

class PanelView : public testing::Test {
 protected:
  void SetUp() override {
    panel_.SetTrace(Info());
    panel_.resize(320, 700);
    panel_.show();
    QObject::connect(&panel_, &WhatIfPanel::Changed, &panel_,
                     [this](const sim::PredictRequest& request) {
                       changed_ = request;
                       ++changes_;
                     });
  }
  NumberBox* Number(const char* path) { return panel_.row(path)->findChild<NumberBox*>(); }

  WhatIfPanel panel_;
  sim::PredictRequest changed_;
  int changes_ = 0;
};

TEST_F(PanelView, KeysStepANumber) {
  NumberBox* budget = Number("param.budget");
  budget->setFocus();
  QTest::keyClick(budget, Qt::Key_Up);
  EXPECT_EQ(changes_, 1);
  EXPECT_GT(std::stoi(changed_.params.at("budget")), 2048);
  EXPECT_EQ(budget->text().toStdString(), changed_.params.at("budget"));
  EXPECT_FALSE(panel_.row("param.budget")->is_default());
  QTest::keyClick(budget, Qt::Key_Down);
  QTest::keyClick(budget, Qt::Key_Down);
  EXPECT_LT(std::stoi(changed_.params.at("budget")), 2048);
}

TEST_F(PanelView, TypedQuantitiesTakeUnits) {
  NumberBox* link = Number("machine.link.h2d");
  link->selectAll();
  QTest::keyClicks(link, QStringLiteral("128GB/s"));
  EXPECT_EQ(changes_, 0) << "half a number is not predicted";
  QTest::keyClick(link, Qt::Key_Return);
  EXPECT_EQ(changes_, 1);
  ASSERT_EQ(changed_.machine_overrides.size(), 1u);
  EXPECT_EQ(changed_.machine_overrides[0].second, "128GB/s");
  QTest::keyClick(link, Qt::Key_Return);
  EXPECT_EQ(changes_, 1) << "the same again is no change";
}

TEST_F(PanelView, WrongValuesChangeNothingAndSayWhy) {
  NumberBox* tau = Number("param.tau");
  tau->selectAll();
  QTest::keyClicks(tau, QStringLiteral("1.5"));
  QTest::keyClick(tau, Qt::Key_Return);
  EXPECT_EQ(changes_, 0);
  EXPECT_THAT(panel_.row("param.tau")->error().toStdString(), HasSubstr("0 to 1"));
  EXPECT_TRUE(panel_.request().params.empty());
}

TEST_F(PanelView, ErrorInAFoldedGroupUnfoldsIt) {
  EXPECT_FALSE(panel_.row("machine.host.launch")->isVisible());
  panel_.ShowError(Error("too slow", "host.launch", "use less"));
  EXPECT_TRUE(panel_.row("machine.host.launch")->isVisible());
  EXPECT_EQ(panel_.row("machine.host.launch")->error(), "too slow; use less");
}

TEST_F(PanelView, KernelsAreFoundBySearchAndChanged) {
  const auto made = [&] { return panel_.findChildren<ControlRow*>().size(); };
  EXPECT_LT(made(), 40) << "rows of folded groups are not made";
  panel_.findChild<QLineEdit*>(QStringLiteral("search"))->setText(QStringLiteral("gemm fixed"));
  ControlRow* fixed = panel_.row("machine.kernel.gemm.fixed");
  ASSERT_NE(fixed, nullptr);
  EXPECT_TRUE(fixed->isVisible());
  EXPECT_LT(made(), 40) << "only those found were made";
  auto* slider = fixed->findChild<QSlider*>();
  slider->setValue(slider->maximum());
  ASSERT_EQ(changed_.machine_overrides.size(), 1u);
  EXPECT_EQ(changed_.machine_overrides[0].first, "kernel.gemm.fixed");
  EXPECT_FALSE(fixed->is_default());
  const auto headings = panel_.findChildren<QToolButton*>(QStringLiteral("heading"));
  const auto marked = std::count_if(headings.begin(), headings.end(), [](const QToolButton* h) {
    return h->text() == "Machine: kernels *" || h->text() == "gemm *";
  });
  EXPECT_EQ(marked, 2) << "headings tell that something below them was changed";
  panel_.Reset();
  EXPECT_TRUE(fixed->is_default());
}

TEST_F(PanelView, SearchShowsWhatFits) {
  panel_.FocusSearch();
  QTest::keyClicks(panel_.findChild<QLineEdit*>(QStringLiteral("search")),
                   QStringLiteral("launch kernel"));
  EXPECT_TRUE(panel_.row("machine.host.launch")->isVisible());
  EXPECT_FALSE(panel_.row("param.budget")->isVisible());
}

TEST_F(PanelView, UnknownMethodLeavesThePanelAsItWas) {
  sim::PredictRequest request;
  request.method = "nothing";
  EXPECT_THROW(panel_.SetRequest(request), Error);
  EXPECT_EQ(panel_.request().method, "freekv");
  EXPECT_NE(panel_.row("param.tau"), nullptr);
}

TEST_F(PanelView, WheelOverAControlScrollsThePanel) {
  auto* slider = panel_.row("batch")->findChild<QSlider*>();
  slider->clearFocus();
  const int before = slider->value();
  QWheelEvent wheel(QPointF(5, 5), slider->mapToGlobal(QPointF(5, 5)), {}, {0, -120}, Qt::NoButton,
                    Qt::NoModifier, Qt::NoScrollPhase, false);
  QApplication::sendEvent(slider, &wheel);
  EXPECT_EQ(slider->value(), before);
  EXPECT_EQ(changes_, 0);
}

}  // namespace
}  // namespace stallcast::gui
