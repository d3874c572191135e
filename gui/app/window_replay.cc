// SPDX-License-Identifier: GPL-3.0-or-later
// A recording that stands alone: its changes, from panel and menus to the timeline above it.
#include <QInputDialog>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QUndoStack>

#include "gui/app/main_window.h"
#include "gui/app/message_bar.h"
#include "gui/app/request_command.h"
#include "gui/timeline/timeline_view.h"
#include "gui/whatif/replay_filters.h"
#include "gui/whatif/replay_panel.h"
#include "gui/whatif/summary_card.h"

namespace stallcast::gui {
namespace {

constexpr int kSettingMove = 1001;  // kind of step back: moves of one slider are one

QString LabelOf(sim::ReplayVerb verb) {
  using sim::ReplayVerb;
  switch (verb) {
    case ReplayVerb::kScale:
      return QStringLiteral("&Scale Time…");
    case ReplayVerb::kRemove:
      return QStringLiteral("&Remove");
    case ReplayVerb::kMove:
      return QStringLiteral("&Move to a New Stream");
    case ReplayVerb::kBatch:
      return QStringLiteral("&Batch into One Copy");
    case ReplayVerb::kZeroCopy:
      return QStringLiteral("Make &Zero-Copy");
    case ReplayVerb::kSplit:
      return QStringLiteral("S&plit into Chunks…");
    case ReplayVerb::kGraph:
      return QStringLiteral("Launch as One CUDA &Graph");
    case ReplayVerb::kUnwait:
      return QStringLiteral("Remove &Waits");
    case ReplayVerb::kReplace:
    case ReplayVerb::kSet:
      break;
  }
  return {};
}

// The argument to begin with; empty: the change has none, or one that nobody is asked for.
QString QuestionOf(sim::ReplayVerb verb) {
  if (verb == sim::ReplayVerb::kScale) return QStringLiteral("Factor on their time:");
  if (verb == sim::ReplayVerb::kSplit) return QStringLiteral("Number of chunks:");
  return {};
}

QString ArgumentOf(sim::ReplayVerb verb) {
  switch (verb) {
    case sim::ReplayVerb::kScale:
      return QStringLiteral("0.5");
    case sim::ReplayVerb::kSplit:
      return QStringLiteral("4");
    case sim::ReplayVerb::kMove:
      return QStringLiteral("new");
    default:
      return {};
  }
}

}  // namespace

void MainWindow::ConnectReplay() {
  connect(replay_, &ReplayPanel::Changed, this, &MainWindow::OnReplayRequest);
  connect(replay_, &ReplayPanel::Chosen, this, [this](QString name, QString lane) {
    timeline_->SetFilter(
        QStringLiteral("\"name:%1\" \"lane:%2\"").arg(name.remove('"'), lane.remove('"')));
  });
  connect(&replayer_, &ReplayWorker::Replayed, this, &MainWindow::OnReplayed);
  connect(&replayer_, &ReplayWorker::Ranked, replay_, &ReplayPanel::ShowTop);
  connect(&replayer_, &ReplayWorker::Failed, this, &MainWindow::OnReplayFailed);
  connect(&replayer_, &ReplayWorker::NotReplayable, this, &MainWindow::OnNotReplayable);
  connect(timeline_, &TimelineView::MenuOpened, this, &MainWindow::AddChanges);
}

void MainWindow::ReplayAlone(const Model& recording) {
  if (recording == replayer_.recording()) return;
  const std::string machine = recording ? files_->files()[measured_->file]->info.machine() : "";
  replayer_.SetRecording(recording, machine);
  replayed_.reset();
  replayed_before_.reset();
  replay_failed_.reset();
  unreplayable_.reset();
  replay_request_ = {};
  if (!recording) return;
  replay_->Clear();
  if (auto restored = std::exchange(restoring_replay_, std::nullopt)) {
    replay_request_ = *restored;
    replay_->SetRequest(replay_request_);
  }
  replayer_.Run(replay_request_);
}

void MainWindow::SetReplayRequest(const ReplayRequest& request) {
  replay_->SetRequest(request);
  OnReplayRequest(request);
}

void MainWindow::OnReplayRequest(const ReplayRequest& request) {
  if (!replayer_.recording() || request == replay_request_) return;
  const bool setting = request.changes == replay_request_.changes;
  if (!undoing_) {
    timeline_->undo_stack()->push(new RequestCommand<ReplayRequest>(
        setting ? QStringLiteral("change of the machine") : QStringLiteral("change of the program"),
        setting ? kSettingMove : RequestCommand<ReplayRequest>::kNoKind, replay_request_, request,
        [this](const ReplayRequest& to) {
          undoing_ = true;
          SetReplayRequest(to);
          undoing_ = false;
        }));
  }
  replay_request_ = request;
  if (!setting || !moving_.isActive()) replayed_before_ = replayed_;
  moving_.start();
  replayer_.Run(request);
}

void MainWindow::OnReplayed(const SharedReplay& result) {
  replayed_ = result;
  replay_failed_.reset();
  replay_->Show(*result);
  ShowSides();
  ShowSummary();
  const auto took = std::chrono::duration<double, std::milli>(result->took).count();
  status_->setText(result->model ? QStringLiteral("replayed in %1 ms").arg(took, 0, 'f', 0)
                                 : QString());
}

void MainWindow::OnReplayFailed(const Error& error) {
  replay_failed_ = QString::fromStdString(error.problem() + "; " + error.remedy());
  replay_->ShowError(error);
  ShowSummary();
  ShowCaveats();
  status_->clear();
}

void MainWindow::OnNotReplayable(const Error& error) {
  unreplayable_ = QString::fromStdString(error.problem() + "; " + error.remedy());
  ShowSides();
}

void MainWindow::AddChanges(QMenu* menu, const MenuSubject& subject) {
  if (!replayed_ || !timeline_->pair()) return;
  std::vector<ReplayTarget> targets = ReplayTargetsOf(*timeline_->pair(), subject);
  QString refused;
  if (!timeline_->filter().isEmpty()) {
    try {
      const Filter filter(timeline_->filter().toStdString());
      targets.push_back({QStringLiteral("Change What the Filter Chooses"),
                         ReplayFilterOf(filter, *replayed_->of->recording)});
    } catch (const Error& error) {
      refused = QString::fromStdString(error.problem());
    }
  }
  if (targets.empty() && refused.isEmpty()) return;
  QAction* const first = menu->actions().value(0);
  for (const ReplayTarget& target : targets) {
    auto* changes = new QMenu(QString(target.title).replace('&', QStringLiteral("&&")), menu);
    changes->setObjectName(QStringLiteral("changes_of"));
    changes->setToolTipsVisible(true);
    for (const sim::ReplayVerbInfo& verb : ReplayVerbsFor(target)) {
      QAction* action = changes->addAction(LabelOf(verb.verb), this,
                                           [this, verb, target] { AskForChange(verb, target); });
      action->setObjectName(QStringLiteral("change_") +
                            QString::fromUtf8(verb.name.data(), qsizetype(verb.name.size())));
      action->setToolTip(QStringLiteral("%1 %2").arg(QString::fromUtf8(verb.name.data()),
                                                     QString::fromStdString(target.filter)));
    }
    menu->insertMenu(first, changes);
  }
  if (!refused.isEmpty()) {
    auto* told = new QAction(QStringLiteral("No Change: %1").arg(refused), menu);
    told->setEnabled(false);
    menu->insertAction(first, told);
  }
  menu->insertSeparator(first);
}

void MainWindow::AskForChange(const sim::ReplayVerbInfo& verb, const ReplayTarget& target) {
  QString argument = ArgumentOf(verb.verb);
  if (const QString question = QuestionOf(verb.verb); !question.isEmpty()) {
    bool ok = false;
    argument =
        QInputDialog::getText(this, LabelOf(verb.verb).remove('&').remove(QStringLiteral("…")),
                              question, QLineEdit::Normal, argument, &ok)
            .trimmed();
    if (!ok || argument.isEmpty()) return;
  }
  std::string text = std::string(verb.name) + ' ' + target.filter;
  if (!argument.isEmpty()) text += ' ' + argument.toStdString();
  ShowDock(whatif_dock_);
  replay_->AddChange(text);
}

}  // namespace stallcast::gui
