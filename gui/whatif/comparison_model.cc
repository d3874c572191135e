// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/comparison_model.h"

#include <fmt/core.h>

#include <QApplication>
#include <QFileInfo>
#include <QFont>
#include <QLocale>
#include <QPalette>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "gui/timeline/theme.h"
#include "gui/timeline/words.h"

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
  settings[QStringLiteral("program")] = QString::fromStdString(sim::ProgramOf(request));
  for (const auto& [name, value] : result.prediction.params) {
    settings[QString::fromStdString(name)] = QString::fromStdString(value);
  }
  for (const auto& [path, value] : request.machine_overrides) {
    settings[QString::fromStdString(path)] = QString::fromStdString(value);
  }
  return settings;
}

bool Ends(std::string_view name, std::string_view end) { return name.ends_with(end); }

// In the unit that people write it in.
QString Shown(const sim::PredictionField& field, double value) {
  if (!std::isfinite(value)) return QStringLiteral("-");
  const std::string& name = field.name;
  if (name == "fits") return value != 0 ? QStringLiteral("yes") : QStringLiteral("no");
  const auto time = [](double ps) { return TimeText(Picoseconds(std::llround(ps))); };
  if (Ends(name, "_ms")) return time(value * 1e9);
  if (Ends(name, "bytes_per_second")) return RateText(value);
  if (Ends(name, "per_second")) return QStringLiteral("%1 /s").arg(value, 0, 'g', 4);
  if (Ends(name, "_s")) return time(value * 1e12);
  if (Ends(name, "_bytes")) return BytesText(std::llround(value));
  if (Ends(name, "_rate") || Ends(name, "_share") || Ends(name, "_overlap") ||
      name == "above_ceiling" || name == "attention_mass" || name == "output_error") {
    return QStringLiteral("%1 %").arg(value * 100, 0, 'f', 1);
  }
  if (std::abs(value) >= 1e5) return QLocale(QLocale::English).toString(value, 'f', 0);
  return QString::number(value, 'g', 4);
}

// Its name without the unit, which stands beside the value.
QString LabelOf(const sim::PredictionField& field) {
  std::string name = field.name;
  for (const std::string_view unit : {"_bytes_per_second", "_ms", "_s", "_bytes"}) {
    if (!Ends(name, unit)) continue;
    name.resize(name.size() - unit.size());
    if (unit == "_bytes_per_second") name += "_rate";
    break;
  }
  if (name.starts_with("step_p50")) return QStringLiteral("median step");
  if (name.starts_with("step_p95")) return QStringLiteral("95 % of steps under");
  if (name.starts_with("step_mean")) return QStringLiteral("mean step");
  return QString::fromStdString(name).replace('_', ' ');
}

// 1: more is better; -1: less is; 0: neither.
int Better(const sim::PredictionField& field) {
  const std::string& name = field.name;
  if (name == "compute_busy_ms" || Ends(name, "limit_bytes")) return 0;
  if (Ends(name, "_ms") || Ends(name, "_s") || Ends(name, "_bytes") || name == "output_error" ||
      name == "above_ceiling") {
    return Ends(name, "per_second") ? 1 : -1;
  }
  if (Ends(name, "per_second") || name == "hit_rate" || name == "attention_mass" ||
      Ends(name, "_overlap") || name.starts_with("largest_")) {
    return 1;
  }
  return 0;
}

}  // namespace

