// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/view_state.h"

#include <QJsonArray>
#include <utility>

namespace stallcast::gui {
namespace {

constexpr qint64 kOneMovementMilliseconds = 500;

// JSON numbers are doubles: picoseconds beyond 2^53 would be rounded.
QString TimeToJson(Picoseconds time) { return QString::number(time.count()); }

Picoseconds TimeFromJson(const QJsonValue& value, Picoseconds otherwise) {
  bool ok = false;
  const qlonglong time = value.toString().toLongLong(&ok);
  return ok ? Picoseconds(time) : otherwise;
}

QJsonArray LanesToJson(const std::set<LaneKey>& lanes) {
  QJsonArray array;
  for (const LaneKey& lane : lanes) {
    array.append(QJsonObject{{"side", lane.side == Side::kPredicted ? "predicted" : "measured"},
                             {"lane", QString::fromStdString(lane.name)}});
  }
  return array;
}

void LanesFromJson(const QJsonValue& value, std::set<LaneKey>& lanes) {
  if (!value.isArray()) return;
  lanes.clear();
  const QJsonArray array = value.toArray();
  for (const auto& item : array) {
    const QJsonObject lane = item.toObject();
    const QString name = lane["lane"].toString();
    if (name.isEmpty()) continue;
    lanes.insert({lane["side"].toString() == "measured" ? Side::kMeasured : Side::kPredicted,
                  name.toStdString()});
  }
}

QJsonArray NotesToJson(const std::vector<AxisNote>& notes) {
  QJsonArray array;
  for (const AxisNote& note : notes) {
    array.append(QJsonObject{
        {"step", note.step}, {"offset_ps", TimeToJson(note.offset)}, {"text", note.text}});
  }
  return array;
}

void NotesFromJson(const QJsonValue& value, std::vector<AxisNote>& notes) {
  if (!value.isArray()) return;
  notes.clear();
  const QJsonArray array = value.toArray();
  for (const auto& item : array) {
    const QJsonObject note = item.toObject();
    const QString text = note["text"].toString();
    if (text.isEmpty()) continue;
    notes.push_back(
        {note["step"].toInt(-1), TimeFromJson(note["offset_ps"], Picoseconds{0}), text});
  }
}

}  // namespace

QJsonObject ToJson(const ViewState& state) {
  return {{"begin_ps", TimeToJson(state.visible.begin)},
          {"end_ps", TimeToJson(state.visible.end)},
          {"filter", state.filter},
          {"align_by", state.align_by},
          {"color_by", state.color == ColorBy::kRole ? "role" : "residual"},
          {"all_waits", state.all_waits},
          {"pins", LanesToJson(state.pins)},
          {"folded", LanesToJson(state.folded)},
          {"hidden", LanesToJson(state.hidden)},
          {"notes", NotesToJson(state.notes)}};
}

ViewState FromJson(const QJsonObject& json, ViewState state) {
  state.visible.begin = TimeFromJson(json["begin_ps"], state.visible.begin);
  state.visible.end = TimeFromJson(json["end_ps"], state.visible.end);
  state.filter = json["filter"].toString(state.filter);
  state.align_by = json["align_by"].toString(state.align_by);
  const QString color = json["color_by"].toString();
  if (color == "role") state.color = ColorBy::kRole;
  if (color == "residual") state.color = ColorBy::kResidual;
  state.all_waits = json["all_waits"].toBool(state.all_waits);
  LanesFromJson(json["pins"], state.pins);
  LanesFromJson(json["folded"], state.folded);
  LanesFromJson(json["hidden"], state.hidden);
  NotesFromJson(json["notes"], state.notes);
  return state;
}

ViewCommand::ViewCommand(const QString& text, int kind, ViewState before, ViewState after,
                         Apply apply)
    : QUndoCommand(text),
      kind_(kind),
      before_(std::move(before)),
      after_(std::move(after)),
      apply_(std::move(apply)) {
  since_.start();
}

bool ViewCommand::mergeWith(const QUndoCommand* next) {
  const auto* command = dynamic_cast<const ViewCommand*>(next);
  if (command == nullptr || since_.elapsed() > kOneMovementMilliseconds) return false;
  after_ = command->after_;
  since_.restart();
  return true;
}

}  // namespace stallcast::gui
