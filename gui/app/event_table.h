// SPDX-License-Identifier: GPL-3.0-or-later
// The ops on the screen as a table, one by one or summed up.
#pragma once

#include <QAbstractTableModel>
#include <QTimer>
#include <QWidget>
#include <memory>
#include <vector>

#include "gui/timeline/timeline_pair.h"

class QComboBox;
class QLabel;
class QTableView;

namespace stallcast::gui {

class TimelineView;

/// Rows of either side that the view shows and its filter chooses.
class EventModel : public QAbstractTableModel {
  Q_OBJECT

 public:
  enum class By : uint8_t { kEvent, kName, kRole, kLane };
  /// The most events that are listed one by one; sums are of all.
  static constexpr int64_t kMostEvents = 50'000;

  explicit EventModel(QObject* parent = nullptr);

  void Set(std::shared_ptr<const TimelinePair> pair, std::vector<OpRef> ops, By by);
  /// Of a row of single events.
  OpRef OpAt(int row) const { return rows_[static_cast<size_t>(row)].first; }
  By by() const { return by_; }
  int64_t chosen() const { return chosen_; }  ///< events, listed or not
  /// As comma-separated values with a header, in the order shown; times in µs.
  QString ToCsv() const;

  int rowCount(const QModelIndex& parent = {}) const override;
  int columnCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
  QVariant headerData(int section, Qt::Orientation orientation, int role) const override;
  void sort(int column, Qt::SortOrder order = Qt::AscendingOrder) override;

 private:
  struct Row {
    OpRef first;  // the op, or one of the group
    int64_t count = 1;
    Picoseconds total{0}, longest{0};
    int64_t bytes = 0;
    double rate() const;
  };
  enum Column : int;
  std::vector<Column> Columns() const;
  QString TextOf(const Row& row, Column column) const;
  double NumberOf(const Row& row, Column column) const;  ///< NaN: it is a text

  std::shared_ptr<const TimelinePair> pair_;
  std::vector<Row> rows_;
  By by_ = By::kEvent;
  int64_t chosen_ = 0;
};

class EventTable : public QWidget {
  Q_OBJECT

 public:
  explicit EventTable(QWidget* parent = nullptr);

  /// Reads what the view shows, soon, and only while the table is seen.
  void Show(const TimelineView& view);
  EventModel& model() { return *model_; }

 Q_SIGNALS:
  void Chosen(stallcast::gui::OpRef op);
  void Message(const QString& text);

 protected:
  void showEvent(QShowEvent* event) override;

 private:
  void Fill();
  void Copy();

  const TimelineView* shown_ = nullptr;
  EventModel* model_ = nullptr;
  QComboBox* by_ = nullptr;
  QLabel* count_ = nullptr;
  QTableView* table_ = nullptr;
  QTimer soon_;
};

}  // namespace stallcast::gui
