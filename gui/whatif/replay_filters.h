// SPDX-License-Identifier: GPL-3.0-or-later
// From what is pointed at in a timeline to the FILTER of a change, and from there to words that go
// on.
#pragma once

#include <QString>
#include <QStringList>
#include <optional>
#include <string>
#include <vector>

#include "gui/timeline/filter.h"
#include "gui/timeline/timeline_view.h"
#include "sim/replay.h"

namespace stallcast::gui {

/// What a change may be made of.
struct ReplayTarget {
  QString title;       ///< "These ops: gemm"
  std::string filter;  ///< of sim::ParseReplayChange()
  bool copies = true;  ///< there are copies among it
  bool device = true;  ///< there is work of a GPU among it
};

/// Ops of this whole name and lane; none where the grammar cannot hold the name.
std::optional<std::string> ReplayFilterOf(const std::string& name, const std::string& lane);
/// Words of the timeline's filter as a FILTER. Error: a word has no counterpart.
std::string ReplayFilterOf(const Filter& filter, const TimelineModel& model);
/// What a menu on an op, on an area or elsewhere is about.
std::vector<ReplayTarget> ReplayTargetsOf(const TimelinePair& pair, const MenuSubject& subject);
/// Changes that may be made of a target: all but those of settings.
std::vector<sim::ReplayVerbInfo> ReplayVerbsFor(const ReplayTarget& target);

/// Names of a recording, for completion; sorted, each once.
struct RecordingWords {
  QStringList kinds, roles, names, lanes;
};
RecordingWords WordsOf(const TimelineModel& recording);
/// How a change that begins with `text` may go on: whole texts.
QStringList CompletionsOf(const QString& text, const RecordingWords& words);

}  // namespace stallcast::gui
