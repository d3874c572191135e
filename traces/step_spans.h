// When the steps of a timeline ran.
#pragma once

#include <cstdint>
#include <map>

#include "traces/timeline.h"

namespace stallcast::traces {

/// Whether any row is on a compute lane. A timeline of calls may name such lanes, and have none.
bool HasCompute(const Timeline& timeline);

/// From the end of the step before, where that is known, or else from its own first row, to the
/// last end of its rows on the compute lanes (without HasCompute(): on any), and of the range of
/// the host that it is, in recordings of others. Where no step is before it, work of no step that
/// its compute lanes still had to end is not its own either: it begins behind that.
struct StepSpan {
  Picoseconds start{0}, end{0};
  bool operator==(const StepSpan&) const = default;
};

/// By step, of the rows whose step is known. They follow one another in time: a step that would
/// begin before an earlier one ended, or that ended before it began (in a damaged recording), has
/// no span, and the next one begins with its own first row.
std::map<int32_t, StepSpan> StepSpans(const Timeline& timeline);

}  // namespace stallcast::traces
