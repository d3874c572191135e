// SPDX-License-Identifier: GPL-3.0-or-later
// The commands of the window, and what those that ask something do.
#include <QActionGroup>
#include <QApplication>
#include <QClipboard>
#include <QDockWidget>
#include <QFileDialog>
#include <QHeaderView>
#include <QJsonArray>
#include <QJsonObject>
#include <QLabel>
#include <QMenu>
#include <QMenuBar>
#include <QSettings>
#include <QStatusBar>
#include <QToolButton>
#include <QTreeView>
#include <QUndoStack>

#include "gui/app/caveat_banner.h"
#include "gui/app/command_palette.h"
#include "gui/app/commands.h"
#include "gui/app/main_window.h"
#include "gui/app/message_bar.h"
#include "gui/timeline/timeline_view.h"
#include "gui/whatif/replay_panel.h"
#include "gui/whatif/whatif_panel.h"
#include "traces/convert/timeline_file.h"

namespace stallcast::gui {
namespace {

constexpr auto kRecentKey = "recent_files";
constexpr int kMostRecent = 12;

const QString kFile = QStringLiteral("File");
const QString kView = QStringLiteral("View");
const QString kGo = QStringLiteral("Go");
const QString kSelect = QStringLiteral("Select");
const QString kWhatIf = QStringLiteral("What-if");
const QString kCharts = QStringLiteral("Charts");
const QString kWindow = QStringLiteral("Window");
const QString kHelp = QStringLiteral("Help");

QString Readable() {
  return QStringLiteral(
      "Traces (*.kvt *.json *.json.gz *.gz *.pftrace *.perfetto-trace *.sqlite *.stallcast);;"
      "All files (*)");
}

}  // namespace

QString Name(Ghost ghost) {
  switch (ghost) {
    case Ghost::kNone:
      return QStringLiteral("ghost_none");
    case Ghost::kFormer:
      return QStringLiteral("ghost_former");
    case Ghost::kPinA:
      return QStringLiteral("ghost_A");
    case Ghost::kPinB:
      return QStringLiteral("ghost_B");
  }
  return {};
}

void MainWindow::BuildCommands() {
  commands_ = new Commands(this);
  BuildFileCommands();
  for (const TimelineView::Menu& menu : timeline_->Commands()) {
    for (QAction* action : menu.actions) {
      if (action) {
        commands_->Adopt(menu.title, action);
      } else {
        commands_->AddSeparator(menu.title);
      }
    }
  }
  BuildWhatIfCommands();
  BuildWindowCommands();
  commands_->Fill(*menuBar(), {kFile, kView, kGo, kSelect, kWhatIf, kCharts, kWindow, kHelp});
  palette_ = new CommandPalette(*commands_, this);
}

void MainWindow::BuildFileCommands() {
  commands_->Add(
      kFile, "open", QStringLiteral("&Open…"), QKeySequence::Open,
      QStringLiteral("Opens tensors, access logs, timelines, Perfetto, Chrome and Kineto "
                     "traces, Nsight exports, sessions"),
      [this] { AskForFiles(QStringLiteral("Open")); });
  commands_->Add(kFile, "open_recent", QStringLiteral("Open &Recent…"),
                 QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_O),
                 QStringLiteral("Lists the files opened last"), [this] { ShowRecent(); });
  commands_->Add(kFile, "open_sample", QStringLiteral("Open &Sample"),
                 QKeySequence(Qt::CTRL | Qt::ALT | Qt::Key_O),
                 QStringLiteral("Predicts from the trace that ships with the program"),
                 [this] { OpenSample(); });
  commands_->Add(kFile, "close_files", QStringLiteral("&Close Files"),
                 QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_W), QStringLiteral("Closes all files"),
                 [this] { CloseFiles(); });
  commands_->AddSeparator(kFile);
  commands_->Add(kFile, "save_session", QStringLiteral("Save Sess&ion…"), QKeySequence::Save,
                 QStringLiteral("Saves files, layout, pins and parameters"),
                 [this] { AskForSessionName(); });
  commands_->Add(kFile, "export_timeline", QStringLiteral("&Export Timeline…"),
                 QKeySequence(Qt::CTRL | Qt::Key_E),
                 QStringLiteral("Writes what the timeline shows for Perfetto, Chrome, or as CSV"),
                 [this] { ExportTimeline(); });
  commands_->Add(kFile, "save_report", QStringLiteral("Save Re&port…"),
                 QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_E),
                 QStringLiteral("Writes one HTML file with figures, pictures, caveats and the "
                                "command line that gives the same"),
                 [this] { AskForReportName(); });
  commands_->AddSeparator(kFile);
  commands_->Add(kFile, "quit", QStringLiteral("&Quit"), QKeySequence(Qt::CTRL | Qt::Key_Q),
                 QStringLiteral("Ends the program"), [this] { close(); });
}

