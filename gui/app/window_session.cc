// SPDX-License-Identifier: GPL-3.0-or-later
// Saving the window as a session, and making it again.
#include <QFileInfo>

#include "gui/app/commands.h"
#include "gui/app/main_window.h"
#include "gui/app/message_bar.h"
#include "gui/timeline/timeline_view.h"
#include "gui/whatif/whatif_panel.h"

namespace stallcast::gui {

void MainWindow::SaveSessionTo(const QString& path) const {
  Session session;
  for (const SharedFile& file : files_->files()) session.files << file->path;
  if (trace_) session.trace = trace_->path;
  const auto place = [](const std::optional<FilesModel::Item>& item) {
    return item ? std::optional(
                      Session::Place{static_cast<int>(item->file), static_cast<int>(item->index)})
                : std::nullopt;
  };
  session.predicted = place(predicted_);
  session.measured = place(measured_);
  session.request = whatif_->request();
  session.replay = replay_request_;
  for (const Pin pin : {Pin::kA, Pin::kB}) {
    if (const SharedResult& pinned = comparison_->pinned(pin)) {
      session.pins[static_cast<size_t>(pin)] = {pinned->request, pinned->trace};
    }
  }
  session.ghost = Name(ghost_);
  session.chart = ChartsPanel::Name(charts_->kind());
  session.appearance = Name(appearance_);
  session.timeline = timeline_->SaveState();
  session.docks = saveState();
  session.geometry = saveGeometry();
  SaveSession(session, path);
}

void MainWindow::RestoreSession(const QString& path) {
  Session session = LoadSession(path);  // nothing is lost when this fails
  CloseFiles();
  restoring_ = std::move(session);
  if (restoring_->appearance == Name(Appearance::kDark)) SetAppearance(Appearance::kDark);
  if (restoring_->appearance == Name(Appearance::kLight)) SetAppearance(Appearance::kLight);
  if (!restoring_->geometry.isEmpty()) restoreGeometry(restoring_->geometry);
  if (!restoring_->docks.isEmpty()) {
    laid_out_ = true;
    shares_height_ = false;
    restoreState(restoring_->docks);
  }
  if (const auto kind = ChartsPanel::KindOf(restoring_->chart)) charts_->SetKind(*kind);
  try {
    whatif_->SetRequest(restoring_->request);
  } catch (const Error& error) {
    Tell(error);
  }
  if (restoring_->ghost.startsWith(QStringLiteral("ghost_"))) {
    if (QAction* ghost = commands_->Find(restoring_->ghost)) ghost->trigger();
  }
  Remember(path);
  for (const QString& file : restoring_->files) opener_.Open(file);
  if (restoring_->files.isEmpty()) FinishRestore();
}

void MainWindow::FinishRestore() {
  if (!restoring_) return;
  const Session session = *std::exchange(restoring_, std::nullopt);
  if (const auto trace = FindFile(session.trace)) UseTrace(files_->files()[*trace]);
  for (const Pin pin : {Pin::kA, Pin::kB}) {
    if (const auto& pinned = session.pins[static_cast<size_t>(pin)]) RestorePin(pin, *pinned);
  }
  restoring_replay_ = session.replay;
  // Files that could not be opened are not in the list, so places are found by name.
  for (const auto& place : {session.predicted, session.measured}) {
    if (!place) continue;
    const auto file = FindFile(session.files[place->file]);
    if (file && static_cast<size_t>(place->timeline) < files_->files()[*file]->timelines.size()) {
      ShowTimelineOf(*file, static_cast<size_t>(place->timeline));
    }
  }
  restoring_view_ = session.timeline;
  ShowSides();
  restoring_replay_.reset();
  ShowWelcome();
}

std::optional<size_t> MainWindow::FindFile(const QString& path) const {
  for (size_t i = 0; i < files_->files().size(); ++i) {
    if (files_->files()[i]->path == path) return i;
  }
  return std::nullopt;
}

void MainWindow::RestorePin(Pin pin, const Session::Pinned& pinned) {
  if (!FindFile(pinned.trace)) return;  // told when it could not be opened
  PredictionWorker& worker = pin_workers_[static_cast<size_t>(pin)];
  try {
    const bool same = trace_ && trace_->path == pinned.trace;
    worker.SetPredictor(
        same ? worker_.predictor() : std::make_shared<sim::Predictor>(pinned.trace.toStdString()),
        pinned.trace);
    worker.Predict(pinned.request);
  } catch (const Error& error) {
    Tell(error);
  }
}

void MainWindow::RestoreView() {
  if (const auto view = std::exchange(restoring_view_, std::nullopt)) {
    timeline_->RestoreState(*view);
  }
}

}  // namespace stallcast::gui
