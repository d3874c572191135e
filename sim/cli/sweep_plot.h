// The points of a sweep as a picture.
#pragma once

#include <string>

#include "sim/cli/sweep_rows.h"

namespace stallcast::cli {

/// Writes an SVG file: the values of `order`'s field over the axis with most numbers, a line for
/// each combination of all others. Points that fail or do not fit are left out. Error where no axis
/// has numbers.
void PlotSweep(const Points& points, const sim::Requirements& required, const SortOrder& order,
               const std::string& path);

}  // namespace stallcast::cli
