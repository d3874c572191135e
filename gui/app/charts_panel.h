// SPDX-License-Identifier: GPL-3.0-or-later
// The charts: which one, what it needs, and the sweep that fills it.
#pragma once

#include <QElapsedTimer>
#include <QWidget>
#include <memory>
#include <optional>
#include <vector>

#include "gui/charts/chart_view.h"
#include "gui/charts/prediction_charts.h"
#include "gui/whatif/control.h"
#include "gui/whatif/prediction_worker.h"
#include "gui/whatif/sweep_runner.h"
#include "sim/compare.h"
#include "traces/access_log.h"

class QComboBox;
class QDoubleSpinBox;
class QLabel;
class QLineEdit;
class QProgressBar;
class QPushButton;
class QSpinBox;

namespace stallcast::gui {

class ChartsPanel : public QWidget {
  Q_OBJECT

 public:
  enum class Kind : uint8_t { kSteps, kRoles, kSweep, kPareto, kUnits, kResiduals, kHelps };
  /// Name in sessions and on the command line, and for people.
  static QString Name(Kind kind);
  static QString Title(Kind kind);
  static std::optional<Kind> KindOf(const QString& name);
  static const std::vector<Kind>& Kinds();

  explicit ChartsPanel(QWidget* parent = nullptr);
  ~ChartsPanel() override;

  void SetKind(Kind kind);
  Kind kind() const;
  /// What sweeps start from.
  void SetBase(std::shared_ptr<sim::Predictor> predictor, const sim::PredictRequest& request);
  /// Runs on the step-time and the role chart, the one at hand first; and steps of timelines.
  struct Run {
    QString name;
    SharedResult result;
  };
  void SetRuns(std::vector<Run> runs, std::vector<StepTimes> others);
  void SetLog(std::shared_ptr<const traces::AccessLog> log);
  /// Both sides of the timeline; null: nothing to compare.
  void SetSides(std::shared_ptr<const TimelineModel> predicted,
                std::shared_ptr<const TimelineModel> measured);

  /// Starts the sweep of the chart at hand, if it has one.
  void RunSweep();
  void CancelSweep();
  bool busy() const;
  /// Whether the chart at hand is filled by a sweep that has not been run.
  bool wants_sweep() const;

  ChartView& view() { return *view_; }
  /// As it is shown when chosen; without data where it has none yet.
  Chart ChartOf(Kind kind) const { return Make(kind); }
  /// Asks where to, and saves the chart; what goes wrong is told by Message.
  void Save();

 Q_SIGNALS:
  void Message(const QString& text);
  /// A step was clicked.
  void StepChosen(int step);
  /// A predicted point was clicked: it is what to predict, or to pin.
  void PointChosen(const stallcast::sim::PredictRequest& request, bool pin);
  /// Of work in the background, as a whole.
  void Failed(const stallcast::Error& error);

 protected:
  void changeEvent(QEvent* event) override;
  void showEvent(QShowEvent* event) override;

 private:
  void ShowControls();
  void FillAxes();
  void ProposeValues();
  void Refresh();
  void Compare();
  Chart Make(Kind kind) const;
  std::vector<SweepPoint> SweptPoints() const;
  void ShowNote(const QString& text);

  std::vector<sim::GridPoint> Points() const;
  std::vector<sim::GridPoint> MethodPoints() const;
  std::vector<sim::GridPoint> HelpPoints();
  std::vector<HelpOf> Helps() const;
  bool Allowed(const sim::Prediction& prediction) const;
  void ShowProgress(int finished, int total);
  SweepRunner& RunnerOf(Kind kind);
  const SweepRunner& RunnerOf(Kind kind) const;

  // What all points of a sweep have in common.
  struct SweepBase {
    std::weak_ptr<sim::Predictor> predictor;
    sim::PredictRequest request;
    QString text;
  };
  SweepBase BaseNow(bool all_methods, const std::optional<Control>& swept) const;
  QString TextOf(const sim::PredictRequest& request) const;
  QString TitleOf(const QString& side) const;  ///< of a side's timeline
  void ShowBase();

  std::shared_ptr<sim::Predictor> predictor_;
  sim::PredictRequest request_;
  std::vector<Run> runs_;
  std::vector<StepTimes> others_;
  std::shared_ptr<const traces::AccessLog> log_;
  std::shared_ptr<const TimelineModel> predicted_model_, measured_model_;
  std::optional<sim::Comparison> comparison_;
  bool compared_ = false;  // these two models
  bool comparing_ = false;
  std::vector<Control> axes_;  // numbers that can be swept
  SweptAxis swept_;            // of the results
  std::optional<Control> swept_control_;
  bool swept_methods_ = false;
  SweepBase sweep_base_, method_base_, help_base_;
  std::vector<HelpOf> help_changes_;  // one a point, gains still to be known
  double help_step_ms_ = 0;           // before any change
  QElapsedTimer since_;               // a sweep began
  bool of_now_ = true;                // the chart's sweep is of what is set now

  QComboBox* kind_ = nullptr;
  QComboBox* axis_ = nullptr;
  QLineEdit* values_ = nullptr;
  QComboBox* which_ = nullptr;
  QPushButton* run_ = nullptr;
  QPushButton* cancel_ = nullptr;
  QPushButton* save_ = nullptr;
  QProgressBar* progress_ = nullptr;
  QDoubleSpinBox* least_mass_ = nullptr;
  QDoubleSpinBox* most_gpu_ = nullptr;
  QLabel* layer_label_ = nullptr;
  QComboBox* layer_ = nullptr;  // by place in the log
  QLabel* head_label_ = nullptr;
  QSpinBox* head_ = nullptr;
  QComboBox* op_kind_ = nullptr;
  QLabel* note_ = nullptr;
  QLabel* base_ = nullptr;
  ChartView* view_ = nullptr;

  SweepRunner sweep_;
  SweepRunner method_sweep_;
  SweepRunner help_sweep_;
  uint64_t compare_ticket_ = 0;
  LatestJob compare_job_;  // last: stops before the rest goes
};

}  // namespace stallcast::gui
