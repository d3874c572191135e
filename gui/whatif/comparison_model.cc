// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/comparison_model.h"

#include <fmt/core.h>

#include <QFileInfo>
#include <QFont>
#include <QLocale>
#include <cmath>
#include <map>
#include <set>

namespace stallcast::gui {
namespace {

// Everything that a request says and that a method made of it, by name.
std::map<QString, QString> Settings(const PredictionResult& result) {
  const sim::PredictRequest& request = result.prediction.request;
  std::map<QString, QString> settings;
  settings[QStringLiteral("trace")] = QFileInfo(result.trace).fileName();
  settings[QStringLiteral("method")] = QString::fromStdString(request.method);
  settings[QStringLiteral("machine")] = QString::fromStdString(request.machine);
  settings[QStringLiteral("model")] = QString::fromStdString(result.prediction.model.name);
  settings[QStringLiteral("batch")] = QString::number(request.batch);
  settings[QStringLiteral("context")] = QString::number(request.context);
  settings[QStringLiteral("steps")] = QString::number(request.steps);
  settings[QStringLiteral("tensor parallel")] = QString::number(request.tensor_parallel);
  settings[QStringLiteral("CUDA graph")] =
      request.graph ? QStringLiteral("on") : QStringLiteral("off");
  for (const auto& [name, value] : result.prediction.params) {
    settings[QString::fromStdString(name)] = QString::fromStdString(value);
  }
  for (const auto& [path, value] : request.machine_overrides) {
    settings[QString::fromStdString(path)] = QString::fromStdString(value);
  }
  return settings;
}

QString Shown(double value) {
  if (!std::isfinite(value)) return QStringLiteral("-");
  if (std::abs(value) >= 1e5) return QLocale(QLocale::English).toString(value, 'f', 0);
  return QString::number(value, 'g', 4);
}

}  // namespace

QString Describe(const sim::PredictRequest& request) {
  QStringList parts{QString::fromStdString(request.method)};
  if (!request.model.empty()) parts << QString::fromStdString(request.model);
  parts << QString::fromStdString(request.machine);
  if (request.batch != 1) parts << QStringLiteral("batch %1").arg(request.batch);
  if (request.context != 0) parts << QStringLiteral("context %1").arg(request.context);
  if (request.tensor_parallel != 1) parts << QStringLiteral("tp %1").arg(request.tensor_parallel);
  if (request.graph) parts << QStringLiteral("graph");
  for (const auto& [name, value] : request.params) {
    parts << QString::fromStdString(fmt::format("{}={}", name, value));
  }
  for (const auto& [path, value] : request.machine_overrides) {
    parts << QString::fromStdString(fmt::format("{}={}", path, value));
  }
  return parts.join(QStringLiteral(", "));
}

ComparisonModel::ComparisonModel(QObject* parent) : QAbstractTableModel(parent) {}

void ComparisonModel::SetNow(SharedResult now) {
  now_ = std::move(now);
  Refresh();
}

void ComparisonModel::SetPin(Pin pin, SharedResult pinned) {
  pins_[static_cast<size_t>(pin)] = std::move(pinned);
  Refresh();
}

const sim::Prediction* ComparisonModel::Of(int column) const {
  const SharedResult& result = column == kNow                        ? now_
                               : column == kA || column == kAgainstA ? pins_[0]
                                                                     : pins_[1];
  return result ? &result->prediction : nullptr;
}

void ComparisonModel::Refresh() {
  beginResetModel();
  differences_.clear();
  fields_.clear();
  const std::array<const PredictionResult*, kPins + 1> all = {now_.get(), pins_[0].get(),
                                                              pins_[1].get()};
  std::map<QString, Difference> by_name;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i]) continue;
    for (const auto& [name, value] : Settings(*all[i])) {
      by_name[name].name = name;
      by_name[name].values[i] = value;
    }
  }
  for (const auto& [name, difference] : by_name) {
    std::set<QString> values;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i]) values.insert(difference.values[i]);
    }
    if (values.size() > 1) differences_.push_back(difference);
  }
  // Numbers that say something about at least one of them.
  for (const sim::PredictionField& field : sim::PredictionFields()) {
    bool known = false;
    for (const PredictionResult* result : all) {
      const double value = result ? field.Of(result->prediction) : 0;
      known |= result && std::isfinite(value) && value != 0;
    }
    if (known) fields_.push_back(&field);
  }
  endResetModel();
}

int ComparisonModel::rowCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(differences_.size() + fields_.size());
}

int ComparisonModel::columnCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(kColumns);
}

QVariant ComparisonModel::Number(const sim::PredictionField& field, int column) const {
  const sim::Prediction* prediction = Of(column);
  if (!prediction) return {};
  const double value = field.Of(*prediction);
  const bool yes_or_no = field.name == "fits";
  if (column != kAgainstA && column != kAgainstB) {
    if (yes_or_no) return value != 0 ? QStringLiteral("yes") : QStringLiteral("no");
    return Shown(value);
  }
  if (!now_ || yes_or_no) return {};
  const double now = field.Of(now_->prediction);
  if (!std::isfinite(now) || !std::isfinite(value) || value == 0) return {};
  const double percent = (now - value) / std::abs(value) * 100;
  return QStringLiteral("%1%2 %")
      .arg(percent > 0 ? QStringLiteral("+") : QString())
      .arg(percent, 0, 'f', 1);
}

QVariant ComparisonModel::data(const QModelIndex& index, int role) const {
  if (!index.isValid()) return {};
  const auto row = static_cast<size_t>(index.row());
  const bool differs = row < differences_.size();
  switch (role) {
    case Qt::DisplayRole: {
      if (!differs) return Number(*fields_[row - differences_.size()], index.column());
      if (index.column() == kAgainstA || index.column() == kAgainstB) return {};
      return differences_[row].values[index.column() == kNow ? 0 : index.column() == kA ? 1 : 2];
    }
    case Qt::TextAlignmentRole:
      return static_cast<int>(Qt::AlignRight | Qt::AlignVCenter);
    case Qt::FontRole: {
      QFont font;
      font.setBold(differs);
      return font;
    }
    case Qt::ToolTipRole:
      if (differs) return QStringLiteral("a parameter in which they differ");
      return QString::fromStdString(fields_[row - differences_.size()]->help);
    default:
      return {};
  }
}

QVariant ComparisonModel::headerData(int section, Qt::Orientation orientation, int role) const {
  if (orientation == Qt::Vertical) {
    const auto row = static_cast<size_t>(section);
    const bool differs = row < differences_.size();
    if (role == Qt::ToolTipRole && !differs && row - differences_.size() < fields_.size()) {
      return QString::fromStdString(fields_[row - differences_.size()]->help);
    }
    if (role != Qt::DisplayRole || row >= differences_.size() + fields_.size()) return {};
    if (differs) return differences_[row].name;
    return QString::fromStdString(fields_[row - differences_.size()]->name).replace('_', ' ');
  }
  if (role == Qt::ToolTipRole && (section == kA || section == kB)) {
    const SharedResult& pin = pins_[section == kA ? 0 : 1];
    if (!pin) return QStringLiteral("nothing is pinned here");
    return QStringLiteral("%1: %2").arg(QFileInfo(pin->trace).fileName(), Describe(pin->request));
  }
  if (role != Qt::DisplayRole) return {};
  static const QStringList kNames = {QStringLiteral("now"), QStringLiteral("A"),
                                     QStringLiteral("now against A"), QStringLiteral("B"),
                                     QStringLiteral("now against B")};
  return section < kNames.size() ? QVariant(kNames[section]) : QVariant();
}

}  // namespace stallcast::gui
