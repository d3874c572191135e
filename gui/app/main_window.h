// SPDX-License-Identifier: GPL-3.0-or-later
// The window: timeline, what-if, charts, files; and how they hang together.
#pragma once

#include <QMainWindow>
#include <QTimer>
#include <array>
#include <memory>
#include <optional>

#include "gui/app/appearance.h"
#include "gui/app/charts_panel.h"
#include "gui/app/files_model.h"
#include "gui/app/opened_file.h"
#include "gui/app/session.h"
#include "gui/timeline/timeline_view.h"
#include "gui/whatif/comparison_model.h"
#include "gui/whatif/latest_job.h"
#include "gui/whatif/prediction_worker.h"
#include "gui/whatif/replay_worker.h"

class QDockWidget;
class QLabel;
class QMenu;
class QToolBar;
class QTableView;
class QToolButton;
class QTreeView;

namespace stallcast::gui {

class CommandPalette;
class Commands;
class DetailsPanel;
class EventTable;
class MessageBar;
class ReplayPanel;
class SummaryCard;
class CaveatBanner;
class WelcomePage;
class WhatIfPanel;
struct ReplayTarget;

/// What the ghost on the timeline shows.
enum class Ghost : uint8_t { kNone, kFormer, kPinA, kPinB };
/// Object name of the command that chooses it.
QString Name(Ghost ghost);

class MainWindow : public QMainWindow {
  Q_OBJECT

 public:
  explicit MainWindow(QWidget* parent = nullptr);
  ~MainWindow() override;

  /// Opens files of any kind, sessions among them; each is shown as soon as it is read.
  void Open(const QStringList& paths);
  /// Why files could not be opened, each so far; told in the window too.
  const QStringList& not_opened() const { return not_opened_; }
  /// The trace that ships with the program, predicted for a large model.
  void OpenSample();
  /// Throws Error.
  void SaveSessionTo(const QString& path) const;
  void RestoreSession(const QString& path);
  /// What the timeline shows, with its waits, in the format that the name ends in. Throws Error.
  void ExportTimelineTo(const QString& path) const;
  /// One HTML file of what is on the screen, with all that it takes to make it again. Throws Error.
  void SaveReportTo(const QString& path);

  /// What is predicted; a problem shows beside its control.
  void SetRequest(const sim::PredictRequest& request);
  void SetAppearance(Appearance appearance);
  /// The same, and remembered.
  void ChooseAppearance(Appearance appearance);
  void ShowChart(ChartsPanel::Kind kind);
  /// Of predictions from now on; fewer are quicker.
  void SetSamples(int32_t samples);
  /// Nothing is being read, predicted, swept or compared.
  bool idle() const;

  // The parts, for tests and for taking pictures.
  Commands& commands() { return *commands_; }
  TimelineView& timeline() { return *timeline_; }
  WhatIfPanel& whatif() { return *whatif_; }
  ReplayPanel& replay() { return *replay_; }
  ChartsPanel& charts() { return *charts_; }
  CaveatBanner& caveats() { return *caveats_; }
  MessageBar& messages() { return *messages_; }
  FilesModel& files() { return *files_; }
  ComparisonModel& comparison() { return *comparison_; }
  EventTable& table() { return *table_; }
  const SharedResult& result() const { return result_; }
  /// Of the recording that stands alone; null: there is none, or it is on its way.
  const SharedReplay& replayed() const { return replayed_; }

  /// As the window was when it was last closed: docks, theme where one was chosen, and size.
  void RestoreLayout(bool with_size, bool with_theme);

  /// Shows itself with most of the screen, or all of a small one.
  void ShowAtFirstSize();
  /// Offers first tasks to whoever starts the program for the first time.
  void WelcomeNewcomer();
  QSize sizeHint() const override;

 protected:
  void closeEvent(QCloseEvent* event) override;
  void showEvent(QShowEvent* event) override;
  void dragEnterEvent(QDragEnterEvent* event) override;
  void dropEvent(QDropEvent* event) override;

 private:
  using Model = std::shared_ptr<const TimelineModel>;

  void BuildDocks();
  void BuildToolBar();
  void ShowIcons();
  void BuildCommands();
  void BuildFileCommands();
  void BuildWhatIfCommands();
  void BuildWindowCommands();
  void Connect();

  void OnOpened(const SharedFile& file);
  void OnPredicted(const SharedResult& result);
  void OnRefined(const SharedResult& refined);
  void OnFailed(const Error& error);
  void OnControlsChanged(const sim::PredictRequest& request);
  void OnPinned(Pin pin, const SharedResult& result);

  // A recording that stands alone, replayed.
  void ConnectReplay();
  void SetReplayRequest(const ReplayRequest& request);
  void OnReplayRequest(const ReplayRequest& request);
  void OnReplayed(const SharedReplay& result);
  void OnReplayFailed(const Error& error);
  void OnNotReplayable(const Error& error);
  /// Null: none stands alone.
  void ReplayAlone(const std::shared_ptr<const TimelineModel>& recording);
  void AddChanges(QMenu* menu, const MenuSubject& subject);
  void AskForChange(const sim::ReplayVerbInfo& verb, const ReplayTarget& target);

