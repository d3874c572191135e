// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/charts_panel.h"

#include <fmt/format.h>

#include <QComboBox>
#include <QDoubleSpinBox>
#include <QEvent>
#include <QFileDialog>
#include <QLabel>
#include <QLineEdit>
#include <QProgressBar>
#include <QPushButton>
#include <QScrollArea>
#include <QSignalBlocker>
#include <QSpinBox>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "gui/app/appearance.h"
#include "gui/app/flow_layout.h"
#include "gui/charts/chart_export.h"
#include "gui/charts/log_chart.h"
#include "gui/charts/residual_chart.h"
#include "gui/whatif/comparison_model.h"
#include "gui/whatif/request_json.h"
#include "sim/names.h"
#include "traces/common/quantity.h"

namespace stallcast::gui {
namespace {

using Kind = ChartsPanel::Kind;

struct Named {
  Kind kind;
  const char* name;
  const char* title;
};
constexpr Named kNames[] = {
    {Kind::kSteps, "steps", "Step times"},
    {Kind::kRoles, "roles", "Busy and exposed by role"},
    {Kind::kSweep, "sweep", "Sweep: time against a value"},
    {Kind::kPareto, "pareto", "Sweep: attention mass against time"},
    {Kind::kUnits, "units", "Selected, recalled and hit units"},
    {Kind::kResiduals, "residuals", "Residuals by op kind"},
    {Kind::kHelps, "helps", "What helps most"},
};

constexpr int kHalvings = 3;   // a proposed sweep goes so many factors of two below the default
constexpr int kDoublings = 4;  // and so many above
constexpr double kDigits = 3;

bool Sweeps(Kind kind) { return kind == Kind::kSweep || kind == Kind::kPareto; }

bool HasSweep(Kind kind) { return Sweeps(kind) || kind == Kind::kRoles || kind == Kind::kHelps; }

bool ComparesSides(Kind kind) { return kind == Kind::kRoles || kind == Kind::kResiduals; }

// What ExpandGrid() calls the control.
std::string AxisName(const Control& control) {
  const size_t dot = control.path.find('.');
  return dot == std::string::npos ? control.path : control.path.substr(dot + 1);
}

// The axis in the unit of its values.
SweptAxis AxisOf(const Control& control, double largest) {
  SweptAxis axis{.title = control.label, .unit = control.unit, .binary = control.integer};
  if (control.path.starts_with("machine.")) {
    const QStringList parts = QString::fromStdString(control.format(largest)).split(' ');
    axis.unit = parts.value(1);
    axis.scale = parts[0].toDouble() / largest;
  }
  return axis;
}

}  // namespace

QString ChartsPanel::Name(Kind kind) {
  return QLatin1String(kNames[static_cast<size_t>(kind)].name);
}
QString ChartsPanel::Title(Kind kind) {
  return QLatin1String(kNames[static_cast<size_t>(kind)].title);
}
std::optional<Kind> ChartsPanel::KindOf(const QString& name) {
  for (const Named& named : kNames) {
    if (name == QLatin1String(named.name)) return named.kind;
  }
  return std::nullopt;
}
const std::vector<Kind>& ChartsPanel::Kinds() {
  static const std::vector<Kind> kinds = [] {
    std::vector<Kind> all;
    for (const Named& named : kNames) all.push_back(named.kind);
    return all;
  }();
  return kinds;
}

ChartsPanel::ChartsPanel(QWidget* parent) : QWidget(parent) {
  auto* controls = new QWidget(this);
  auto* flow = new FlowLayout(controls);
  flow->setContentsMargins(6, 4, 6, 2);
  const auto add = [&](auto* widget, const char* name, const QString& tip) {
    widget->setObjectName(QLatin1String(name));
    widget->setToolTip(tip);
    widget->setAccessibleName(tip);
    flow->addWidget(widget);
    return widget;
  };
  kind_ = add(new QComboBox(controls), "kind", QStringLiteral("Chart"));
  for (const Named& named : kNames) kind_->addItem(QLatin1String(named.title));
  axis_ = add(new QComboBox(controls), "axis", QStringLiteral("Value that the sweep goes over"));
  axis_->setSizeAdjustPolicy(QComboBox::AdjustToContents);
  values_ = add(new QLineEdit(controls), "values",
                QStringLiteral("Values, as 512,1024 or 512:8192:x2 or 1:9:2"));
  values_->setMinimumWidth(fontMetrics().horizontalAdvance('0') * 34);
  which_ = add(new QComboBox(controls), "which", QStringLiteral("Methods that the sweep compares"));
  which_->addItems({QStringLiteral("this method"), QStringLiteral("all methods")});
  layer_label_ = add(new QLabel(QStringLiteral("layer"), controls), "layer_label", {});
  layer_ = add(new QComboBox(controls), "layer", QStringLiteral("Layer of the access log"));
  head_label_ = add(new QLabel(QStringLiteral("head"), controls), "head_label", {});
  head_ = add(new QSpinBox(controls), "head", QStringLiteral("Head that selects"));
  op_kind_ = add(new QComboBox(controls), "op_kind", QStringLiteral("Op kind"));
  op_kind_->setSizeAdjustPolicy(QComboBox::AdjustToContents);
  least_mass_ = add(new QDoubleSpinBox(controls), "least_mass",
                    QStringLiteral("Leaves out points with less attention mass"));
  least_mass_->setRange(0, 1);
  least_mass_->setSingleStep(0.01);
  least_mass_->setDecimals(3);
  least_mass_->setPrefix(QStringLiteral("mass ≥ "));
  least_mass_->setSpecialValueText(QStringLiteral("any mass"));
  most_gpu_ = add(new QDoubleSpinBox(controls), "most_gpu",
                  QStringLiteral("Leaves out points that take more GPU memory"));
  most_gpu_->setRange(0, 100'000);
  most_gpu_->setDecimals(1);
  most_gpu_->setPrefix(QStringLiteral("GPU ≤ "));
  most_gpu_->setSuffix(QStringLiteral(" GiB"));
  most_gpu_->setSpecialValueText(QStringLiteral("any GPU memory"));
  run_ = add(new QPushButton(QStringLiteral("Run"), controls), "run",
             QStringLiteral("Predicts every point in the background"));
  cancel_ = add(new QPushButton(QStringLiteral("Cancel"), controls), "cancel",
                QStringLiteral("Stops the sweep; what is done stays"));
  progress_ = add(new QProgressBar(controls), "progress", QStringLiteral("Points predicted"));
  progress_->setFixedWidth(fontMetrics().horizontalAdvance('0') * 26);
  save_ = add(new QPushButton(QStringLiteral("Save…"), controls), "save",
              QStringLiteral("Saves the chart as PNG, SVG, PDF, or its data as CSV"));
  note_ = new QLabel(this);
  note_->setObjectName(QStringLiteral("note"));
  note_->setProperty("role", "error");
  note_->setWordWrap(true);
  note_->setMargin(4);
  note_->hide();
  base_ = new QLabel(this);
  base_->setObjectName(QStringLiteral("base"));
  base_->setWordWrap(true);
  base_->setMargin(4);
  base_->hide();
  // Charts of many methods or op kinds scroll where the window is low.
  auto* scroll = new QScrollArea(this);
  scroll->setWidgetResizable(true);
  scroll->setFrameShape(QFrame::NoFrame);
  scroll->setFocusPolicy(Qt::NoFocus);
  scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  view_ = new ChartView(scroll);
  scroll->setWidget(view_);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(0);
  column->addWidget(controls);
  column->addWidget(note_);
  column->addWidget(base_);
  column->addWidget(scroll, 1);

  connect(kind_, &QComboBox::currentIndexChanged, this, [this] {
    ShowNote({});
    ShowControls();
    Refresh();
  });
  connect(axis_, &QComboBox::currentIndexChanged, this, &ChartsPanel::ProposeValues);
  connect(values_, &QLineEdit::returnPressed, this, &ChartsPanel::RunSweep);
  connect(run_, &QPushButton::clicked, this, &ChartsPanel::RunSweep);
  connect(cancel_, &QPushButton::clicked, this, &ChartsPanel::CancelSweep);
  connect(save_, &QPushButton::clicked, this, &ChartsPanel::Save);
  connect(layer_, &QComboBox::currentIndexChanged, this, [this] {
    ShowControls();
    Refresh();
  });
  connect(head_, &QSpinBox::valueChanged, this, &ChartsPanel::Refresh);
  connect(op_kind_, &QComboBox::currentIndexChanged, this, &ChartsPanel::Refresh);
  connect(view_, &ChartView::Chosen, this, [this](int, qint64 index) {
    if (kind() == Kind::kResiduals && op_kind_->currentIndex() == 0) {
      op_kind_->setCurrentIndex(static_cast<int>(index) + 1);
    }
  });
  for (QDoubleSpinBox* bar : {least_mass_, most_gpu_}) {
    connect(bar, &QDoubleSpinBox::valueChanged, this, &ChartsPanel::Refresh);
  }
  connect(view_, &ChartView::Clicked, this, [this](qint64 id, bool shift) {
    if (kind() == Kind::kSteps) {
      Q_EMIT StepChosen(static_cast<int>(id));
    } else if (Sweeps(kind())) {
      sim::PredictRequest request = sweep_.results().points[static_cast<size_t>(id)].request;
      request.prefill = true;
      Q_EMIT PointChosen(request, shift);
    }
  });
  for (SweepRunner* runner : {&sweep_, &method_sweep_, &help_sweep_}) {
    connect(runner, &SweepRunner::Progressed, this, [this, runner](int finished, int total) {
      if (!HasSweep(kind()) || runner != &RunnerOf(kind())) return;
      ShowProgress(finished, total);
      Refresh();
    });
    connect(runner, &SweepRunner::Failed, this, &ChartsPanel::Failed);
    connect(runner, &SweepRunner::Ended, this, [this, runner](bool cancelled) {
      const SweepResults& results = runner->results();
      if (!results.problems.empty()) {
        ShowNote(QStringLiteral("%1 of %2 points cannot be predicted; the first: %3")
                     .arg(results.problems.size())
                     .arg(results.points.size())
                     .arg(QString::fromStdString(results.problems.front())));
      } else if (cancelled) {
        ShowNote(QStringLiteral("Cancelled after %1 of %2 points")
                     .arg(results.finished)
                     .arg(results.points.size()));
      }
      ShowControls();
      Refresh();
    });
  }
  ShowControls();
  Refresh();
}

ChartsPanel::~ChartsPanel() = default;

void ChartsPanel::SetKind(Kind kind) { kind_->setCurrentIndex(static_cast<int>(kind)); }
Kind ChartsPanel::kind() const { return static_cast<Kind>(kind_->currentIndex()); }

bool ChartsPanel::busy() const {
  return sweep_.running() || method_sweep_.running() || help_sweep_.running() || comparing_;
}

SweepRunner& ChartsPanel::RunnerOf(Kind kind) {
  return kind == Kind::kRoles ? method_sweep_ : kind == Kind::kHelps ? help_sweep_ : sweep_;
}
const SweepRunner& ChartsPanel::RunnerOf(Kind kind) const {
  return kind == Kind::kRoles ? method_sweep_ : kind == Kind::kHelps ? help_sweep_ : sweep_;
}

void ChartsPanel::ShowProgress(int finished, int total) {
  progress_->setMaximum(total);
  progress_->setValue(finished);
  QString text = QStringLiteral("%1 of %2").arg(finished).arg(total);
  if (finished > 0 && finished < total) {
    const double left = static_cast<double>(since_.elapsed()) / finished * (total - finished);
    text += QStringLiteral(", %1 s left").arg(left / 1000, 0, 'f', 0);
  }
  progress_->setFormat(text);
}

bool ChartsPanel::wants_sweep() const {
  return HasSweep(kind()) && RunnerOf(kind()).results().points.empty();
}

void ChartsPanel::SetBase(std::shared_ptr<sim::Predictor> predictor,
                          const sim::PredictRequest& request) {
  const bool axes_change = axes_.empty() || request.method != request_.method ||
                           request.machine != request_.machine || predictor != predictor_;
  const bool could_predict = predictor_ != nullptr;
  predictor_ = std::move(predictor);
  request_ = request;
  if (axes_change) FillAxes();
  const bool before = of_now_;
  ShowControls();
  // An empty chart says what is missing.
  if (of_now_ != before || could_predict != (predictor_ != nullptr)) Refresh();
}

void ChartsPanel::FillAxes() {
  const QSignalBlocker quiet(axis_);
  const QString before = axis_->currentText();
  axes_.clear();
  axis_->clear();
  if (!predictor_) return;
  for (Control& control : Controls(request_, predictor_->info())) {
    // The kernels' values are too many to choose from a list.
    if (control.kind != Control::Kind::kNumber || control.path == "steps" ||
        !control.section.isEmpty()) {
      continue;
    }
    axis_->addItem(control.label);
    axes_.push_back(std::move(control));
  }
  const auto budget = std::find_if(axes_.begin(), axes_.end(),
                                   [](const Control& c) { return c.path == "param.budget"; });
  const int old = axis_->findText(before);
  if (old >= 0) {
    axis_->setCurrentIndex(old);
  } else {
    axis_->setCurrentIndex(budget == axes_.end() ? 0 : static_cast<int>(budget - axes_.begin()));
    ProposeValues();
  }
}

void ChartsPanel::ProposeValues() {
  const int index = axis_->currentIndex();
  if (index < 0 || static_cast<size_t>(index) >= axes_.size()) return;
  const Control& axis = axes_[static_cast<size_t>(index)];
  const double middle = axis.Number(request_);
  QStringList values;
  for (int i = -kHalvings; i <= kDoublings; ++i) {
    double value = middle * std::pow(2, i);
    if (!axis.logarithmic) {
      value = axis.low + (axis.high - axis.low) * (i + kHalvings) / (kHalvings + kDoublings);
    }
    if (axis.integer) value = std::round(value);
    try {
      // Beyond the context there is nothing left to choose from.
      const int64_t context =
          request_.context > 0 ? request_.context : predictor_->info().prompt_tokens();
      if (axis.path == "param.budget" && value > static_cast<double>(context)) continue;
      const std::string text = axis.format(value);
      sim::PredictRequest request = request_;
      axis.write(request, text);
      methods::MakeMethod(request.method, request.params);
      const QString plain = QString::fromStdString(text).remove(' ');
      if (!values.contains(plain) && value > 0) values << plain;
    } catch (const Error&) {
      // Out of the range that is allowed, alone or beside the other parameters.
    }
  }
  values_->setText(values.join(','));
  values_->setCursorPosition(0);
}

void ChartsPanel::SetRuns(std::vector<Run> runs, std::vector<StepTimes> others) {
  runs_ = std::move(runs);
  others_ = std::move(others);
  if (kind() == Kind::kSteps || kind() == Kind::kRoles) Refresh();
}

void ChartsPanel::SetLog(std::shared_ptr<const traces::AccessLog> log) {
  if (log == log_) return;
  log_ = std::move(log);
  if (log_) {
    const QSignalBlocker quiet(layer_);
    const QString before = layer_->currentText();
    layer_->clear();
    // A layer that attends everything has no units: begin with one that selects.
    int first = -1;
    for (size_t i = 0; i < log_->layers.size(); ++i) {
      const traces::LayerAccess& layer = log_->layers[i];
      layer_->addItem(QString::number(layer.layer) +
                      (layer.dense ? QStringLiteral(" (attends everything)") : QString()));
      if (first < 0 && !layer.dense) first = static_cast<int>(i);
    }
    const int same = layer_->findText(before);
    layer_->setCurrentIndex(same >= 0 ? same : std::max(0, first));
  }
  ShowControls();
  if (kind() == Kind::kUnits) Refresh();
}

void ChartsPanel::SetSides(std::shared_ptr<const TimelineModel> predicted,
                           std::shared_ptr<const TimelineModel> measured) {
  if (predicted == predicted_model_ && measured == measured_model_) return;
  predicted_model_ = std::move(predicted);
  measured_model_ = std::move(measured);
  comparison_.reset();
  compared_ = false;
  ++compare_ticket_;
  comparing_ = false;
  if (ComparesSides(kind())) Refresh();
}

void ChartsPanel::Compare() {
  if (compared_ || comparing_ || !predicted_model_ || !measured_model_) return;
  // Ops of another program's recording are not those of the plan with the same number.
  for (const auto& model : {predicted_model_, measured_model_}) {
    if (model->timeline().origin == traces::Timeline::Origin::kImported) return;
  }
  comparing_ = true;
  const uint64_t ticket = ++compare_ticket_;
  const auto compare = [this, ticket, predicted = predicted_model_,
                        measured = measured_model_](const std::stop_token&) {
    auto result = std::make_shared<std::optional<sim::Comparison>>();
    try {
      *result = sim::Compare(sim::Predicted<const traces::Timeline*>{&predicted->timeline()},
                             sim::Measured<const traces::Timeline*>{&measured->timeline()});
    } catch (const Error&) {
      // They have nothing in common: the chart says that it is empty.
    }
    QMetaObject::invokeMethod(
        this,
        [this, ticket, result] {
          if (ticket != compare_ticket_) return;
          comparing_ = false;
          compared_ = true;
          comparison_ = std::move(*result);
          {
            const QSignalBlocker quiet(op_kind_);
            op_kind_->clear();
            op_kind_->addItem(QStringLiteral("all kinds"));
            if (comparison_) op_kind_->addItems(MatchedKinds(*comparison_));
          }
          ShowControls();
          Refresh();
        },
        Qt::QueuedConnection);
  };
  compare_job_.Run(compare, [this, ticket](const Error& error) {
    const auto fail = [this, ticket, error] {
      if (ticket != compare_ticket_) return;
      comparing_ = false;
      compared_ = true;
      Q_EMIT Failed(error);
    };
    QMetaObject::invokeMethod(this, fail, Qt::QueuedConnection);
  });
}

void ChartsPanel::ShowControls() {
  const bool sweep = Sweeps(kind()), roles = kind() == Kind::kRoles;
  const bool helps = kind() == Kind::kHelps;
  const bool running = HasSweep(kind()) && RunnerOf(kind()).running();
  least_mass_->setVisible(sweep);
  most_gpu_->setVisible(sweep);
  axis_->setVisible(sweep);
  values_->setVisible(sweep);
  which_->setVisible(sweep);
  run_->setVisible(HasSweep(kind()) && !running);
  run_->setText(roles   ? QStringLiteral("Compare methods")
                : helps ? QStringLiteral("Rank values")
                        : QStringLiteral("Run"));
  run_->setEnabled(predictor_ != nullptr);
  cancel_->setVisible(running);
  progress_->setVisible(running);
  const bool units = kind() == Kind::kUnits && log_ && !log_->layers.empty();
  for (QWidget* w : std::initializer_list<QWidget*>{layer_label_, layer_, head_label_, head_}) {
    w->setVisible(units);
  }
  if (units) {
    const QSignalBlocker quiet(head_);
    const auto& layer = log_->layers[static_cast<size_t>(layer_->currentIndex())];
    head_->setMaximum(std::max(0, layer.heads - 1));
  }
  op_kind_->setVisible(kind() == Kind::kResiduals && comparison_.has_value());
  ShowBase();
}

// Where a sweep is not of what is set now, says of what it is.
void ChartsPanel::ShowBase() {
  const bool roles = kind() == Kind::kRoles, helps = kind() == Kind::kHelps;
  of_now_ = true;
  if (HasSweep(kind()) && !RunnerOf(kind()).results().points.empty()) {
    const SweepBase& base = roles ? method_base_ : helps ? help_base_ : sweep_base_;
    const SweepBase now = roles   ? BaseNow(true, std::nullopt)
                          : helps ? BaseNow(false, std::nullopt)
                                  : BaseNow(swept_methods_, swept_control_);
    of_now_ = predictor_ && base.predictor.lock() == predictor_ &&
              ToJson(base.request) == ToJson(now.request);
    base_->setText(QStringLiteral("Pale: of %1, not of what is set now. %2 predicts it again.")
                       .arg(base.text, run_->text()));
  }
  base_->setVisible(!of_now_);
}

QString ChartsPanel::TextOf(const sim::PredictRequest& request) const {
  QString text = Describe(request);
  if (!predictor_) return text;
  return QStringLiteral("%1, from %2")
      .arg(text, QString::fromStdString(predictor_->path().filename().string()));
}

QString ChartsPanel::TitleOf(const QString& side) const {
  const auto& model = side == QLatin1String("measured") ? measured_model_ : predicted_model_;
  return model ? QString::fromStdString(model->timeline().title) : QString();
}

ChartsPanel::SweepBase ChartsPanel::BaseNow(bool all_methods,
                                            const std::optional<Control>& swept) const {
  SweepBase base{predictor_, request_, {}};
  if (swept) swept->write(base.request, std::nullopt);
  if (all_methods) base.request.method = "all methods";
  base.text = TextOf(base.request);
  return base;
}

void ChartsPanel::ShowNote(const QString& text) {
  note_->setText(text);
  note_->setVisible(!text.isEmpty());
}

std::vector<sim::GridPoint> ChartsPanel::MethodPoints() const {
  std::vector<sim::GridPoint> points;
  for (const std::string& method : sim::MethodNames()) {
    sim::PredictRequest request = request_;
    ChangeMethod(request, method);
    request.prefill = false;
    for (sim::GridPoint& point : sim::ExpandGrid(request, {})) points.push_back(std::move(point));
  }
  return points;
}

std::vector<sim::GridPoint> ChartsPanel::Points() const {
  const Control& control = axes_[static_cast<size_t>(axis_->currentIndex())];
  const std::string name = AxisName(control);
  const sim::Axis axis =
      sim::ParseAxis(fmt::format("{}={}", name, values_->text().remove(' ').toStdString()));
  const bool parameter = control.path.starts_with("param.");
  std::vector<sim::GridPoint> points;
  for (const std::string& method : which_->currentIndex() == 0
                                       ? std::vector<std::string>{request_.method}
                                       : sim::MethodNames()) {
    sim::PredictRequest request = request_;
    ChangeMethod(request, method);
    request.prefill = false;
    if (parameter && !sim::HasParameter(method, name)) {  // one point beside the curves
      for (sim::GridPoint& point : sim::ExpandGrid(request, {})) {
        points.push_back(std::move(point));
      }
      continue;
    }
    // ExpandGrid() lays the axis under what the request says itself.
    std::erase_if(request.machine_overrides, [&](const auto& o) { return o.first == name; });
    for (sim::GridPoint& point : sim::ExpandGrid(request, {axis})) {
      points.push_back(std::move(point));
    }
  }
  return points;
}

void ChartsPanel::RunSweep() {
  if (!predictor_) return;
  ShowNote({});
  since_.start();
  try {
    if (kind() == Kind::kHelps) {
      help_sweep_.Run(predictor_, HelpPoints());
      help_base_ = BaseNow(false, std::nullopt);
    } else if (kind() == Kind::kRoles) {
      method_sweep_.Run(predictor_, MethodPoints());
      method_base_ = BaseNow(true, std::nullopt);
    } else if (Sweeps(kind()) && axis_->currentIndex() >= 0) {
      std::vector<sim::GridPoint> points = Points();
      const Control& control = axes_[static_cast<size_t>(axis_->currentIndex())];
      double largest = 0;
      for (const sim::GridPoint& point : points) {
        largest = std::max(largest, control.Number(point.request));
      }
      swept_ = AxisOf(control, largest);
      swept_control_ = control;
      swept_methods_ = which_->currentIndex() != 0;
      sweep_base_ = BaseNow(swept_methods_, swept_control_);
      sweep_.Run(predictor_, std::move(points));
    } else {
      return;
    }
  } catch (const Error& error) {
    ShowNote(QString::fromStdString(error.what()));
    return;
  }
  ShowProgress(0, static_cast<int>(RunnerOf(kind()).results().points.size()));
  ShowControls();
  Refresh();
}

void ChartsPanel::CancelSweep() {
  sweep_.Cancel();
  method_sweep_.Cancel();
  help_sweep_.Cancel();
}

// The request as it is, then each change of one value: machine values by a factor of two either
// way, switches over, choices to each other one.
std::vector<sim::GridPoint> ChartsPanel::HelpPoints() {
  std::vector<sim::GridPoint> points;
  help_changes_.clear();
  const auto add = [&](const sim::PredictRequest& request, const QString& value,
                       const QString& change) {
    try {
      for (sim::GridPoint& point : sim::ExpandGrid(request, {})) {
        help_changes_.push_back({value, change, 0, std::ssize(points)});
        points.push_back(std::move(point));
      }
    } catch (const Error&) {
      // Out of what is allowed beside the other values.
    }
  };
  sim::PredictRequest base = request_;
  base.prefill = false;
  base.samples = 0;
  add(base, {}, {});
  for (const Control& control : Controls(base, predictor_->info())) {
    const bool machine = control.path.starts_with("machine."),
               parameter = control.path.starts_with("param.");
    const auto change = [&](const std::string& text, const QString& how) {
      sim::PredictRequest request = base;
      try {
        control.write(request, text);
      } catch (const Error&) {
        return;
      }
      add(request, control.label, how);
    };
    if (control.kind == Control::Kind::kNumber && machine && control.section.isEmpty()) {
      const double value = control.Number(base);
      if (value <= 0) continue;
      change(control.format(2 * value), QStringLiteral("twice"));
      change(control.format(value / 2), QStringLiteral("half"));
    } else if (control.kind == Control::Kind::kFlag && (parameter || control.path == "as_run")) {
      const bool on = control.Value(base) == QLatin1String("on");
      change(on ? "off" : "on", on ? QStringLiteral("off") : QStringLiteral("on"));
    } else if (control.kind == Control::Kind::kChoice && (parameter || control.path == "host")) {
      for (const QString& choice : control.choices) {
        if (choice != control.Value(base)) change(choice.toStdString(), choice);
      }
    }
  }
  return points;
}

std::vector<HelpOf> ChartsPanel::Helps() const {
  std::vector<HelpOf> helps;
  const SweepResults& results = help_sweep_.results();
  if (results.predictions.empty() || !results.predictions.front()) return helps;
  const double before = Milliseconds(results.predictions.front()->metrics.step_mean);
  for (size_t i = 1; i < results.predictions.size() && i < help_changes_.size(); ++i) {
    if (!results.predictions[i]) continue;
    helps.push_back(help_changes_[i]);
    helps.back().gain_ms = before - Milliseconds(results.predictions[i]->metrics.step_mean);
  }
  return helps;
}

bool ChartsPanel::Allowed(const sim::Prediction& prediction) const {
  const double mass = prediction.selection.attention_mass;
  if (least_mass_->value() > 0 && !(mass >= least_mass_->value())) return false;
  return most_gpu_->value() == 0 ||
         static_cast<double>(prediction.gpu_memory) <= most_gpu_->value() * (1 << 30);
}

std::vector<SweepPoint> ChartsPanel::SweptPoints() const {
  if (!swept_control_) return {};
  std::vector<SweepPoint> points;
  const SweepResults& results = sweep_.results();
  for (size_t i = 0; i < results.points.size(); ++i) {
    if (!results.predictions[i] || !Allowed(*results.predictions[i])) continue;
    const sim::PredictRequest& request = results.points[i].request;
    const std::string& path = swept_control_->path;
    const bool has =
        !path.starts_with("param.") || sim::HasParameter(request.method, AxisName(*swept_control_));
    points.push_back(
        {QString::fromStdString(request.method),
         has ? swept_control_->Number(request) : std::numeric_limits<double>::quiet_NaN(),
         &*results.predictions[i], static_cast<int64_t>(i)});
  }
  return points;
}

Chart ChartsPanel::Make(Kind kind) const {
  const ChartColors colors{IsDark(palette())};
  const ChartColors sweep_colors{colors.dark, !of_now_};
  const QStringList sweep_of =
      sweep_base_.text.isEmpty() ? QStringList() : QStringList{sweep_base_.text};
  switch (kind) {
    case Kind::kSteps: {
      std::vector<StepTimes> all;
      for (const Run& run : runs_) {
        const sim::Prediction& p = run.result->prediction;
        all.push_back({run.name, p.metrics.step_times, p.sampled_steps, p.metrics.ceiling, 0,
                       Describe(run.result->request)});
      }
      for (const StepTimes& side : others_) {
        all.push_back(side);
        all.back().of = TitleOf(side.name);
      }
      return StepTimeChart(all, colors);
    }
    case Kind::kRoles: {
      // Exposed time by what ran meanwhile is all that is known of a recording, and by causes what
      // predictions tell: a chart has one of them.
      std::vector<RoleTimes> all;
      const SweepResults& methods = method_sweep_.results();
      const bool sides = comparison_ && methods.points.empty();
      for (const Run& run : sides ? std::vector<Run>() : runs_) {
        all.push_back(RoleTimesOf(run.name, run.result->prediction.metrics));
        all.back().of = Describe(run.result->request);
      }
      for (RoleTimes& side : sides ? RoleTimesOf(*comparison_) : std::vector<RoleTimes>()) {
        side.of = TitleOf(side.name);
        all.push_back(std::move(side));
      }
      for (size_t i = 0; i < methods.points.size(); ++i) {
        if (!methods.predictions[i]) continue;
        all.push_back(RoleTimesOf(QString::fromStdString(methods.points[i].request.method),
                                  methods.predictions[i]->metrics));
        all.back().pale = !of_now_;
      }
      Chart chart = RoleChart(all, colors);
      if (sides) {
        chart.note += QStringLiteral("; exposed: the GPU idle, by what ran meanwhile");
      } else if (comparison_) {
        chart.note += QStringLiteral("; without the measured run, whose causes are not known");
      }
      if (!methods.points.empty()) chart.subject << method_base_.text;
      return chart;
    }
    case Kind::kSweep: {
      Chart chart = SweepChart(SweptPoints(), swept_, sweep_colors);
      chart.subject = sweep_of;
      return chart;
    }
    case Kind::kPareto: {
      Chart chart = ParetoChart(SweptPoints(), swept_, sweep_colors);
      chart.subject = sweep_of;
      return chart;
    }
    case Kind::kHelps: {
      const SweepResults& results = help_sweep_.results();
      const bool known = !results.predictions.empty() && results.predictions.front();
      Chart chart = HelpsChart(
          Helps(), known ? Milliseconds(results.predictions.front()->metrics.step_mean) : 0,
          sweep_colors);
      if (!help_base_.text.isEmpty()) chart.subject << help_base_.text;
      return chart;
    }
    case Kind::kUnits:
      return UnitMap(log_ ? *log_ : traces::AccessLog(), layer_->currentIndex(), head_->value(),
                     colors);
    case Kind::kResiduals: {
      const sim::Comparison nothing;
      const sim::Comparison& comparison = comparison_ ? *comparison_ : nothing;
      if (op_kind_->currentIndex() > 0) {
        return ResidualHistogram(comparison, op_kind_->currentText(), colors);
      }
      Chart chart = ResidualChart(comparison, colors);
      if (comparison_) {
        for (const auto& side : {QStringLiteral("predicted"), QStringLiteral("measured")}) {
          chart.subject << QStringLiteral("%1: %2").arg(side, TitleOf(side));
        }
      }
      return chart;
    }
  }
  return {};
}

void ChartsPanel::Refresh() {
  if (!isVisible()) return;
  if (ComparesSides(kind())) Compare();
  Chart chart = Make(kind());
  if (HasSweep(kind()) && !predictor_) {
    chart.empty = QStringLiteral("Open a trace with queries and keys to predict from it");
  } else if (HasSweep(kind()) && RunnerOf(kind()).running()) {
    chart.empty = QStringLiteral("Predicting; points appear as they come");
  } else if (Sweeps(kind()) && !sweep_.results().points.empty()) {
    chart.empty = QStringLiteral("No point has the mass and the memory asked for");
  }
  if (Sweeps(kind())) {
    const auto& all = sweep_.results().predictions;
    const auto out = std::ranges::count_if(all, [&](const auto& p) { return p && !Allowed(*p); });
    if (out > 0) {
      chart.note += QStringLiteral("; %1 points miss the mass or memory asked for").arg(out);
    }
  }
  view_->SetChart(std::move(chart));
}

void ChartsPanel::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  Refresh();
}

void ChartsPanel::changeEvent(QEvent* event) {
  QWidget::changeEvent(event);
  if (event->type() == QEvent::PaletteChange && view_) Refresh();
}

void ChartsPanel::Save() {
  const QString path = QFileDialog::getSaveFileName(
      this, QStringLiteral("Save Chart"), Name(kind()) + QStringLiteral(".png"), ChartFileFilter());
  if (path.isEmpty()) return;
  try {
    view_->Save(path);
    ShowNote({});
    Q_EMIT Message(QStringLiteral("Chart saved to %1").arg(path));
  } catch (const Error& error) {
    ShowNote(QString::fromStdString(error.what()));
  }
}

}  // namespace stallcast::gui
