// SPDX-License-Identifier: GPL-3.0-or-later
// The few numbers of a prediction that people look at first.
#pragma once

#include <QWidget>

#include "gui/timeline/timeline_model.h"
#include "sim/predict.h"

class QLabel;

namespace stallcast::gui {

class FactLines;
struct ReplayResult;

class SummaryCard : public QWidget {
  Q_OBJECT

 public:
  explicit SummaryCard(QWidget* parent = nullptr);

  /// `reference` (a pin, or what was there before) may be null.
  void Show(const sim::Prediction& prediction, const sim::Prediction* reference,
            const QString& reference_name);
  /// A recording that stands alone, by its steps; `problem`: why no more can be said.
  void ShowMeasured(const TimelineModel& model, const QString& problem);
  /// The same, replayed: unchanged or with changes. `before` may be null: what it is compared with
  /// besides the recording.
  void ShowReplay(const ReplayResult& result, const ReplayResult* before);
  /// All that it says, as one text.
  QString text() const;
  /// The first prediction is on its way.
  void ShowWaiting();
  /// There is no trace to predict from.
  void ShowNothing();
  /// There is no result, for this reason.
  void ShowFailed(const QString& what, const QString& why);
  void ShowBusy(bool busy);

 private:
  void SetFacts(const QStringList& facts, const QString& advice = {});
  void SetProblem(const QString& text);

  QLabel* step_ = nullptr;
  QLabel* change_ = nullptr;
  FactLines* facts_ = nullptr;
  QLabel* advice_ = nullptr;  // what to do next
  QLabel* problem_ = nullptr;
};

}  // namespace stallcast::gui