  void Activate(const QModelIndex& index);
  void UseTrace(const SharedFile& file);
  void TakeStepsOfRecording();
  void ShowTimelineOf(size_t file, size_t index);
  void ShowSides();
  void RestoreView();
  void Match(const Model& predicted, const Model& measured);
  void ShowGhost();
  void ShowSummary();
  void ShowCaveats();
  void ShowRuns();
  void ShowTitle();
  void ShowWelcome();
  void ShareHeight();

  void PinNow(Pin pin);
  void GoToPin(Pin pin);
  void Unpin(Pin pin);
  void SetGhost(Ghost ghost);
  void ShowLive();
  void PredictRecording();
  /// Whether the trace in use is that of the recording shown, whose run can be predicted.
  bool HasRecordingsTrace() const;

  void AskForFiles(const QString& title);
  void AskForSessionName();
  void ExportTimeline();
  void AskForReportName();
  void CloseFiles();
  void ShowRecent();
  void Remember(const QString& path);
  QStringList Recent() const;
  void FinishRestore();
  void RestorePin(Pin pin, const Session::Pinned& pinned);
  std::optional<size_t> FindFile(const QString& path) const;
  void ShowDock(QDockWidget* dock);
  void ShowKeys();
  void ShowAbout();
  void OpenComparison();
  void Tell(const Error& error);
  void CouldNotOpen(const QString& why);

  Commands* commands_ = nullptr;
  CommandPalette* palette_ = nullptr;
  TimelineView* timeline_ = nullptr;
  CaveatBanner* caveats_ = nullptr;
  WelcomePage* welcome_ = nullptr;
  QToolBar* toolbar_ = nullptr;
  MessageBar* messages_ = nullptr;
  WhatIfPanel* whatif_ = nullptr;
  ReplayPanel* replay_ = nullptr;
  SummaryCard* summary_ = nullptr;
  QToolButton* predict_recording_ = nullptr;  // while a recording stands alone
  ChartsPanel* charts_ = nullptr;
  DetailsPanel* details_ = nullptr;
  FilesModel* files_ = nullptr;
  QTreeView* files_view_ = nullptr;
  ComparisonModel* comparison_ = nullptr;
  QTableView* comparison_view_ = nullptr;
  QLabel* status_ = nullptr;
  QDockWidget* whatif_dock_ = nullptr;
  QDockWidget* charts_dock_ = nullptr;
  QDockWidget* comparison_dock_ = nullptr;
  QDockWidget* details_dock_ = nullptr;
  QDockWidget* files_dock_ = nullptr;
  EventTable* table_ = nullptr;
  QDockWidget* table_dock_ = nullptr;
  QByteArray first_layout_;
  bool laid_out_ = false;
  bool shares_height_ = true;  // docks lie as the program puts them, and no timeline was shown
  bool newcomer_ = false;
  std::optional<sim::PredictRequest> last_request_;  // what an undo goes back to
  bool undoing_ = false;

  FileOpener opener_;
  PredictionWorker worker_;
  std::array<PredictionWorker, kPins> pin_workers_;

  QStringList not_opened_;

  SharedFile trace_;               // predicted from
  bool asked_ = false;             // somebody has chosen what is predicted
  SharedResult result_;            // the live prediction
  std::optional<QString> failed_;  // why the values at hand have no prediction; result_ is older
  SharedResult former_;            // what it was before the controls began to move
  bool refining_ = false;          // the quantiles are still to come
  QTimer moving_;                  // runs while controls move
  ReplayWorker replayer_;
  ReplayRequest replay_request_;
  SharedReplay replayed_;                 // of the recording that stands alone
  SharedReplay replayed_before_;          // what it was before the changes
  std::optional<QString> replay_failed_;  // why the changes at hand cannot be replayed
  std::optional<QString> unreplayable_;   // why the recording cannot be
  std::optional<ReplayRequest> restoring_replay_;
  Ghost ghost_ = Ghost::kFormer;
  std::optional<FilesModel::Item> predicted_;  // shown instead of the live prediction
  std::optional<FilesModel::Item> measured_;
  std::optional<FilesModel::Item> log_;  // mapped instead of the live prediction's
  Appearance appearance_ = Appearance::kLight;
  std::optional<Session> restoring_;           // waits for its files
  std::optional<QJsonObject> restoring_view_;  // waits for the prediction that it is a view of

  uint64_t match_ticket_ = 0;
  bool matching_ = false;
  std::array<Model, 2> matched_;  // asked for last
  LatestJob match_job_;           // last: stops before the rest goes
};

}  // namespace stallcast::gui
