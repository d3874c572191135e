// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/summary_card.h"

#include <QLabel>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>
#include <map>

#include "gui/timeline/theme.h"
#include "gui/timeline/words.h"
#include "gui/whatif/comparison_model.h"
#include "sim/prediction_fields.h"

namespace stallcast::gui {
namespace {

QString Short(double value) { return QString::number(value, 'g', 4); }

}  // namespace

SummaryCard::SummaryCard(QWidget* parent) : QWidget(parent) {
  step_ = new QLabel(QStringLiteral("-"), this);
  step_->setObjectName(QStringLiteral("step"));
  QFont large = step_->font();
  large.setPointSizeF(large.pointSizeF() * TypeScale::kHeadline);
  large.setBold(true);
  step_->setFont(large);
  change_ = new QLabel(this);
  change_->setObjectName(QStringLiteral("change"));
  change_->setWordWrap(true);
  facts_ = new QLabel(this);
  facts_->setObjectName(QStringLiteral("facts"));
  facts_->setWordWrap(true);
  facts_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  problem_ = new QLabel(this);
  problem_->setObjectName(QStringLiteral("problem"));
  problem_->setProperty("role", "error");
  problem_->setWordWrap(true);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(8, 6, 8, 4);
  column->setSpacing(2);
  column->addWidget(step_);
  column->addWidget(change_);
  column->addWidget(facts_);
  column->addWidget(problem_);
  ShowNothing();
}

void SummaryCard::SetProblem(const QString& text) {
  facts_->setVisible(!facts_->text().isEmpty());
  problem_->setText(text);
  problem_->setVisible(!text.isEmpty());
}

void SummaryCard::ShowNothing() {
  step_->setText(QStringLiteral("No prediction"));
  change_->clear();
  facts_->setText(
      QStringLiteral("Open a .kvt trace with queries and keys (Ctrl+O) or the sample "
                     "(Ctrl+Alt+O) to predict from it."));
  SetProblem({});
}

void SummaryCard::ShowWaiting() {
  step_->setText(QStringLiteral("..."));
  change_->clear();
  facts_->setText(QStringLiteral("Reading and predicting"));
  SetProblem({});
}

void SummaryCard::ShowFailed(const QString& why) {
  step_->setText(QStringLiteral("No prediction"));
  change_->clear();
  facts_->clear();
  SetProblem(QStringLiteral("These values cannot be predicted: %1").arg(why));
}

void SummaryCard::ShowBusy(bool busy) { step_->setEnabled(!busy); }

void SummaryCard::Show(const sim::Prediction& prediction, const sim::Prediction* reference,
                       const QString& reference_name) {
  const sim::Metrics& metrics = prediction.metrics;
  const double step = Milliseconds(metrics.step_p50);
  step_->setText(QStringLiteral("%1 ms median step").arg(Short(step)));
  change_->clear();
  if (reference) {
    const double before = Milliseconds(reference->metrics.step_p50);
    const double percent = before > 0 ? (step - before) / before * 100 : 0;
    change_->setText(QStringLiteral("%1%2 % against %3")
                         .arg(percent > 0 ? QStringLiteral("+") : QString())
                         .arg(percent, 0, 'f', 1)
                         .arg(reference_name));
  }
  change_->setVisible(reference != nullptr);
  QStringList facts;
  facts << QStringLiteral("95 % of steps under %1 ms").arg(Short(Milliseconds(metrics.step_p95)));
  QString mean = QStringLiteral("mean %1 ms").arg(Short(Milliseconds(metrics.step_mean)));
  if (prediction.sampled) {
    // Half of what lies between the 10th and the 90th percentile.
    const double spread = Milliseconds(prediction.sampled->p90 - prediction.sampled->p10) / 2;
    mean += QStringLiteral(" ± %1 by the calibration's spread").arg(spread, 0, 'g', 2);
  }
  facts << mean;
  facts << QStringLiteral("%1 tokens/s").arg(Short(metrics.tokens_per_second));
  const std::string most = sim::MostExposedRole(metrics);
  QString exposed = QStringLiteral("%1 ms exposed").arg(Short(Milliseconds(metrics.exposed)));
  if (!most.empty()) {
    exposed += QStringLiteral(", mostly waiting for %1").arg(QString::fromStdString(most));
  }
  facts << exposed
        << QStringLiteral("at best %1 ms (ceiling)").arg(Short(Milliseconds(metrics.ceiling)));
  const double mass = prediction.selection.attention_mass;
  if (std::isfinite(mass)) facts << QStringLiteral("attention mass %1").arg(mass, 0, 'f', 3);
  const auto memory = [&](const char* where, Bytes bytes) {
    facts << QStringLiteral("%1 %2 GiB")
                 .arg(QLatin1String(where))
                 .arg(static_cast<double>(bytes) / (1 << 30), 0, 'f', 1);
  };
  memory("GPU", prediction.gpu_memory);
  if (prediction.footprint.host > 0) memory("host", prediction.footprint.host);
  if (prediction.prefill) {
    facts << QStringLiteral("prefill %1 s").arg(Short(Seconds(*prediction.prefill)));
  }
  // Lines break between facts only.
  for (QString& fact : facts) fact.replace(' ', QChar::Nbsp);
  facts_->setText(facts.join(QStringLiteral("\u00a0· ")));
  const auto shortage = std::ranges::find_if(
      prediction.notes, [](const std::string& note) { return note.starts_with("does not fit"); });
  SetProblem(shortage == prediction.notes.end() ? QString() : QString::fromStdString(*shortage));
}

void SummaryCard::ShowMeasured(const TimelineModel& model) {
  change_->hide();
  SetProblem({});
  std::map<std::string, double> fields = MeasuredFields(model);
  QStringList facts;
  if (fields.empty()) {
    step_->setText(TimeText(model.end() - model.begin()) + QStringLiteral(" recorded"));
    facts << QStringLiteral("no steps are marked in it");
  } else {
    step_->setText(QStringLiteral("%1 ms median step, measured").arg(Short(fields["step_p50_ms"])));
    facts << QStringLiteral("%1 steps").arg(model.steps().size())
          << QStringLiteral("mean %1 ms").arg(Short(fields["step_mean_ms"]))
          << QStringLiteral("computing %1 ms").arg(Short(fields["compute_busy_ms"]));
    if (fields.contains("exposed_ms")) {
      facts << QStringLiteral("%1 ms exposed").arg(Short(fields["exposed_ms"]));
    }
  }
  for (QString& fact : facts) fact.replace(' ', QChar::Nbsp);
  facts_->setText(
      facts.join(QStringLiteral("\u00a0· ")) +
      QStringLiteral("\n\nTo predict it, open a .kvt trace with queries and keys of its model "
                     "(Ctrl+O), or the sample (Ctrl+Alt+O), and choose its model and machine."));
  facts_->show();
}

QString SummaryCard::text() const {
  QStringList parts;
  for (const QLabel* label : {step_, change_, facts_, problem_}) {
    if (!label->isHidden() && !label->text().isEmpty()) parts << label->text();
  }
  return parts.join(QStringLiteral(". ")).replace(QChar::Nbsp, ' ');
}

}  // namespace stallcast::gui
