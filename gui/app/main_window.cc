// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/main_window.h"

#include <QDockWidget>
#include <QDragEnterEvent>
#include <QFileInfo>
#include <QHeaderView>
#include <QLabel>
#include <QMimeData>
#include <QScreen>
#include <QScrollArea>
#include <QSettings>
#include <QStatusBar>
#include <QTableView>
#include <QToolBar>
#include <QToolButton>
#include <QTreeView>
#include <QUndoStack>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "gui/app/caveat_banner.h"
#include "gui/app/command_palette.h"
#include "gui/app/commands.h"
#include "gui/app/details_panel.h"
#include "gui/app/event_table.h"
#include "gui/app/icons.h"
#include "gui/app/message_bar.h"
#include "gui/app/request_command.h"
#include "gui/app/welcome_page.h"
#include "gui/app/wrapping_delegate.h"
#include "gui/timeline/timeline_view.h"
#include "gui/whatif/replay_panel.h"
#include "gui/whatif/summary_card.h"
#include "gui/whatif/whatif_panel.h"
#include "traces/common/shipped.h"
#include "traces/samples.h"

namespace stallcast::gui {
namespace {

// A pause this long ends a move of the controls; what was there before is then the former position.
constexpr int kMoveMilliseconds = 2000;
constexpr int32_t kFirstSteps = 64;
constexpr auto kGeometryKey = "window/geometry";
constexpr auto kDocksKey = "window/docks";
constexpr auto kAppearanceKey = "window/appearance";
constexpr int kNarrow = 170;  // letters: a window with less has no room for a third column
constexpr int kLow = 38;      // lines: in a window with less, all docks share the left column
constexpr int kSmallScreen = 1600;
constexpr double kFirstShare = 0.9;  // of a large screen
constexpr auto kWelcomedKey = "window/welcomed";
constexpr int kPredictionMove = 1000;  // kind of step back, apart from those of the view

// The timeline of the quick prediction with the figures of the refined one.
SharedResult Refine(const PredictionResult& quick, const PredictionResult& refined) {
  auto whole = std::make_shared<PredictionResult>(refined);
  whole->model = quick.model;
  whole->took = quick.took;
  return whole;
}

}  // namespace

MainWindow::MainWindow(QWidget* parent) : QMainWindow(parent) {
  setObjectName(QStringLiteral("main"));
  setAcceptDrops(true);
  setDockOptions(AnimatedDocks | AllowTabbedDocks | AllowNestedDocks);
  moving_.setSingleShot(true);
  moving_.setInterval(kMoveMilliseconds);

  caveats_ = new CaveatBanner(this);
  messages_ = new MessageBar(this);
  timeline_ = new TimelineView(this);
  welcome_ = new WelcomePage(this);
  auto* middle = new QWidget(this);
  auto* column = new QVBoxLayout(middle);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(0);
  column->addWidget(messages_);
  column->addWidget(caveats_);
  column->addWidget(welcome_);
  column->addWidget(timeline_, 1);
  setCentralWidget(middle);
  status_ = new QLabel(this);
  statusBar()->addPermanentWidget(status_);

  BuildDocks();
  BuildCommands();
  BuildToolBar();
  Connect();
  ShowTitle();
  ShowWelcome();
  timeline_->setFocus();
}

MainWindow::~MainWindow() = default;

QSize MainWindow::sizeHint() const { return screen()->availableSize() * kFirstShare; }

void MainWindow::ShowAtFirstSize() {
  const QRect room = screen()->availableGeometry();
  if (room.width() < kSmallScreen) return showMaximized();
  resize(sizeHint());
  move(room.center() - rect().center());
  show();
}

void MainWindow::WelcomeNewcomer() {
  newcomer_ = !QSettings().value(kWelcomedKey).toBool();
  ShowWelcome();
}

// Only a window without files has a page of it.
void MainWindow::ShowWelcome() {
  const bool whole = files_->files().empty() && !opener_.busy() && !restoring_;
  welcome_->SetWhole(whole);
  if (whole) welcome_->SetRecent(Recent());
  welcome_->setVisible(whole || newcomer_);
  const bool appears = !whole && timeline_->isHidden();
  timeline_->setVisible(!whole);
  if (appears) timeline_->setFocus();
}

void MainWindow::BuildDocks() {
  const auto dock = [this](const char* name, const QString& title, QWidget* widget,
                           Qt::DockWidgetArea area) {
    auto* made = new QDockWidget(title, this);
    made->setObjectName(QLatin1String(name));
    made->setWidget(widget);
    addDockWidget(area, made);
    // Qt keeps what lies under another tab in the order of Tab, where it would take keys unseen.
    connect(made, &QDockWidget::visibilityChanged, widget, &QWidget::setEnabled);
    return made;
  };
  auto* left = new QWidget(this);
  auto* column = new QVBoxLayout(left);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(0);
  summary_ = new SummaryCard(left);
  whatif_ = new WhatIfPanel(left);
  replay_ = new ReplayPanel(left);
  replay_->hide();
  predict_recording_ = new QToolButton(left);
  predict_recording_->setObjectName(QStringLiteral("predict_recording"));
  predict_recording_->hide();
  column->addWidget(summary_);
  column->addWidget(predict_recording_, 0, Qt::AlignHCenter);
  column->addWidget(whatif_, 1);
  column->addWidget(replay_, 1);
  whatif_dock_ = dock("whatif", QStringLiteral("What if"), left, Qt::LeftDockWidgetArea);

  charts_ = new ChartsPanel(this);
  charts_dock_ = dock("charts", QStringLiteral("Charts"), charts_, Qt::BottomDockWidgetArea);
  comparison_ = new ComparisonModel(this);
  comparison_view_ = new QTableView(this);
  comparison_view_->setModel(comparison_);
  comparison_view_->setAlternatingRowColors(true);
  comparison_view_->setContextMenuPolicy(Qt::ActionsContextMenu);
  comparison_view_->setTabKeyNavigation(false);  // Tab leaves the table
  comparison_view_->setSelectionMode(QAbstractItemView::ExtendedSelection);
  comparison_view_->horizontalHeader()->setSectionResizeMode(QHeaderView::ResizeToContents);
  comparison_view_->verticalHeader()->setSectionResizeMode(QHeaderView::ResizeToContents);
  comparison_dock_ =
      dock("comparison", QStringLiteral("Compare"), comparison_view_, Qt::BottomDockWidgetArea);
  tabifyDockWidget(charts_dock_, comparison_dock_);
  table_ = new EventTable(this);
  table_dock_ = dock("table", QStringLiteral("Events"), table_, Qt::BottomDockWidgetArea);
  tabifyDockWidget(comparison_dock_, table_dock_);
  charts_dock_->raise();

  details_ = new DetailsPanel(this);
  details_dock_ = dock("details", QStringLiteral("Details"), details_, Qt::RightDockWidgetArea);
  files_ = new FilesModel(this);
  files_view_ = new QTreeView(this);
  files_view_->setModel(files_);
  files_view_->setHeaderHidden(true);
  files_view_->setItemDelegate(new WrappingDelegate(files_view_));
  files_view_->setIndentation(fontMetrics().height());
  files_dock_ = dock("files", QStringLiteral("Files"), files_view_, Qt::RightDockWidgetArea);

  setCorner(Qt::BottomLeftCorner, Qt::LeftDockWidgetArea);
  setCorner(Qt::BottomRightCorner, Qt::BottomDockWidgetArea);
  resizeDocks({details_dock_, files_dock_}, {3, 2}, Qt::Vertical);
}

void MainWindow::BuildToolBar() {
  toolbar_ = addToolBar(QStringLiteral("Main commands"));
  toolbar_->setObjectName(QStringLiteral("toolbar"));
  toolbar_->setMovable(false);
  toolbar_->setIconSize({18, 18});
  toolbar_->setToolButtonStyle(Qt::ToolButtonIconOnly);
  for (const char* name : {"open", "", "undo_view", "redo_view", "", "show_all", "previous_step",
                           "next_step", "search", "toggle_color", "toggle_waits", "add_note", "",
                           "pin_A", "what_helps", "run_sweep", "", "save_report", "commands"}) {
    QAction* action = commands_->Find(QLatin1String(name));
    if (action) {
      toolbar_->addAction(action);
    } else {
      toolbar_->addSeparator();
    }
  }
  // Those that a newcomer looks for say what they are.
  for (const char* name : {"open", "pin_A", "what_helps", "save_report"}) {
    auto* button =
        qobject_cast<QToolButton*>(toolbar_->widgetForAction(commands_->Find(QLatin1String(name))));
    if (button) button->setToolButtonStyle(Qt::ToolButtonTextBesideIcon);
  }
  ShowIcons();
}

void MainWindow::ShowIcons() {
  if (!toolbar_) return;
  for (QAction* action : toolbar_->actions()) {
    if (action->isSeparator()) continue;
    action->setIcon(IconOf(action->objectName(), palette().color(QPalette::ButtonText)));
    action->setIconVisibleInMenu(false);
    action->setToolTip(QStringLiteral("%1 (%2)").arg(
        action->statusTip(), action->shortcut().toString(QKeySequence::NativeText)));
  }
}

void MainWindow::Connect() {
  connect(&opener_, &FileOpener::Opened, this, &MainWindow::OnOpened);
  connect(&opener_, &FileOpener::Failed, this,
          [this](const QString&, const QString& why) { CouldNotOpen(why); });
  connect(&opener_, &FileOpener::Progressed, this, [this](const QString& path, double share) {
    statusBar()->showMessage(QStringLiteral("Reading %1: %2 %")
                                 .arg(QFileInfo(path).fileName())
                                 .arg(share * 100, 0, 'f', 0));
  });
  connect(&opener_, &FileOpener::Idle, this, [this] {
    statusBar()->clearMessage();
    FinishRestore();
    ShowSummary();
    ShowWelcome();
  });
  connect(&worker_, &PredictionWorker::Predicted, this, &MainWindow::OnPredicted);
  connect(&worker_, &PredictionWorker::Refined, this, &MainWindow::OnRefined);
  connect(&worker_, &PredictionWorker::NotRefined, this, [this](const Error& error) {
    refining_ = false;
    Tell(error);
    ShowRuns();
    ShowCaveats();
  });
  connect(&worker_, &PredictionWorker::Failed, this, &MainWindow::OnFailed);
  connect(&worker_, &PredictionWorker::BusyChanged, summary_, &SummaryCard::ShowBusy);
  for (int i = 0; i < kPins; ++i) {
    const auto pin = static_cast<Pin>(i);
    PredictionWorker& worker = pin_workers_[static_cast<size_t>(i)];
    connect(&worker, &PredictionWorker::Predicted, this,
            [this, pin](const SharedResult& result) { OnPinned(pin, result); });
    connect(&worker, &PredictionWorker::Refined, this, [this, pin](const SharedResult& refined) {
      const SharedResult& pinned = comparison_->pinned(pin);
      if (pinned) OnPinned(pin, Refine(*pinned, *refined));
    });
    connect(&worker, &PredictionWorker::Failed, this, [this, pin](const Error& error) {
      messages_->Tell(QStringLiteral("Pin %1: %2").arg(Name(pin)).arg(error.what()));
    });
  }
  connect(whatif_, &WhatIfPanel::Changed, this, &MainWindow::OnControlsChanged);
  ConnectReplay();
  connect(timeline_, &TimelineView::OpHovered, details_, &DetailsPanel::Hover);
  connect(timeline_, &TimelineView::OpSelected, details_, &DetailsPanel::Select);
  connect(timeline_, &TimelineView::AreaSelected, details_, &DetailsPanel::SelectArea);
  const auto say = [this](const QString& text) { statusBar()->showMessage(text, 8000); };
  connect(timeline_, &TimelineView::Message, this, say);
  connect(timeline_, &TimelineView::RangeChanged, this, [this] { table_->Show(*timeline_); });
  connect(timeline_, &TimelineView::FilterChanged, this, [this] { table_->Show(*timeline_); });
  connect(table_, &EventTable::Chosen, this, [this](OpRef op) { timeline_->Select(op); });
  connect(table_, &EventTable::Message, this, say);
  connect(welcome_, &WelcomePage::SampleWanted, this, &MainWindow::OpenSample);
  connect(welcome_, &WelcomePage::ComparisonWanted, this, &MainWindow::OpenComparison);
  connect(welcome_, &WelcomePage::FileWanted, this,
          [this] { AskForFiles(QStringLiteral("Open")); });
  connect(welcome_, &WelcomePage::Wanted, this, [this](const QString& path) { Open({path}); });
  connect(welcome_, &WelcomePage::Closed, this, [this] {
    newcomer_ = false;
    QSettings().setValue(kWelcomedKey, true);
    ShowWelcome();
  });
  connect(charts_, &ChartsPanel::StepChosen, this, [this](int step) { timeline_->ShowStep(step); });
  connect(charts_, &ChartsPanel::PointChosen, this,
          [this](const sim::PredictRequest& request, bool pin) {
            if (!pin) return SetRequest(request);
            const bool a_is_free = !comparison_->pinned(Pin::kA);
            if (trace_) RestorePin(a_is_free ? Pin::kA : Pin::kB, {request, trace_->path});
          });
  connect(charts_, &ChartsPanel::Message, this, say);
  connect(charts_, &ChartsPanel::Failed, this, &MainWindow::Tell);
  connect(files_view_, &QTreeView::activated, this, &MainWindow::Activate);
}

void MainWindow::showEvent(QShowEvent* event) {
  QMainWindow::showEvent(event);
  if (laid_out_) return;
  laid_out_ = true;
  const int letter = fontMetrics().horizontalAdvance('0');
  if (height() < fontMetrics().height() * kLow) {
    for (QDockWidget* dock :
         {charts_dock_, comparison_dock_, table_dock_, details_dock_, files_dock_}) {
      tabifyDockWidget(whatif_dock_, dock);
    }
    whatif_dock_->raise();
    shares_height_ = false;
  } else if (width() < letter * kNarrow) {
    tabifyDockWidget(charts_dock_, details_dock_);
    tabifyDockWidget(charts_dock_, files_dock_);
    charts_dock_->raise();
  }
  resizeDocks({whatif_dock_, details_dock_}, {letter * 44, letter * 38}, Qt::Horizontal);
  const int wanted = fontMetrics().height() * 22;
  resizeDocks({charts_dock_}, {std::min(wanted, height() * 2 / 5)}, Qt::Vertical);
  first_layout_ = saveState();
}

// Charts get what the lanes leave, once it is known how many there are.
void MainWindow::ShareHeight() {
  if (!shares_height_ || !timeline_->isVisible() || !charts_dock_->isVisible()) return;
  shares_height_ = false;
  const int both = timeline_->height() + charts_dock_->height();
  const int least = fontMetrics().height() * 16;  // with which a chart shows its axes
  const int wanted =
      both - std::max(timeline_->ComfortableHeight(), timeline_->minimumSizeHint().height());
  resizeDocks({charts_dock_}, {std::max(least, wanted)}, Qt::Vertical);
  first_layout_ = saveState();
}

void MainWindow::closeEvent(QCloseEvent* event) {
  QSettings settings;
  settings.setValue(kGeometryKey, saveGeometry());
  settings.setValue(kDocksKey, saveState());
  QMainWindow::closeEvent(event);
}

void MainWindow::RestoreLayout(bool with_size, bool with_theme) {
  const QSettings settings;
  if (with_size) restoreGeometry(settings.value(kGeometryKey).toByteArray());
  const QByteArray docks = settings.value(kDocksKey).toByteArray();
  if (restoreState(docks)) shares_height_ = false;
  const QString theme = settings.value(kAppearanceKey).toString();
  if (with_theme && theme == Name(Appearance::kDark)) SetAppearance(Appearance::kDark);
  if (with_theme && theme == Name(Appearance::kLight)) SetAppearance(Appearance::kLight);
}

void MainWindow::Open(const QStringList& paths) {
  for (const QString& path : paths) {
    const QString whole = QFileInfo(path).absoluteFilePath();
    if (QFileInfo(path).suffix() == QLatin1String(kSessionEnding)) {
      try {
        RestoreSession(whole);
      } catch (const Error& error) {
        CouldNotOpen(QString::fromStdString(error.what()));
      }
    } else {
      opener_.Open(whole);
    }
  }
  ShowSummary();
  ShowWelcome();
}

void MainWindow::OpenSample() {
  sim::PredictRequest request;
  request.model = "llama-3.1-8b";
  request.steps = kFirstSteps;
  SetRequest(request);
  Open({QString::fromStdString(traces::TracePath("sample:32k").string())});
}

void MainWindow::OpenComparison() {
  CloseFiles();
  asked_ = false;  // what was recorded is predicted
  const auto shipped = [](const char* path) {
    return QString::fromStdString(Shipped(path).string());
  };
  Open({shipped("capture/results/traces/code-8k.kvt"), shipped("traces/measured/prkv.kvt")});
}

void MainWindow::OnOpened(const SharedFile& file) {
  const size_t row = files_->Add(file);
  files_view_->expandAll();
  Remember(file->path);
  for (const std::string& problem : file->report.problems) {
    messages_->Tell(QStringLiteral("%1: %2").arg(QFileInfo(file->path).fileName(),
                                                 QString::fromStdString(problem)));
  }
  if (restoring_) return;  // says itself what is shown
  if (file->replayable()) UseTrace(file);
  for (size_t i = 0; i < file->timelines.size(); ++i) ShowTimelineOf(row, i);
  if (!file->replayable() && file->timelines.empty() && !file->logs.empty()) {
    Activate(files_->IndexOf({FilesModel::Kind::kLog, row, 0}));
  }
  if (!file->replayable() && file->timelines.empty() && file->logs.empty()) {
    CouldNotOpen(
        QStringLiteral("%1 holds no timeline, no access log, and no layer with queries and keys: "
                       "there is nothing to show")
            .arg(QFileInfo(file->path).fileName()));
  }
  if (!asked_ && HasRecordingsTrace()) {
    PredictRecording();
  } else if (!asked_) {
    TakeStepsOfRecording();
  }
  ShowCaveats();
}

// A recording of a few steps is not set beside all that a trace has.
void MainWindow::TakeStepsOfRecording() {
  if (!trace_ || !measured_ || predicted_) return;
  const auto steps = std::ssize(files_->Timeline(*measured_)->steps());
  sim::PredictRequest request = whatif_->request();
  if (steps == 0 || request.steps == steps || steps >= trace_->info.decode_steps()) return;
  request.steps = static_cast<int32_t>(steps);
  SetRequest(request);
}

void MainWindow::UseTrace(const SharedFile& file) {
  try {
    auto predictor = std::make_shared<sim::Predictor>(file->path.toStdString());
    trace_ = file;
    worker_.SetPredictor(predictor, file->path);
    whatif_->SetTrace(predictor->info());
    result_.reset();
    former_.reset();
    failed_.reset();
    predicted_.reset();
    refining_ = true;
    last_request_ = whatif_->request();
    worker_.Predict(whatif_->request());
    ShowTitle();
  } catch (const Error& error) {
    Tell(error);
  }
}

void MainWindow::ShowTimelineOf(size_t file, size_t index) {
  const FilesModel::Item item{FilesModel::Kind::kTimeline, file, index};
  const bool prediction =
      files_->Timeline(item)->timeline().origin == traces::Timeline::Origin::kPredicted;
  // A second prediction stands opposite the first.
  const auto is = [](const std::optional<FilesModel::Item>& a, const FilesModel::Item& b) {
    return a && a->file == b.file && a->index == b.index;
  };
  const bool opposite = prediction && predicted_ && !is(predicted_, item) &&
                        (!measured_ || files_->Timeline(*measured_)->timeline().origin ==
                                           traces::Timeline::Origin::kPredicted);
  (prediction && !opposite ? predicted_ : measured_) = item;
  ShowSides();
}

void MainWindow::Activate(const QModelIndex& index) {
  if (!index.isValid()) return;
  const FilesModel::Item item = files_->ItemAt(index);
  switch (item.kind) {
    case FilesModel::Kind::kTensors:
      if (files_->files()[item.file]->replayable()) UseTrace(files_->files()[item.file]);
      break;
    case FilesModel::Kind::kTimeline:
      ShowTimelineOf(item.file, item.index);
      break;
    case FilesModel::Kind::kLog:
      log_ = item;
      charts_->SetLog(files_->Log(item));
      ShowChart(ChartsPanel::Kind::kUnits);
      ShowSides();
      break;
    case FilesModel::Kind::kFile:
    case FilesModel::Kind::kProblem:
      break;
  }
}

void MainWindow::SetRequest(const sim::PredictRequest& request) {
  try {
    whatif_->SetRequest(request);
  } catch (const Error& error) {
    Tell(error);
    return;
  }
  OnControlsChanged(request);
}

void MainWindow::OnControlsChanged(const sim::PredictRequest& request) {
  asked_ = true;
  if (last_request_ && *last_request_ != request && trace_ && !undoing_) {
    timeline_->undo_stack()->push(new RequestCommand<sim::PredictRequest>(
        QStringLiteral("change of values"), kPredictionMove, *last_request_, request,
        [this](const sim::PredictRequest& to) {
          undoing_ = true;
          SetRequest(to);
          undoing_ = false;
        }));
  }
  last_request_ = request;
  if (!moving_.isActive()) former_ = result_;
  moving_.start();
  refining_ = worker_.predictor() != nullptr;
  predicted_.reset();
  log_.reset();
  worker_.Predict(request);
  charts_->SetBase(worker_.predictor(), request);
}

void MainWindow::OnPredicted(const SharedResult& result) {
  result_ = result;
  failed_.reset();
  whatif_->ClearErrors();
  comparison_->SetNow(result_);
  charts_->SetBase(worker_.predictor(), result_->request);
  ShowSides();
  ShowSummary();
  status_->setText(
      QStringLiteral("predicted in %1 ms")
          .arg(std::chrono::duration<double, std::milli>(result_->took).count(), 0, 'f', 0));
}

void MainWindow::OnRefined(const SharedResult& refined) {
  result_ = Refine(*result_, *refined);
  refining_ = false;
  comparison_->SetNow(result_);
  ShowSummary();
  ShowRuns();
  ShowCaveats();
}

void MainWindow::OnFailed(const Error& error) {
  refining_ = false;
  failed_ = QString::fromStdString(error.problem() + "; " + error.remedy());
  comparison_->SetNow(nullptr);
  RestoreView();
  whatif_->ShowError(error);
  ShowDock(whatif_dock_);
  ShowSummary();
  ShowRuns();
  ShowCaveats();
  status_->clear();
}

void MainWindow::OnPinned(Pin pin, const SharedResult& result) {
  comparison_->SetPin(pin, result);
  ShowGhost();
  ShowSummary();
  ShowRuns();
}

void MainWindow::PinNow(Pin pin) {
  if (!result_) return;
  if (failed_) {
    statusBar()->showMessage(QStringLiteral("Nothing is pinned: these values cannot be predicted"),
                             8000);
    return;
  }
  comparison_->SetPin(pin, result_);
  statusBar()->showMessage(
      QStringLiteral("Pinned as %1: %2").arg(Name(pin)).arg(Describe(result_->request)), 8000);
  ShowGhost();
  ShowSummary();
  ShowRuns();
}

void MainWindow::GoToPin(Pin pin) {
  const SharedResult pinned = comparison_->pinned(pin);
  if (!pinned) return;
  SetRequest(pinned->request);
  if (trace_ && trace_->path == pinned->trace) return;
  if (const auto file = FindFile(pinned->trace)) UseTrace(files_->files()[*file]);
}

void MainWindow::Unpin(Pin pin) {
  pin_workers_[static_cast<size_t>(pin)].Cancel();
  comparison_->SetPin(pin, nullptr);
  ShowGhost();
  ShowSummary();
  ShowRuns();
}

void MainWindow::SetGhost(Ghost ghost) {
  ghost_ = ghost;
  ShowGhost();
  ShowSummary();
}

void MainWindow::ShowLive() {
  if (!trace_) return;
  predicted_.reset();
  log_.reset();
  ShowSides();
}

void MainWindow::SetAppearance(Appearance appearance) {
  appearance_ = appearance;
  Apply(appearance);
  ShowIcons();
  if (QAction* chosen = commands_->Find(Name(appearance))) chosen->setChecked(true);
}

void MainWindow::ChooseAppearance(Appearance appearance) {
  SetAppearance(appearance);
  QSettings().setValue(kAppearanceKey, Name(appearance));
}

void MainWindow::ShowChart(ChartsPanel::Kind kind) {
  ShowDock(charts_dock_);
  charts_->SetKind(kind);
}

void MainWindow::CouldNotOpen(const QString& why) {
  not_opened_ << why;
  messages_->Tell(why);
}

void MainWindow::Tell(const Error& error) { messages_->Tell(QString::fromStdString(error.what())); }

void MainWindow::ShowDock(QDockWidget* dock) {
  dock->show();
  dock->raise();
}

void MainWindow::SetSamples(int32_t samples) {
  worker_.SetSamples(samples);
  for (PredictionWorker& worker : pin_workers_) worker.SetSamples(samples);
}

bool MainWindow::idle() const {
  const bool pins_busy = std::any_of(pin_workers_.begin(), pin_workers_.end(),
                                     [](const PredictionWorker& w) { return w.busy(); });
  return !opener_.busy() && !worker_.busy() && !replayer_.busy() && !refining_ && !pins_busy &&
         !charts_->busy() && !restoring_ && !matching_;
}

void MainWindow::dragEnterEvent(QDragEnterEvent* event) {
  if (event->mimeData()->hasUrls()) event->acceptProposedAction();
}

void MainWindow::dropEvent(QDropEvent* event) {
  QStringList paths;
  for (const QUrl& url : event->mimeData()->urls()) {
    if (url.isLocalFile()) paths << url.toLocalFile();
  }
  event->acceptProposedAction();
  Open(paths);
}

}  // namespace stallcast::gui
