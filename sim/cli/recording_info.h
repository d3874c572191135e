// What `info` tells of a recording beside its lanes: steps, kinds of work, copies, notes.
#pragma once

#include <string>

#include "sim/cli/output.h"
#include "traces/timeline.h"

namespace stallcast::cli {

/// Steps, what they are made of, copies, and the ops with the largest exposed time, each a list of
/// flat objects. `machine` is whose link copies meet on when the recording is replayed.
Json SummaryJson(const traces::Timeline& timeline, const std::string& machine);
/// The same for people, with the timeline's notes.
std::string SummaryText(const traces::Timeline& timeline, const std::string& machine);

}  // namespace stallcast::cli