void MainWindow::BuildWhatIfCommands() {
  commands_->Add(kWhatIf, "find_value", QStringLiteral("&Find a Value…"),
                 QKeySequence(Qt::CTRL | Qt::Key_K),
                 QStringLiteral("Goes to the controls and searches them; with a recording alone, "
                                "to the list of its changes"),
                 [this] {
                   ShowDock(whatif_dock_);
                   if (replayer_.recording()) return replay_->FocusEntry();
                   whatif_->FocusSearch();
                 });
  commands_->Add(
      kWhatIf, "reset", QStringLiteral("&Reset Parameters"),
      QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_R),
      QStringLiteral("Method and machine back to their defaults; with a recording alone, "
                     "all changes out"),
      [this] {
        if (replayer_.recording()) return replay_->Reset();
        whatif_->Reset();
      });
  commands_->Add(kWhatIf, "show_live", QStringLiteral("Show &Live Prediction"),
                 QKeySequence(Qt::CTRL | Qt::Key_L),
                 QStringLiteral("Shows the prediction of the controls instead of a file's"),
                 [this] { ShowLive(); });
  predict_recording_->setDefaultAction(
      commands_->Add(kWhatIf, "predict_recording", QStringLiteral("&Predict This Recording"),
                     QKeySequence(Qt::CTRL | Qt::Key_R),
                     QStringLiteral("Predicts the run that was recorded, to stand above it"),
                     [this] { PredictRecording(); }));
  commands_->Add(kWhatIf, "what_helps", QStringLiteral("What Helps &Most"),
                 QKeySequence(Qt::Key_F6),
                 QStringLiteral("Changes each value by a factor of two and each switch, and ranks "
                                "them by what the step gains"),
                 [this] {
                   ShowChart(ChartsPanel::Kind::kHelps);
                   charts_->RunSweep();
                 });
  commands_->Add(kWhatIf, "copy_comparison", QStringLiteral("&Copy Comparison"),
                 QKeySequence(Qt::CTRL | Qt::ALT | Qt::Key_C),
                 QStringLiteral("Copies the table of now, A, B and measured as Markdown"), [this] {
                   QApplication::clipboard()->setText(comparison_->ToMarkdown());
                   statusBar()->showMessage(QStringLiteral("The comparison is copied"), 8000);
                 });
  commands_->AddSeparator(kWhatIf);
  for (const Pin pin : {Pin::kA, Pin::kB}) {
    const QString name = QLatin1String(Name(pin));
    const Qt::Key key = pin == Pin::kA ? Qt::Key_1 : Qt::Key_2;
    commands_->Add(kWhatIf, "pin_" + name, QStringLiteral("Pin as &%1").arg(name),
                   QKeySequence(Qt::CTRL | key),
                   QStringLiteral("Keeps this configuration and its prediction for comparison"),
                   [this, pin] { PinNow(pin); });
    commands_->Add(kWhatIf, "go_to_pin_" + name, QStringLiteral("Go Back to %1").arg(name),
                   QKeySequence(Qt::ALT | key),
                   QStringLiteral("Sets the controls to the pinned configuration"),
                   [this, pin] { GoToPin(pin); });
    commands_->Add(kWhatIf, "unpin_" + name, QStringLiteral("Unpin %1").arg(name),
                   QKeySequence(Qt::CTRL | Qt::SHIFT | key),
                   QStringLiteral("Forgets the pinned configuration"), [this, pin] { Unpin(pin); });
  }
  commands_->AddSeparator(kWhatIf);
  auto* ghosts = new QActionGroup(this);
  const auto ghost = [&](const QString& text, Qt::Key key, const QString& tip, Ghost value) {
    QAction* action =
        commands_->Add(kWhatIf, Name(value), text, QKeySequence(Qt::CTRL | Qt::ALT | key), tip,
                       [this, value] { SetGhost(value); });
    action->setCheckable(true);
    action->setChecked(value == ghost_);
    ghosts->addAction(action);
  };
  ghost(QStringLiteral("Ghost: F&ormer Position"), Qt::Key_F,
        QStringLiteral("Shows where the ops were before the controls moved"), Ghost::kFormer);
  ghost(QStringLiteral("Ghost: Pin A"), Qt::Key_1,
        QStringLiteral("Shows the ops of pin A beside those of now"), Ghost::kPinA);
  ghost(QStringLiteral("Ghost: Pin B"), Qt::Key_2,
        QStringLiteral("Shows the ops of pin B beside those of now"), Ghost::kPinB);
  ghost(QStringLiteral("No &Ghost"), Qt::Key_0, QStringLiteral("Shows this prediction alone"),
        Ghost::kNone);

  for (const ChartsPanel::Kind kind : ChartsPanel::Kinds()) {
    const int number = static_cast<int>(kind) + 1;
    commands_->Add(kCharts, "chart_" + ChartsPanel::Name(kind), ChartsPanel::Title(kind),
                   QKeySequence(Qt::ALT | Qt::SHIFT | static_cast<Qt::Key>(Qt::Key_0 + number)),
                   QStringLiteral("Shows this chart"), [this, kind] { ShowChart(kind); });
  }
  commands_->AddSeparator(kCharts);
  commands_->Add(kCharts, "run_sweep", QStringLiteral("&Run Sweep"), QKeySequence(Qt::Key_F5),
                 QStringLiteral("Predicts every point of the chart at hand in the background"),
                 [this] { charts_->RunSweep(); });
  commands_->Add(kCharts, "cancel_sweep", QStringLiteral("&Cancel Sweep"),
                 QKeySequence(Qt::SHIFT | Qt::Key_F5),
                 QStringLiteral("Stops the sweep; what is done stays"),
                 [this] { charts_->CancelSweep(); });
  commands_->Add(kCharts, "save_chart", QStringLiteral("&Save Chart…"),
                 QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_S),
                 QStringLiteral("Saves the chart as PNG, SVG, PDF, or its data as CSV"),
                 [this] { charts_->Save(); });
}

