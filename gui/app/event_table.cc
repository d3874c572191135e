// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/event_table.h"

#include <QAction>
#include <QApplication>
#include <QClipboard>
#include <QComboBox>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QPushButton>
#include <QTableView>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "gui/timeline/timeline_view.h"
#include "gui/timeline/words.h"

namespace stallcast::gui {
namespace {

constexpr int kSoonMilliseconds = 120;

QString SideText(Side side) {
  return side == Side::kPredicted ? QStringLiteral("predicted") : QStringLiteral("measured");
}

}  // namespace

enum EventModel::Column : int {
  kSide,
  kName,
  kRole,
  kLane,
  kStep,
  kLayer,
  kStart,
  kDuration,
  kCount,
  kTotal,
  kMean,
  kLongest,
  kBytes,
  kRate,
  kResidual
};

double EventModel::Row::rate() const {
  return total.count() > 0 && bytes > 0 ? static_cast<double>(bytes) / Seconds(total)
                                        : std::numeric_limits<double>::quiet_NaN();
}

EventModel::EventModel(QObject* parent) : QAbstractTableModel(parent) {}

std::vector<EventModel::Column> EventModel::Columns() const {
  switch (by_) {
    case By::kEvent:
      return {kSide,  kName,     kRole,  kLane, kStep,    kLayer,
              kStart, kDuration, kBytes, kRate, kResidual};
    case By::kName:
      return {kSide, kName, kRole, kCount, kTotal, kMean, kLongest, kBytes, kRate};
    case By::kRole:
      return {kSide, kRole, kCount, kTotal, kMean, kLongest, kBytes, kRate};
    case By::kLane:
      return {kSide, kLane, kCount, kTotal, kMean, kLongest, kBytes, kRate};
  }
  return {};
}

void EventModel::Set(std::shared_ptr<const TimelinePair> pair, std::vector<OpRef> ops, By by) {
  beginResetModel();
  pair_ = std::move(pair);
  by_ = by;
  rows_.clear();
  chosen_ = std::ssize(ops);
  std::map<std::tuple<Side, int64_t, int64_t>, size_t> groups;
  for (const OpRef op : ops) {
    const traces::Timeline& t = pair_->model(op.side)->timeline();
    const auto i = static_cast<size_t>(op.row);
    size_t at = rows_.size();
    if (by_ != By::kEvent) {
      const int64_t role = static_cast<int64_t>(t.role[i]);
      const auto key = by_ == By::kName   ? std::tuple(op.side, int64_t{t.name[i]}, role)
                       : by_ == By::kRole ? std::tuple(op.side, role, int64_t{0})
                                          : std::tuple(op.side, int64_t{t.lane[i]}, int64_t{0});
      at = groups.try_emplace(key, at).first->second;
    } else if (std::ssize(rows_) >= kMostEvents) {
      break;
    }
    if (at == rows_.size()) rows_.push_back({.first = op, .count = 0});
    Row& row = rows_[at];
    ++row.count;
    row.total += t.duration[i];
    row.longest = std::max(row.longest, t.duration[i]);
    if (__builtin_add_overflow(row.bytes, t.bytes[i], &row.bytes)) {  // a file may hold any number
      row.bytes = std::numeric_limits<int64_t>::max();
    }
  }
  if (by_ != By::kEvent) {
    std::ranges::stable_sort(rows_, std::ranges::greater(), &Row::total);
  }
  endResetModel();
}

int EventModel::rowCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}

int EventModel::columnCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(Columns().size());
}

