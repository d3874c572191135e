// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/replay_request.h"

#include <fmt/format.h>

#include <QJsonArray>

namespace stallcast::gui {

std::vector<std::string> ReplayRequest::Applied() const {
  std::vector<std::string> applied;
  for (const auto& [name, value] : settings) {
    applied.push_back(fmt::format("set {} {}", name, value));
  }
  for (const Change& change : changes) {
    if (change.on) applied.push_back(change.text);
  }
  return applied;
}

QJsonObject ToJson(const ReplayRequest& request) {
  QJsonObject settings;
  for (const auto& [name, value] : request.settings) {
    settings[QString::fromStdString(name)] = QString::fromStdString(value);
  }
  QJsonArray changes;
  for (const ReplayRequest::Change& change : request.changes) {
    changes.append(QJsonObject{{"change", QString::fromStdString(change.text)}, {"on", change.on}});
  }
  QJsonObject json;
  if (!settings.isEmpty()) json["settings"] = settings;
  if (!changes.isEmpty()) json["changes"] = changes;
  return json;
}

ReplayRequest ReplayRequestFromJson(const QJsonObject& json) {
  ReplayRequest request;
  const QJsonObject settings = json["settings"].toObject();
  for (auto it = settings.begin(); it != settings.end(); ++it) {
    request.settings[it.key().toStdString()] = it.value().toString().toStdString();
  }
  for (const auto& value : json["changes"].toArray()) {
    const QJsonObject change = value.toObject();
    request.changes.push_back(
        {change["change"].toString().toStdString(), change["on"].toBool(true)});
  }
  return request;
}

}  // namespace stallcast::gui