void MainWindow::BuildWindowCommands() {
  const std::array docks = {whatif_dock_,  charts_dock_, comparison_dock_,
                            details_dock_, files_dock_,  table_dock_};
  for (size_t i = 0; i < docks.size(); ++i) {
    QAction* toggle = docks[i]->toggleViewAction();
    toggle->setObjectName("dock_" + docks[i]->objectName());
    toggle->setShortcut(QKeySequence(Qt::CTRL | Qt::SHIFT | static_cast<Qt::Key>(Qt::Key_F1 + i)));
    toggle->setStatusTip(QStringLiteral("Shows or hides this part of the window"));
    addAction(toggle);
    commands_->Adopt(kWindow, toggle);
  }
  commands_->Add(kWindow, "reset_layout", QStringLiteral("&Reset Layout"),
                 QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_F12),
                 QStringLiteral("Puts all parts of the window back to where they were"),
                 [this] { restoreState(first_layout_); });
  commands_->AddSeparator(kWindow);
  commands_->Add(kWindow, "focus_timeline", QStringLiteral("Go to &Timeline"),
                 QKeySequence(Qt::CTRL | Qt::Key_T),
                 QStringLiteral("Gives the keys to the timeline"),
                 [this] { timeline_->setFocus(Qt::ShortcutFocusReason); });
  commands_->Add(kWindow, "focus_files", QStringLiteral("Go to &Files"),
                 QKeySequence(Qt::CTRL | Qt::Key_J), QStringLiteral("Gives the keys to the files"),
                 [this] {
                   ShowDock(files_dock_);
                   files_view_->setFocus(Qt::ShortcutFocusReason);
                 });
  commands_->Add(kWindow, "caveats", QStringLiteral("Ca&veats"), QKeySequence(Qt::CTRL | Qt::Key_B),
                 QStringLiteral("Unfolds what is projected, derived, extrapolated, lost ..."),
                 [this] { caveats_->SetUnfolded(!caveats_->unfolded()); });
  commands_->Add(kWindow, "dismiss", QStringLiteral("&Dismiss Messages"),
                 QKeySequence(Qt::CTRL | Qt::Key_D), QStringLiteral("Closes the message bar"),
                 [this] { messages_->Dismiss(); });
  commands_->AddSeparator(kWindow);
  commands_->Add(kWindow, "light", QStringLiteral("&Light Theme"),
                 QKeySequence(Qt::CTRL | Qt::ALT | Qt::Key_L), QStringLiteral("Dark on light"),
                 [this] { ChooseAppearance(Appearance::kLight); });
  commands_->Add(kWindow, "dark", QStringLiteral("D&ark Theme"),
                 QKeySequence(Qt::CTRL | Qt::ALT | Qt::Key_D), QStringLiteral("Light on dark"),
                 [this] { ChooseAppearance(Appearance::kDark); });
  commands_->Add(kHelp, "commands", QStringLiteral("&Command Palette…"),
                 QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_P),
                 QStringLiteral("Finds a command by some letters of its name"),
                 [this] { palette_->open(); });
  QAction* keys =
      commands_->Add(kHelp, "keys", QStringLiteral("Mouse and &Keys"), QKeySequence(Qt::Key_F1),
                     QStringLiteral("Lists what the mouse does and all commands with their keys"),
                     [this] { ShowKeys(); });
  keys->setShortcuts({QKeySequence(Qt::Key_F1), QKeySequence(Qt::Key_Question)});
  commands_->Add(kHelp, "welcome", QStringLiteral("&Welcome"), QKeySequence(Qt::SHIFT | Qt::Key_F1),
                 QStringLiteral("Offers the first tasks again"), [this] {
                   newcomer_ = true;
                   ShowWelcome();
                 });
  commands_->Add(
      kHelp, "about", QStringLiteral("&About Stallcast"), QKeySequence(Qt::CTRL | Qt::Key_F1),
      QStringLiteral("Version, licence, where to read and to report"), [this] { ShowAbout(); });
  auto* themes = new QActionGroup(this);
  for (const Appearance appearance : {Appearance::kLight, Appearance::kDark}) {
    QAction* theme = commands_->Find(Name(appearance));
    theme->setCheckable(true);
    theme->setChecked(appearance == appearance_);
    themes->addAction(theme);
  }
}

