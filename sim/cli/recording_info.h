// What `info` tells of a recording beside its lanes: steps, kinds of work, copies, notes.
#pragma once

#include <string>

#include "sim/cli/output.h"
#include "traces/timeline.h"

namespace stallcast::cli {

/// Steps, what they are made of, and copies, each a list of flat objects.
Json SummaryJson(const traces::Timeline& timeline);
/// The same for people, with the timeline's notes.
std::string SummaryText(const traces::Timeline& timeline);

}  // namespace stallcast::cli
