// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/session.h"

#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QJsonArray>
#include <QJsonDocument>
#include <QSaveFile>

#include "gui/whatif/request_json.h"
#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

constexpr int kVersion = 1;
constexpr qint64 kMostBytes = 16 << 20;
constexpr auto kVersionKey = "stallcast_session";

QJsonValue PlaceJson(const std::optional<Session::Place>& place) {
  if (!place) return {};
  return QJsonArray{place->file, place->timeline};
}

std::optional<Session::Place> PlaceFrom(const QJsonValue& json, qsizetype files) {
  const QJsonArray pair = json.toArray();
  if (pair.size() != 2) return std::nullopt;
  const Session::Place place{pair[0].toInt(-1), pair[1].toInt(-1)};
  if (place.file < 0 || place.file >= files || place.timeline < 0) return std::nullopt;
  return place;
}

QByteArray Bytes(const QJsonValue& json) {
  return QByteArray::fromBase64(json.toString().toLatin1());
}

QString Text(const QByteArray& bytes) { return QString::fromLatin1(bytes.toBase64()); }

}  // namespace

void SaveSession(const Session& session, const QString& path) {
  const QDir folder = QFileInfo(path).absoluteDir();
  const auto told = [&](const QString& file) {
    const QString relative = folder.relativeFilePath(file);
    return relative.startsWith(QStringLiteral("..")) ? file : relative;
  };
  QJsonArray files;
  for (const QString& file : session.files) files.append(told(file));
  QJsonObject pins;
  for (int pin = 0; pin < kPins; ++pin) {
    const auto& pinned = session.pins[static_cast<size_t>(pin)];
    if (!pinned) continue;
    QJsonObject json = ToJson(pinned->request);
    json["trace"] = told(pinned->trace);
    pins[Name(static_cast<Pin>(pin))] = json;
  }
  const QJsonObject json{
      {kVersionKey, kVersion},
      {"files", files},
      {"trace", session.trace.isEmpty() ? QString() : told(session.trace)},
      {"predicted", PlaceJson(session.predicted)},
      {"measured", PlaceJson(session.measured)},
      {"request", ToJson(session.request)},
      {"replay", ToJson(session.replay)},
      {"pins", pins},
      {"ghost", session.ghost},
      {"chart", session.chart},
      {"appearance", session.appearance},
      {"timeline", session.timeline},
      {"docks", Text(session.docks)},
      {"geometry", Text(session.geometry)},
  };
  QSaveFile file(path);
  const QByteArray bytes = QJsonDocument(json).toJson();
  if (!file.open(QIODevice::WriteOnly) || file.write(bytes) != bytes.size() || !file.commit()) {
    throw Error("cannot write the session", path.toStdString(), "choose another place");
  }
}

Session LoadSession(const QString& path) {
  const std::string where = path.toStdString();
  QFile file(path);
  if (!file.open(QIODevice::ReadOnly)) {
    throw Error("cannot open the session", where, "check the name and permissions");
  }
  if (file.size() > kMostBytes)
    throw Error("too large for a session", where, "choose another file");
  const QJsonDocument document = QJsonDocument::fromJson(file.readAll());
  const QJsonObject json = document.object();
  if (json[kVersionKey].toInt() < 1) {
    throw Error("this is not a session", where, "choose one that Save Session wrote");
  }
  if (json[kVersionKey].toInt() > kVersion) {
    throw Error("the session is of a newer version", where, "use a newer program");
  }
  const QDir folder = QFileInfo(path).absoluteDir();
  Session session;
  for (const auto& name : json["files"].toArray()) {
    session.files << QDir::cleanPath(folder.absoluteFilePath(name.toString()));
  }
  if (const QString trace = json["trace"].toString(); !trace.isEmpty()) {
    session.trace = QDir::cleanPath(folder.absoluteFilePath(trace));
  }
  session.predicted = PlaceFrom(json["predicted"], session.files.size());
  session.measured = PlaceFrom(json["measured"], session.files.size());
  session.request = RequestFromJson(json["request"].toObject());
  session.replay = ReplayRequestFromJson(json["replay"].toObject());
  const QJsonObject pins = json["pins"].toObject();
  for (int pin = 0; pin < kPins; ++pin) {
    const QJsonValue pinned = pins[Name(static_cast<Pin>(pin))];
    if (!pinned.isObject()) continue;
    const QString trace = pinned["trace"].toString();  // older sessions have one for all
    session.pins[static_cast<size_t>(pin)] = {
        RequestFromJson(pinned.toObject()),
        trace.isEmpty() ? session.trace : QDir::cleanPath(folder.absoluteFilePath(trace))};
  }
  session.ghost = json["ghost"].toString();
  session.chart = json["chart"].toString();
  session.appearance = json["appearance"].toString();
  session.timeline = json["timeline"].toObject();
  session.docks = Bytes(json["docks"]);
  session.geometry = Bytes(json["geometry"]);
  return session;
}

}  // namespace stallcast::gui