void MainWindow::AskForFiles(const QString& title) {
  QFileDialog dialog(this, title, {}, Readable());
  dialog.setFileMode(QFileDialog::ExistingFiles);
  dialog.resize(960, 600);
  // Sizes and dates are not cut off.
  for (const QTreeView* list : dialog.findChildren<QTreeView*>()) {
    list->header()->setSectionResizeMode(QHeaderView::ResizeToContents);
  }
  if (dialog.exec() == QDialog::Accepted) Open(dialog.selectedFiles());
}

void MainWindow::AskForSessionName() {
  QString path = QFileDialog::getSaveFileName(
      this, QStringLiteral("Save Session"),
      QStringLiteral("session.") + QLatin1String(kSessionEnding),
      QStringLiteral("Sessions (*.%1)").arg(QLatin1String(kSessionEnding)));
  if (path.isEmpty()) return;
  const QString ending = QStringLiteral(".") + QLatin1String(kSessionEnding);
  if (!path.endsWith(ending)) path += ending;
  try {
    SaveSessionTo(path);
    Remember(path);
  } catch (const Error& error) {
    Tell(error);
  }
}

void MainWindow::ExportTimelineTo(const QString& path) const {
  const traces::TimelineFormat format = traces::TimelineFormatOf(path.toStdString());
  std::vector<traces::Timeline> shown;
  if (const auto pair = timeline_->pair()) {
    for (const Side side : kSides) {
      const auto& model = pair->model(side);
      if (!model) continue;
      shown.push_back(model->timeline());
      shown.back().flows = model->ops().Flows();
      traces::RestoreOrder(&shown.back());  // tracks stand one behind the other in a model
    }
  }
  if (shown.empty()) {
    throw Error("there is no timeline to export", path.toStdString(), "open or predict one");
  }
  const SharedFile from = predicted_  ? files_->files()[predicted_->file]
                          : trace_    ? trace_
                          : measured_ ? files_->files()[measured_->file]
                                      : nullptr;
  traces::WriteTimelines(shown, format, from ? from->info : traces::proto::TraceInfo(),
                         path.toStdString());
}

