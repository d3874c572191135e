// SPDX-License-Identifier: GPL-3.0-or-later
// From files, predictions and pins to what the parts of the window show.
#include <QDir>
#include <QFileInfo>
#include <QStatusBar>
#include <QToolButton>
#include <algorithm>

#include "gui/app/caveat_banner.h"
#include "gui/app/main_window.h"
#include "gui/timeline/timeline_view.h"
#include "gui/whatif/replay_panel.h"
#include "gui/whatif/summary_card.h"
#include "gui/whatif/whatif_panel.h"
#include "models/hardware/profile.h"
#include "sim/recorded_run.h"
#include "traces/common/shipped.h"
#include "traces/samples.h"

namespace stallcast::gui {
namespace {

Picoseconds Span(const TimelineModel::Step& step) { return step.end - step.begin; }

// Not the host's calls alone, which are timed without a recorder.
bool HoldsDevice(const traces::Timeline& timeline) {
  return std::ranges::any_of(timeline.lanes, [](const traces::TimelineLane& lane) {
    return lane.kind != traces::LaneKind::kHost;
  });
}

// Whether what recording costs could be predicted, and is not.
bool LeavesRecordingOut(const sim::PredictRequest& request) {
  if (std::ranges::any_of(request.machine_overrides,
                          [](const auto& o) { return o.first == "host.recorded"; })) {
    return false;
  }
  try {
    return hardware::FindProfile(request.machine).recorder.launch > 0;
  } catch (const Error&) {  // its file has gone since
    return false;
  }
}

// Another prediction beside that of now.
struct Former {
  SharedResult result;
  QString name;
};

Former FormerOf(Ghost ghost, const SharedResult& before, const ComparisonModel& comparison) {
  switch (ghost) {
    case Ghost::kNone:
      break;
    case Ghost::kFormer:
      return {before, QStringLiteral("before")};
    case Ghost::kPinA:
      return {comparison.pinned(Pin::kA), QStringLiteral("pin A")};
    case Ghost::kPinB:
      return {comparison.pinned(Pin::kB), QStringLiteral("pin B")};
  }
  return {};
}

}  // namespace

void MainWindow::ShowSides() {
  // A file that was read again may hold fewer.
  for (auto* item : {&predicted_, &measured_}) {
    if (*item && !files_->Timeline(**item)) item->reset();
  }
  Model predicted = predicted_ ? files_->Timeline(*predicted_) : result_ ? result_->model : nullptr;
  const Model measured = measured_ ? files_->Timeline(*measured_) : nullptr;
  const bool alone = measured && !predicted && !trace_ &&
                     measured->timeline().origin != traces::Timeline::Origin::kPredicted;
  ReplayAlone(alone ? measured : nullptr);
  if (alone && replayed_) predicted = replayed_->model;
  Match(predicted, measured);
  charts_->SetSides(predicted, measured);
  if (!log_) charts_->SetLog(result_ ? result_->log : nullptr);
  std::vector<QModelIndex> shown;
  for (const auto& item : {predicted_, measured_, log_}) {
    if (item) shown.push_back(files_->IndexOf(*item));
  }
  if (!predicted_ && trace_) {
    for (size_t i = 0; i < files_->files().size(); ++i) {
      if (files_->files()[i] == trace_) {
        shown.push_back(files_->IndexOf({FilesModel::Kind::kTensors, i, 0}));
      }
    }
  }
  files_->SetShown(shown);
  bool holds_run = false;
  if (alone) {
    const SharedFile& recording = files_->files()[measured_->file];
    try {
      static_cast<void>(sim::RunOf(recording->info, recording->path.toStdString()));
      holds_run = true;
    } catch (const Error&) {
      // Of another program: there is no method to predict.
    }
  }
  predict_recording_->setVisible(holds_run);
  whatif_->setVisible(!alone && (trace_ || !measured));
  replay_->setVisible(alone && !unreplayable_);
  comparison_->SetMeasured(measured ? MeasuredFields(*measured) : std::map<std::string, double>());
  if (!trace_) ShowSummary();
  ShowGhost();
  ShowRuns();
  ShowCaveats();
  ShowTitle();
}

void MainWindow::Match(const Model& predicted, const Model& measured) {
  if (matched_ == std::array{predicted, measured}) return;
  matched_ = {predicted, measured};
  matching_ = true;
  const uint64_t ticket = ++match_ticket_;
  const auto match = [this, ticket, predicted, measured, before = timeline_->pair(),
                      replay = replayer_.recording() != nullptr](const std::stop_token&) {
    const auto pair = TimelinePair::Make({predicted}, {measured}, before.get(), replay);
    QMetaObject::invokeMethod(
        this,
        [this, ticket, pair] {
          if (ticket != match_ticket_) return;
          matching_ = false;
          const auto shown = timeline_->pair();
          const bool first =
              !shown || (!shown->model(Side::kPredicted) && !shown->model(Side::kMeasured));
          timeline_->SetPair(pair);
          if (first && !restoring_view_) timeline_->ShowTypicalStep();
          ShareHeight();
          ShowGhost();
          ShowCaveats();
          if (predicted_ || !trace_ || result_) RestoreView();
        },
        Qt::QueuedConnection);
  };
  match_job_.Run(match, [this, ticket](const Error& error) {
    const auto fail = [this, ticket, error] {
      if (ticket != match_ticket_) return;
      matching_ = false;
      Tell(error);
    };
    QMetaObject::invokeMethod(this, fail, Qt::QueuedConnection);
  });
}

void MainWindow::ShowGhost() {
  if (replayed_) {
    // Before the first change stands the recording, replayed.
    const bool shown = ghost_ == Ghost::kFormer && replayed_->model != nullptr;
    const bool changed = replayed_before_ && replayed_before_->model;
    const Model before = changed ? replayed_before_->model : replayed_->of->model;
    return timeline_->SetGhost(shown && before != replayed_->model ? before : nullptr,
                               changed ? QStringLiteral("before") : QStringLiteral("unchanged"));
  }
  const Former former = FormerOf(ghost_, former_, *comparison_);
  const bool shown = !predicted_ && former.result && former.result != result_;
  timeline_->SetGhost(shown ? former.result->model : nullptr, former.name);
}

// Compares with what the ghost shows; where it shows nothing, with pin A.
void MainWindow::ShowSummary() {
  if (failed_) {
    return summary_->ShowFailed(
        QStringLiteral("prediction"),
        QStringLiteral("These values cannot be predicted: %1").arg(*failed_));
  }
  if (replay_failed_) {
    return summary_->ShowFailed(
        QStringLiteral("replay"),
        QStringLiteral("These changes cannot be replayed: %1").arg(*replay_failed_));
  }
  if (replayed_) return summary_->ShowReplay(*replayed_, replayed_before_.get());
  if (!result_ && !trace_ && measured_ && !opener_.busy()) {
    return summary_->ShowMeasured(
        *files_->Timeline(*measured_),
        unreplayable_
            ? QStringLiteral("This recording cannot be replayed: it %1").arg(*unreplayable_)
            : QString());
  }
  if (!result_) {
    return opener_.busy() || refining_ ? summary_->ShowWaiting() : summary_->ShowNothing();
  }
  Former former = FormerOf(ghost_, former_, *comparison_);
  if (!former.result || former.result == result_) {
    former = FormerOf(Ghost::kPinA, former_, *comparison_);
  }
  if (former.result && former.result->trace != result_->trace) {
    former.name += QStringLiteral(" of %1").arg(QFileInfo(former.result->trace).fileName());
  }
  summary_->Show(result_->prediction, former.result ? &former.result->prediction : nullptr,
                 former.name);
}

void MainWindow::ShowCaveats() {
  Caveats caveats;
  if (predicted_) {
    caveats.AddNotes(files_->Timeline(*predicted_)->timeline().notes);
  } else if (result_) {
    caveats.AddNotes(result_->prediction.notes);
    if (failed_) caveats.AddFailed(*failed_);
  }
  if (measured_) {
    caveats.AddNotes(files_->Timeline(*measured_)->timeline().notes);
  }
  if (replayed_) {
    if (replayed_->model) caveats.AddNotes(replayed_->model->timeline().notes);
    caveats.AddNotes(replayed_->of->notes);
    if (replay_failed_) {
      caveats.AddNotes({"former changes: the timeline is of the changes before; " +
                        replay_failed_->toStdString()});
    }
  }
  // Of the files that the picture comes from.
  for (size_t i = 0; i < files_->files().size(); ++i) {
    const SharedFile& file = files_->files()[i];
    const auto from = [&](const std::optional<FilesModel::Item>& item) {
      return item && item->file == i;
    };
    if (from(predicted_) || from(measured_) || from(log_) || (!predicted_ && file == trace_)) {
      caveats.AddReport(file->report, QFileInfo(file->path).fileName());
      if (file->report.truncated && !file->timelines.empty()) caveats.AddCutStep();
      if (file->info.synthetic()) {
        caveats.AddNotes({"synthetic: the trace was not captured from a model"});
      }
    }
  }
  if (const auto& pair = timeline_->pair()) caveats.AddMatching(*pair);
  if (measured_ && !predicted_ && result_ &&
      HoldsDevice(files_->Timeline(*measured_)->timeline()) &&
      LeavesRecordingOut(result_->request)) {
    caveats.AddRecording();
  }
  caveats_->Show(caveats.List());
}

bool MainWindow::HasRecordingsTrace() const {
  if (!measured_ || !trace_) return false;
  const SharedFile recording = files_->files()[measured_->file];
  try {
    const sim::RecordedRun run = sim::RunOf(recording->info, recording->path.toStdString());
    static_cast<void>(sim::MachineOf(run.request));  // it may be a file of another computer
    return QFileInfo(QString::fromStdString(run.trace)).fileName() ==
           QFileInfo(trace_->path).fileName();
  } catch (const Error&) {
    return false;
  }
}

void MainWindow::PredictRecording() {
  if (!measured_) {
    statusBar()->showMessage(QStringLiteral("No recording is open"), 8000);
    return;
  }
  const SharedFile recording = files_->files()[measured_->file];
  sim::RecordedRun run;
  try {
    run = sim::RunOf(recording->info, recording->path.toStdString());
    if (HoldsDevice(files_->Timeline(*measured_)->timeline()) && LeavesRecordingOut(run.request)) {
      run.request.machine_overrides.emplace_back("host.recorded", "1");
    }
    whatif_->SetRequest(run.request);
  } catch (const Error& error) {
    Tell(error);
    return;
  }
  OnControlsChanged(run.request);

  const QFileInfo trace(QString::fromStdString(run.trace));
  for (const SharedFile& file : files_->files()) {
    if (!file->replayable() || QFileInfo(file->path).fileName() != trace.fileName()) continue;
    if (file != trace_) UseTrace(file);
    return;
  }
  const QFileInfo beside(QFileInfo(recording->path).dir(), trace.fileName());
  const QFileInfo shipped(QDir(QString::fromStdString(traces::SampleFolder().string())),
                          trace.fileName());
  const QFileInfo kept(QDir(QString::fromStdString(Shipped("capture/results/traces").string())),
                       trace.fileName());
  for (const QFileInfo& place : {trace, beside, shipped, kept}) {
    if (place.isFile()) return Open({place.filePath()});
  }
  AskForFiles(QStringLiteral("Where is %1, the trace of this recording?").arg(trace.fileName()));
}

void MainWindow::ShowRuns() {
  std::vector<ChartsPanel::Run> runs;
  if (result_ && !predicted_ && !failed_) runs.push_back({QStringLiteral("now"), result_});
  for (const Pin pin : {Pin::kA, Pin::kB}) {
    if (const SharedResult& pinned = comparison_->pinned(pin)) {
      runs.push_back({QStringLiteral("pin %1").arg(Name(pin)), pinned});
    }
  }
  std::vector<StepTimes> from_files;
  const auto add = [&](const char* name, const Model& model, bool truncated) {
    StepTimes times{.name = QLatin1String(name), .times = {}};
    for (const TimelineModel::Step& step : model->steps()) times.times.push_back(Span(step));
    // Where the file was cut off, the last step is not whole.
    if (truncated && !times.times.empty()) times.times.pop_back();
    if (!model->steps().empty()) times.first_step = model->steps().front().step;
    from_files.push_back(std::move(times));
  };
  const auto add_file = [&](const char* name, const std::optional<FilesModel::Item>& item) {
    if (item) add(name, files_->Timeline(*item), files_->files()[item->file]->report.truncated);
  };
  add_file("predicted", predicted_);
  if (replayed_ && replayed_->model) add("with changes", replayed_->model, false);
  add_file("measured", measured_);
  charts_->SetRuns(std::move(runs), std::move(from_files));
}

void MainWindow::ShowTitle() {
  QStringList parts;
  if (predicted_ || (!trace_ && measured_)) {
    parts
        << QFileInfo(files_->files()[(predicted_ ? predicted_ : measured_)->file]->path).fileName();
  } else if (trace_) {
    parts << QFileInfo(trace_->path).fileName() << Describe(whatif_->request());
  }
  parts << QStringLiteral("Stallcast");
  setWindowTitle(parts.join(QStringLiteral(" - ")));
}

}  // namespace stallcast::gui
