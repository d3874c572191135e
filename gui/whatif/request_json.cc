// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/request_json.h"

#include <fmt/format.h>

#include <QJsonArray>
#include <cmath>
#include <limits>

#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

QString From(const std::string& text) { return QString::fromStdString(text); }

Error Wrong(const QString& key, const char* want) {
  return {fmt::format("'{}' is not {}", key.toStdString(), want), "session",
          "save the session again"};
}

std::string Text(const QJsonValue& value, const QString& key) {
  if (!value.isString()) throw Wrong(key, "a text");
  return value.toString().toStdString();
}

// The count that `json` has under `key`, or `fallback`.
template <class T>
T Count(const QJsonObject& json, const QString& key, T fallback) {
  if (!json.contains(key)) return fallback;
  const double value = json[key].toDouble(-1);
  if (value < 0 || value != std::floor(value) ||
      value > static_cast<double>(std::numeric_limits<int32_t>::max())) {
    throw Wrong(key, "a count");
  }
  return static_cast<T>(value);
}

}  // namespace

QJsonObject ToJson(const sim::PredictRequest& request) {
  const sim::PredictRequest defaults;
  QJsonObject json{{"method", From(request.method)}, {"machine", From(request.machine)}};
  if (!request.model.empty()) json["model"] = From(request.model);
  if (request.tensor_parallel != defaults.tensor_parallel) json["tp"] = request.tensor_parallel;
  if (request.context != defaults.context) json["context"] = static_cast<double>(request.context);
  if (request.batch != defaults.batch) json["batch"] = request.batch;
  if (request.steps != defaults.steps) json["steps"] = request.steps;
  if (request.host) json["host"] = QString::fromLatin1(plan::Name(*request.host).data());
  if (request.as_run) json["as_run"] = true;
  QJsonObject options;
  for (const auto& [name, value] : request.model_options) options[From(name)] = From(value);
  if (!options.isEmpty()) json["model options"] = options;
  if (request.repeat_heads) json["repeat_heads"] = true;
  QJsonObject params;
  for (const auto& [name, value] : request.params) params[From(name)] = From(value);
  if (!params.isEmpty()) json["params"] = params;
  QJsonArray overrides;  // in order: a later one may build on an earlier
  for (const auto& [path, value] : request.machine_overrides) {
    overrides.append(QJsonArray{From(path), From(value)});
  }
  if (!overrides.isEmpty()) json["overrides"] = overrides;
  return json;
}

sim::PredictRequest RequestFromJson(const QJsonObject& json) {
  sim::PredictRequest request;
  if (json.contains("method")) request.method = Text(json["method"], "method");
  if (json.contains("machine")) request.machine = Text(json["machine"], "machine");
  if (json.contains("model")) request.model = Text(json["model"], "model");
  request.tensor_parallel = Count(json, "tp", request.tensor_parallel);
  request.context = Count(json, "context", request.context);
  request.batch = Count(json, "batch", request.batch);
  request.steps = Count(json, "steps", request.steps);
  if (json["graph"].toBool()) request.host = plan::Host::kGraph;
  if (json.contains("host")) request.host = plan::HostNamed(Text(json["host"], "host"), "host");
  request.as_run = json["as_run"].toBool();
  const QJsonObject options = json["model options"].toObject();
  for (auto it = options.begin(); it != options.end(); ++it) {
    request.model_options[it.key().toStdString()] = Text(it.value(), it.key());
  }
  request.repeat_heads = json["repeat_heads"].toBool();
  const QJsonObject params = json["params"].toObject();
  for (auto it = params.begin(); it != params.end(); ++it) {
    request.params[it.key().toStdString()] = Text(it.value(), it.key());
  }
  for (const auto& entry : json["overrides"].toArray()) {
    const QJsonArray pair = entry.toArray();
    if (pair.size() != 2) throw Wrong("overrides", "a list of pairs");
    request.machine_overrides.emplace_back(Text(pair[0], "overrides"), Text(pair[1], "overrides"));
  }
  return request;
}

}  // namespace stallcast::gui