void MainWindow::ExportTimeline() {
  const QString path = QFileDialog::getSaveFileName(
      this, QStringLiteral("Export Timeline"), QStringLiteral("timeline.pftrace"),
      QStringLiteral("Perfetto (*.pftrace);;Chrome (*.json);;Rows (*.csv);;Stallcast (*.kvt)"));
  if (path.isEmpty()) return;
  try {
    ExportTimelineTo(path);
    statusBar()->showMessage(QStringLiteral("Timeline written to %1").arg(path), 8000);
  } catch (const Error& error) {
    Tell(error);
  }
}

void MainWindow::CloseFiles() {
  opener_.Cancel();
  charts_->CancelSweep();
  worker_.SetPredictor(nullptr);
  for (PredictionWorker& worker : pin_workers_) worker.SetPredictor(nullptr);
  trace_.reset();
  result_.reset();
  former_.reset();
  failed_.reset();
  refining_ = false;
  status_->clear();
  predicted_.reset();
  measured_.reset();
  log_.reset();
  files_->Clear();
  comparison_->SetNow(nullptr);
  for (const Pin pin : {Pin::kA, Pin::kB}) comparison_->SetPin(pin, nullptr);
  charts_->SetBase(nullptr, whatif_->request());
  last_request_.reset();
  // Words and notes are of the ops that go.
  timeline_->RestoreState({{"filter", QString()}, {"notes", QJsonArray()}});
  timeline_->undo_stack()->clear();
  ShowSummary();
  ShowSides();
  ShowWelcome();
}

QStringList MainWindow::Recent() const { return QSettings().value(kRecentKey).toStringList(); }

void MainWindow::Remember(const QString& path) {
  QStringList recent = Recent();
  recent.removeAll(path);
  recent.prepend(path);
  QSettings().setValue(kRecentKey, recent.mid(0, kMostRecent));
}

void MainWindow::ShowRecent() {
  auto* menu = new QMenu(this);
  menu->setObjectName(QStringLiteral("recent"));
  menu->setAttribute(Qt::WA_DeleteOnClose);
  for (const QString& path : Recent()) {
    menu->addAction(path, this, [this, path] { Open({path}); });
  }
  if (menu->isEmpty()) {
    menu->addAction(QStringLiteral("No file was opened yet"))->setEnabled(false);
  }
  menu->popup(mapToGlobal(QPoint(width() / 4, height() / 5)));
}

}  // namespace stallcast::gui
