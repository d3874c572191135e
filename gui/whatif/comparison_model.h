// SPDX-License-Identifier: GPL-3.0-or-later
// Predictions side by side: the one at hand and those that are pinned.
#pragma once

#include <QAbstractTableModel>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "gui/whatif/prediction_worker.h"
#include "sim/prediction_fields.h"

namespace stallcast::gui {

enum class Pin : uint8_t { kA, kB };
inline constexpr int kPins = 2;
constexpr const char* Name(Pin pin) { return pin == Pin::kA ? "A" : "B"; }

/// Rows: the parameters in which they differ, then the numbers of a prediction. Columns: now, A, B
/// and measured, and how far now is from each.
class ComparisonModel : public QAbstractTableModel {
  Q_OBJECT

 public:
  enum Column { kNow, kA, kAgainstA, kB, kAgainstB, kMeasured, kAgainstMeasured, kColumns };

  explicit ComparisonModel(QObject* parent = nullptr);

  void SetNow(SharedResult now);
  void SetPin(Pin pin, SharedResult pinned);  ///< null: not pinned
  /// Numbers of a measured timeline by the names of prediction fields; empty: there is none.
  void SetMeasured(std::map<std::string, double> measured);
  /// As it is shown, without columns that are empty.
  QString ToMarkdown() const;
  QString ToHtml() const;
  const SharedResult& pinned(Pin pin) const { return pins_[static_cast<size_t>(pin)]; }

  int rowCount(const QModelIndex& parent = {}) const override;
  int columnCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
  QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

 private:
  struct Difference {
    QString name;
    std::array<QString, kPins + 1> values;  // now, A, B
  };

  void Refresh();
  /// Of a column, or of what an against-column compares now with; NaN: not known.
  double Of(const sim::PredictionField& field, int column) const;
  bool Has(int column) const;
  QVariant Number(const sim::PredictionField& field, int column) const;

  SharedResult now_;
  std::array<SharedResult, kPins> pins_;
  std::map<std::string, double> measured_;
  std::vector<Difference> differences_;
  std::vector<const sim::PredictionField*> fields_;
};

/// Numbers of a timeline by the names of prediction fields: step times, and what its compute lanes
/// ran and waited for.
std::map<std::string, double> MeasuredFields(const TimelineModel& model);

/// What a request says, one line: "freekv, llama-3.1-8b, h200, budget=4096".
QString Describe(const sim::PredictRequest& request);

}  // namespace stallcast::gui