double EventModel::NumberOf(const Row& row, Column column) const {
  const traces::Timeline& t = pair_->model(row.first.side)->timeline();
  const auto i = static_cast<size_t>(row.first.row);
  switch (column) {
    case kStep:
      return t.step[i];
    case kLayer:
      return t.layer[i];
    case kStart:
      return Seconds(t.start[i]) * 1e6;
    case kDuration:
    case kTotal:
      return Seconds(row.total) * 1e6;
    case kMean:
      return Seconds(row.total) * 1e6 / static_cast<double>(row.count);
    case kLongest:
      return Seconds(row.longest) * 1e6;
    case kCount:
      return static_cast<double>(row.count);
    case kBytes:
      return static_cast<double>(row.bytes);
    case kRate:
      return row.rate();
    case kResidual:
      return pair_->both() ? pair_->Residual(row.first) * 100.0
                           : std::numeric_limits<double>::quiet_NaN();
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

QString EventModel::TextOf(const Row& row, Column column) const {
  const TimelineModel& model = *pair_->model(row.first.side);
  const traces::Timeline& t = model.timeline();
  const auto i = static_cast<size_t>(row.first.row);
  const double number = NumberOf(row, column);
  const auto time = [&] {
    return TimeText(Picoseconds(static_cast<int64_t>(std::llround(number * 1e6))));
  };
  switch (column) {
    case kSide:
      return SideText(row.first.side);
    case kName:
      return ShortName(model.NameOf(row.first.row));
    case kRole:
      return Text(std::string(traces::Name(t.role[i])));
    case kLane:
      return Text(t.lanes[t.lane[i]].name);
    case kStep:
    case kLayer:
      return number < 0 ? QString() : QString::number(number);
    case kStart:
    case kDuration:
    case kTotal:
    case kMean:
    case kLongest:
      return time();
    case kCount:
      return CountText(row.count);
    case kBytes:
      return row.bytes > 0 ? BytesText(row.bytes) : QString();
    case kRate:
      return std::isnan(number) ? QString() : RateText(number);
    case kResidual:
      return std::isfinite(number) ? SignedShareText(number / 100) : QString();
  }
  return {};
}

QVariant EventModel::data(const QModelIndex& index, int role) const {
  if (!index.isValid() || static_cast<size_t>(index.row()) >= rows_.size()) return {};
  const Row& row = rows_[static_cast<size_t>(index.row())];
  const Column column = Columns()[static_cast<size_t>(index.column())];
  if (role == Qt::DisplayRole) return TextOf(row, column);
  if (role == Qt::ToolTipRole && column == kName) {
    return Text(pair_->model(row.first.side)->NameOf(row.first.row));
  }
  if (role == Qt::TextAlignmentRole) {
    return static_cast<int>((column >= kStep ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignVCenter);
  }
  return {};
}

QVariant EventModel::headerData(int section, Qt::Orientation orientation, int role) const {
  if (role != Qt::DisplayRole || orientation == Qt::Vertical) return {};
  static const QStringList kNames = {"side",  "name",    "role",     "lane",  "step",
                                     "layer", "start",   "duration", "count", "total",
                                     "mean",  "longest", "bytes",    "rate",  "residual"};
  const auto columns = Columns();
  if (section < 0 || static_cast<size_t>(section) >= columns.size()) return {};
  return kNames[columns[static_cast<size_t>(section)]];
}

void EventModel::sort(int column, Qt::SortOrder order) {
  const auto columns = Columns();
  if (!pair_ || column < 0 || static_cast<size_t>(column) >= columns.size()) return;
  const Column by = columns[static_cast<size_t>(column)];
  beginResetModel();
  const bool texts = by < kStep;
  const auto less = [&](const Row& a, const Row& b) {
    if (texts) return TextOf(a, by) < TextOf(b, by);
    const double x = NumberOf(a, by), y = NumberOf(b, by);
    return !std::isnan(x) && (std::isnan(y) || x < y);
  };
  std::stable_sort(rows_.begin(), rows_.end(), [&](const Row& a, const Row& b) {
    return order == Qt::AscendingOrder ? less(a, b) : less(b, a);
  });
  endResetModel();
}

QString EventModel::ToCsv() const {
  const auto columns = Columns();
  const auto quoted = [](QString text) {
    if (!text.contains(',') && !text.contains('"')) return text;
    return '"' + text.replace('"', QStringLiteral("\"\"")) + '"';
  };
  QStringList header;
  for (size_t c = 0; c < columns.size(); ++c) {
    QString name = headerData(static_cast<int>(c), Qt::Horizontal, Qt::DisplayRole).toString();
    if (columns[c] == kRate) name += QStringLiteral("_bytes_per_s");
    if (columns[c] == kResidual) name += QStringLiteral("_percent");
    if (columns[c] == kStart || columns[c] == kDuration || columns[c] == kTotal ||
        columns[c] == kMean || columns[c] == kLongest) {
      name += QStringLiteral("_us");
    }
    header << name;
  }
  QStringList lines{header.join(',')};
  for (const Row& row : rows_) {
    QStringList cells;
    for (const Column column : columns) {
      if (column < kStep) {
        cells << quoted(column == kName ? Text(pair_->model(row.first.side)->NameOf(row.first.row))
                                        : TextOf(row, column));
      } else {
        const double number = NumberOf(row, column);
        cells << (std::isfinite(number) ? QString::number(number, 'g', 12) : QString());
      }
    }
    lines << cells.join(',');
  }
  return lines.join('\n') + '\n';
}

EventTable::EventTable(QWidget* parent) : QWidget(parent) {
  model_ = new EventModel(this);
  by_ = new QComboBox(this);
  by_->setObjectName(QStringLiteral("by"));
  by_->addItems({QStringLiteral("each event"), QStringLiteral("summed by name"),
                 QStringLiteral("summed by role"), QStringLiteral("summed by lane")});
  by_->setAccessibleName(QStringLiteral("Events, or their sums"));
  count_ = new QLabel(this);
  count_->setObjectName(QStringLiteral("count"));
  auto* copy = new QPushButton(QStringLiteral("Copy as CSV"), this);
  copy->setObjectName(QStringLiteral("copy"));
  table_ = new QTableView(this);
  table_->setModel(model_);
  table_->setAccessibleName(QStringLiteral("Events on the screen"));
  table_->setSortingEnabled(true);
  table_->horizontalHeader()->setSortIndicatorShown(false);
  table_->horizontalHeader()->setStretchLastSection(true);
  table_->verticalHeader()->hide();
  table_->setAlternatingRowColors(true);
  table_->setTabKeyNavigation(false);  // Tab leaves the table
  table_->setSelectionBehavior(QAbstractItemView::SelectRows);
  auto* csv = new QAction(QStringLiteral("Copy as CSV"), table_);
  csv->setShortcut(QKeySequence::Copy);
  csv->setShortcutContext(Qt::WidgetShortcut);
  connect(csv, &QAction::triggered, this, &EventTable::Copy);
  table_->addAction(csv);
  table_->setContextMenuPolicy(Qt::ActionsContextMenu);
  auto* line = new QHBoxLayout;
  line->setContentsMargins(6, 4, 6, 2);
  line->addWidget(by_);
  line->addWidget(count_, 1);
  line->addWidget(copy);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(0, 0, 0, 0);
  column->addLayout(line);
  column->addWidget(table_, 1);
  soon_.setSingleShot(true);
  soon_.setInterval(kSoonMilliseconds);
  connect(&soon_, &QTimer::timeout, this, &EventTable::Fill);
  connect(by_, &QComboBox::currentIndexChanged, this, &EventTable::Fill);
  connect(copy, &QPushButton::clicked, this, &EventTable::Copy);
  connect(table_, &QTableView::activated, this,
          [this](const QModelIndex& index) { Q_EMIT Chosen(model_->OpAt(index.row())); });
}

void EventTable::Show(const TimelineView& view) {
  shown_ = &view;
  if (isVisible()) soon_.start();
}

void EventTable::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  Fill();
}

void EventTable::Fill() {
  std::vector<OpRef> ops;
  const auto pair = shown_ ? shown_->pair() : nullptr;
  if (pair) {
    const AxisRange visible = shown_->visible();
    for (const Side side : kSides) {
      const auto& model = pair->model(side);
      if (!model) continue;
      const Alignment& alignment = shown_->alignment();
      const AxisMap& map = side == Side::kPredicted ? alignment.predicted : alignment.measured;
      const Picoseconds begin = map.FromAxis(visible.begin), end = map.FromAxis(visible.end);
      for (size_t k = 0; k < model->tracks().size(); ++k) {
        const Track track = model->Ops(static_cast<int32_t>(k));
        int64_t row = track.Before(begin);
        if (row > 0 && track.end(row - 1) > begin) --row;
        for (; row < track.size() && track.start(row) < end; ++row) {
          const OpRef op{side, track.first_row() + row};
          if (shown_->Chooses(op)) ops.push_back(op);
        }
      }
    }
  }
  model_->Set(pair, std::move(ops), static_cast<EventModel::By>(by_->currentIndex()));
  QString count = QStringLiteral("%1 events in view").arg(CountText(model_->chosen()));
  if (model_->by() == EventModel::By::kEvent && model_->chosen() > EventModel::kMostEvents) {
    count += QStringLiteral(", %1 listed: zoom in for the others")
                 .arg(CountText(EventModel::kMostEvents));
  }
  count_->setText(count);
  for (int c = 0; c < model_->columnCount(); ++c) {
    if (model_->headerData(c, Qt::Horizontal, Qt::DisplayRole) == QStringLiteral("name")) {
      table_->setColumnWidth(c, fontMetrics().horizontalAdvance('0') * 34);
    }
  }
}

void EventTable::Copy() {
  QApplication::clipboard()->setText(model_->ToCsv());
  Q_EMIT Message(QStringLiteral("%1 rows are copied").arg(CountText(model_->rowCount())));
}

}  // namespace stallcast::gui
