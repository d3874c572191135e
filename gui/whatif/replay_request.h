// SPDX-License-Identifier: GPL-3.0-or-later
// What is changed about a recording.
#pragma once

#include <QJsonObject>
#include <map>
#include <string>
#include <vector>

namespace stallcast::gui {

struct ReplayRequest {
  struct Change {
    std::string text;  ///< as `stallcast replay --change` takes it
    bool on = true;    ///< off: kept in the list, without effect
    bool operator==(const Change&) const = default;
  };
  std::map<std::string, std::string> settings;  ///< by name of sim::ReplaySettings(): "2x"
  std::vector<Change> changes;                  ///< in the order in which they add up
  bool operator==(const ReplayRequest&) const = default;

  /// Changes that have an effect, as texts: settings come first.
  std::vector<std::string> Applied() const;
};

QJsonObject ToJson(const ReplayRequest& request);
/// Takes texts as they are: whether they make sense shows when it is replayed.
ReplayRequest ReplayRequestFromJson(const QJsonObject& json);

}  // namespace stallcast::gui
