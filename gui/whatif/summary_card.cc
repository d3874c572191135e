// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/summary_card.h"

#include <QLabel>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "gui/timeline/theme.h"
#include "gui/timeline/words.h"
#include "gui/whatif/comparison_model.h"
#include "gui/whatif/fact_lines.h"
#include "gui/whatif/replay_worker.h"
#include "sim/prediction_fields.h"

namespace stallcast::gui {
namespace {

QString Short(double value) { return QString::number(value, 'g', 4); }

QString PercentAgainst(double value, double reference, const QString& name) {
  const double percent = reference > 0 ? (value - reference) / reference * 100 : 0;
  return QStringLiteral("%1%2 % against %3")
      .arg(percent > 0 ? QStringLiteral("+") : QString())
      .arg(percent, 0, 'f', 1)
      .arg(name);
}

// The largest three, as "recall 60.1, host 20"; none that is lost beside the first.
QString Largest(const std::map<std::string, Picoseconds>& times) {
  constexpr size_t kMost = 3;
  constexpr int kLost = 100;  // times less
  std::vector<std::pair<Picoseconds, std::string>> sorted;
  for (const auto& [kind, time] : times) sorted.emplace_back(time, kind);
  std::ranges::sort(sorted, std::greater<>());
  QStringList texts;
  for (size_t i = 0; i < std::min(kMost, sorted.size()); ++i) {
    const auto& [time, kind] = sorted[i];
    if (time.count() <= 0 || time * kLost < sorted[0].first) break;
    texts << QStringLiteral("%1 %2").arg(Text(kind), Short(Milliseconds(time)));
  }
  return texts.join(QStringLiteral(", "));
}

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
  facts_ = new FactLines(this);
  facts_->setObjectName(QStringLiteral("facts"));
  advice_ = new QLabel(this);
  advice_->setWordWrap(true);
  advice_->setProperty("role", "muted");
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
  column->addWidget(advice_);
  column->addWidget(problem_);
  ShowNothing();
}

void SummaryCard::SetFacts(const QStringList& facts, const QString& advice) {
  facts_->SetFacts(facts);
  facts_->setVisible(!facts.isEmpty());
  advice_->setText(advice);
  advice_->setVisible(!advice.isEmpty());
}

void SummaryCard::SetProblem(const QString& text) {
  problem_->setText(text);
  problem_->setVisible(!text.isEmpty());
}

void SummaryCard::ShowNothing() {
  step_->setText(QStringLiteral("No prediction"));
  change_->clear();
  SetFacts({}, QStringLiteral("Open a .kvt trace with queries and keys (Ctrl+O) or the sample "
                              "(Ctrl+Alt+O) to predict from it."));
  SetProblem({});
}

void SummaryCard::ShowWaiting() {
  step_->setText(QStringLiteral("..."));
  change_->clear();
  SetFacts({QStringLiteral("Reading and predicting")});
  SetProblem({});
}

void SummaryCard::ShowFailed(const QString& what, const QString& why) {
  step_->setText(QStringLiteral("No %1").arg(what));
  change_->clear();
  SetFacts({});
  SetProblem(why);
}

void SummaryCard::ShowBusy(bool busy) { step_->setEnabled(!busy); }

void SummaryCard::Show(const sim::Prediction& prediction, const sim::Prediction* reference,
                       const QString& reference_name) {
  const sim::Metrics& metrics = prediction.metrics;
  const double step = Milliseconds(metrics.step_p50);
  step_->setText(QStringLiteral("%1 ms median step").arg(Short(step)));
  change_->clear();
  if (reference) {
    change_->setText(
        PercentAgainst(step, Milliseconds(reference->metrics.step_p50), reference_name));
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
  SetFacts(facts);
  const auto shortage = std::ranges::find_if(
      prediction.notes, [](const std::string& note) { return note.starts_with("does not fit"); });
  SetProblem(shortage == prediction.notes.end() ? QString() : QString::fromStdString(*shortage));
}

void SummaryCard::ShowMeasured(const TimelineModel& model, const QString& problem) {
  change_->hide();
  SetProblem(problem);
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
  SetFacts(facts, QStringLiteral(
                      "To predict it, open a .kvt trace with queries and keys of its model "
                      "(Ctrl+O), or the sample (Ctrl+Alt+O), and choose its model and machine."));
}

void SummaryCard::ShowReplay(const ReplayResult& result, const ReplayResult* before) {
  SetProblem({});
  const ReplayedRecording& of = *result.of;
  const double step = Milliseconds(result.figures.summary.step);
  const double recorded = Milliseconds(of.recorded.step);
  const bool changed = result.model != nullptr;
  step_->setText(changed ? QStringLiteral("%1 ms median step, replayed").arg(Short(step))
                         : QStringLiteral("%1 ms median step, measured").arg(Short(recorded)));
  change_->setVisible(changed);
  if (changed) {
    QString against =
        PercentAgainst(step, recorded, QStringLiteral("%1 ms as recorded").arg(Short(recorded)));
    if (before != nullptr && before->model != nullptr) {
      const double was = Milliseconds(before->figures.summary.step);
      against += QStringLiteral(", ") + PercentAgainst(step, was, QStringLiteral("before"));
    }
    change_->setText(against);
  }
  QStringList facts;
  const auto steps = std::ssize(of.recorded.steps);
  facts << (steps == 1 ? QStringLiteral("1 step") : QStringLiteral("%1 steps").arg(steps));
  facts << QStringLiteral("replayed unchanged %1 ms (%2)")
               .arg(Short(Milliseconds(of.unchanged.summary.step)))
               .arg(SignedShareText(of.ReplayError()));
  const sim::TimelineSummary& summary = result.figures.summary;
  facts << QStringLiteral("computing %1 ms").arg(Short(Milliseconds(summary.computing)));
  std::map<std::string, Picoseconds> exposed;
  for (const auto& [kind, totals] : summary.kinds) exposed[kind] = totals.exposed;
  exposed["nothing runs"] = summary.nothing;
  const QString waits = Largest(exposed), path = Largest(result.figures.critical);
  facts << QStringLiteral("%1 ms exposed%2%3")
               .arg(Short(Milliseconds(summary.exposed)))
               .arg(waits.isEmpty() ? QString() : QStringLiteral(": "))
               .arg(waits);
  if (!path.isEmpty()) facts << QStringLiteral("critical path: %1").arg(path);
  facts
      << QStringLiteral("at best %1 ms (ceiling)").arg(Short(Milliseconds(result.figures.ceiling)));
  SetFacts(facts);
}

QString SummaryCard::text() const {
  QStringList parts;
  for (const QLabel* label : {step_, change_}) {
    if (!label->isHidden() && !label->text().isEmpty()) parts << label->text();
  }
  if (!facts_->isHidden()) parts << facts_->facts().join(QStringLiteral(" · "));
  for (const QLabel* label : {advice_, problem_}) {
    if (!label->isHidden() && !label->text().isEmpty()) parts << label->text();
  }
  return parts.join(QStringLiteral(". "));
}

}  // namespace stallcast::gui
