// SPDX-License-Identifier: GPL-3.0-or-later
// The few numbers of a prediction that people look at first.
#pragma once

#include <QWidget>

#include "gui/timeline/timeline_model.h"
#include "sim/predict.h"

class QLabel;

namespace stallcast::gui {

class SummaryCard : public QWidget {
  Q_OBJECT

 public:
  explicit SummaryCard(QWidget* parent = nullptr);

  /// `reference` (a pin, or what was there before) may be null.
  void Show(const sim::Prediction& prediction, const sim::Prediction* reference,
            const QString& reference_name);
  /// A recording that stands alone, by its steps.
  void ShowMeasured(const TimelineModel& model);
  /// All that it says, as one text.
  QString text() const;
  /// The first prediction is on its way.
  void ShowWaiting();
  /// There is no trace to predict from.
  void ShowNothing();
  /// The values at hand cannot be predicted.
  void ShowFailed(const QString& why);
  void ShowBusy(bool busy);

 private:
  void SetProblem(const QString& text);

  QLabel* step_ = nullptr;
  QLabel* change_ = nullptr;
  QLabel* facts_ = nullptr;
  QLabel* problem_ = nullptr;
};

}  // namespace stallcast::gui