QString Describe(const sim::PredictRequest& request) {
  QStringList parts{QString::fromStdString(request.method)};
  if (!request.model.empty()) parts << QString::fromStdString(request.model);
  parts << QString::fromStdString(request.machine);
  if (request.batch != 1) parts << QStringLiteral("batch %1").arg(request.batch);
  if (request.context != 0) parts << QStringLiteral("context %1").arg(request.context);
  if (request.tensor_parallel != 1) parts << QStringLiteral("tp %1").arg(request.tensor_parallel);
  if (request.host) parts << QString::fromLatin1(plan::Name(*request.host).data());
  if (request.as_run) parts << QStringLiteral("as run");
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

void ComparisonModel::SetMeasured(std::map<std::string, double> measured) {
  if (measured == measured_) return;
  measured_ = std::move(measured);
  Refresh();
}

bool ComparisonModel::Has(int column) const {
  switch (column) {
    case kNow:
      return now_ != nullptr;
    case kA:
    case kAgainstA:
      return pins_[0] != nullptr;
    case kB:
    case kAgainstB:
      return pins_[1] != nullptr;
    default:
      return !measured_.empty();
  }
}

double ComparisonModel::Of(const sim::PredictionField& field, int column) const {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  if (!Has(column)) return kUnknown;
  if (column >= kMeasured) {
    const auto found = measured_.find(field.name);
    return found == measured_.end() ? kUnknown : found->second;
  }
  return field.Of(
      (column == kNow ? now_ : pins_[column == kA || column == kAgainstA ? 0 : 1])->prediction);
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
    known |= measured_.contains(field.name);
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
  if (!Has(column)) return {};
  const double value = Of(field, column);
  if (column != kAgainstA && column != kAgainstB && column != kAgainstMeasured) {
    return Shown(field, value);
  }
  if (!now_ || field.name == "fits") return {};
  const double now = Of(field, kNow);
  if (!std::isfinite(now) || !std::isfinite(value) || value == 0) return {};
  const double percent = (now - value) / std::abs(value) * 100;
  return QStringLiteral("%1%2 %")
      .arg(percent > 0 ? QStringLiteral("+") : QString())
      .arg(percent, 0, 'f', 1);
}

QString ComparisonModel::ToMarkdown() const {
  std::vector<int> columns;
  for (int c = 0; c < kColumns; ++c) {
    if (Has(c)) columns.push_back(c);
  }
  QString text = QStringLiteral("| |");
  QString rule = QStringLiteral("|---|");
  for (const int c : columns) {
    text += ' ' + headerData(c, Qt::Horizontal, Qt::DisplayRole).toString() + QStringLiteral(" |");
    rule += QStringLiteral("---:|");
  }
  text += '\n' + rule + '\n';
  for (int r = 0; r < rowCount(); ++r) {
    text += QStringLiteral("| %1 |").arg(headerData(r, Qt::Vertical, Qt::DisplayRole).toString());
    for (const int c : columns) {
      text += ' ' + index(r, c).data().toString().replace('|', QStringLiteral("\\|")) +
              QStringLiteral(" |");
    }
    text += '\n';
  }
  return text;
}

QString ComparisonModel::ToHtml() const {
  QString html = QStringLiteral("<table>");
  for (int r = -1; r < rowCount(); ++r) {
    const char* cell = r < 0 ? "th" : "td";
    const auto add = [&](const QString& text) {
      html += QStringLiteral("<%1>%2</%1>").arg(QLatin1String(cell), text.toHtmlEscaped());
    };
    html += QStringLiteral("<tr>");
    add(r < 0 ? QString() : headerData(r, Qt::Vertical, Qt::DisplayRole).toString());
    for (int c = 0; c < kColumns; ++c) {
      if (!Has(c)) continue;
      add(r < 0 ? headerData(c, Qt::Horizontal, Qt::DisplayRole).toString()
                : index(r, c).data().toString());
    }
    html += QStringLiteral("</tr>");
  }
  return html + QStringLiteral("</table>\n");
}

QVariant ComparisonModel::data(const QModelIndex& index, int role) const {
  if (!index.isValid()) return {};
  const auto row = static_cast<size_t>(index.row());
  const bool differs = row < differences_.size();
  switch (role) {
    case Qt::DisplayRole: {
      if (!differs) return Number(*fields_[row - differences_.size()], index.column());
      if (index.column() > kB || index.column() == kAgainstA) return {};
      return differences_[row].values[index.column() == kNow ? 0 : index.column() == kA ? 1 : 2];
    }
    case Qt::ForegroundRole: {
      const bool against = index.column() == kAgainstA || index.column() == kAgainstB;
      if (differs || !against) return {};
      const sim::PredictionField& field = *fields_[row - differences_.size()];
      const double change = Of(field, kNow) - Of(field, index.column());
      const int better = Better(field);
      if (better == 0 || !(std::abs(change) > 0)) return {};
      const bool dark = qApp->palette().color(QPalette::Window).lightness() < 128;
      const Theme::Signs& signs = (dark ? Theme::Dark() : Theme::Light()).signs;
      return (change > 0) == (better > 0) ? signs.better : signs.worse;
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
    return LabelOf(*fields_[row - differences_.size()]);
  }
  if (role == Qt::ToolTipRole && (section == kA || section == kB)) {
    const SharedResult& pin = pins_[section == kA ? 0 : 1];
    if (!pin)
      return QStringLiteral("nothing is pinned here: Ctrl+%1 does").arg(section == kA ? 1 : 2);
    return QStringLiteral("%1: %2").arg(QFileInfo(pin->trace).fileName(), Describe(pin->request));
  }
  if (role != Qt::DisplayRole) return {};
  static const QStringList kNames = {QStringLiteral("now"),
                                     QStringLiteral("A"),
                                     QStringLiteral("now against A"),
                                     QStringLiteral("B"),
                                     QStringLiteral("now against B"),
                                     QStringLiteral("measured"),
                                     QStringLiteral("now against measured")};
  if (section == kA && !pins_[0]) return QStringLiteral("A (Ctrl+1 pins)");
  if (section == kB && !pins_[1]) return QStringLiteral("B (Ctrl+2 pins)");
  return section < kNames.size() ? QVariant(kNames[section]) : QVariant();
}

std::map<std::string, double> MeasuredFields(const TimelineModel& model) {
  std::map<std::string, double> fields;
  if (model.steps().empty()) return fields;
  const auto steps = static_cast<double>(model.steps().size());
  std::vector<double> times;
  double sum = 0;
  for (const TimelineModel::Step& step : model.steps()) {
    times.push_back(Milliseconds(step.end - step.begin));
    sum += times.back();
  }
  std::ranges::sort(times);
  const auto at = [&](double share) {
    return times[static_cast<size_t>(std::ceil(share * steps)) - 1];
  };
  fields["step_p50_ms"] = at(0.5);
  fields["step_p95_ms"] = at(0.95);
  fields["step_mean_ms"] = sum / steps;
  const auto& lanes = model.timeline().lanes;
  RoleSums busy{}, exposed{};
  int64_t computing = 0;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    if (lanes[lane].kind == traces::LaneKind::kHost) continue;
    const ModelLane& of = model.lanes()[lane];
    for (int32_t k = of.first_track; k < of.first_track + of.tracks; ++k) {
      const Track track = model.Ops(k);
      const RoleSums sums = track.Sum(0, track.size());
      for (size_t r = 0; r < sums.size(); ++r) {
        busy[r] += sums[r];
        if (lanes[lane].compute && !traces::MovesData(static_cast<traces::Role>(r))) {
          computing += sums[r];
        }
      }
    }
    if (!lanes[lane].compute) continue;
    const Track waits = model.ExposureTrack(static_cast<int32_t>(lane));
    const RoleSums sums = waits.Sum(0, waits.size());
    for (size_t r = 0; r < sums.size(); ++r) exposed[r] += sums[r];
  }
  const auto mean = [&](int64_t picoseconds) {
    return Milliseconds(Picoseconds(picoseconds)) / steps;
  };
  fields["compute_busy_ms"] = mean(computing);
  int64_t all = 0;
  for (size_t r = 0; r < busy.size(); ++r) {
    const std::string role = "role_" + std::string(traces::Name(static_cast<traces::Role>(r)));
    if (busy[r] > 0) fields[role + "_busy_ms"] = mean(busy[r]);
    if (exposed[r] > 0) fields[role + "_exposed_ms"] = mean(exposed[r]);
    all += exposed[r];
  }
  if (all > 0) fields["exposed_ms"] = mean(all);
  return fields;
}

}  // namespace stallcast::gui
