// What a sweep's file holds, as a table or records.
#pragma once

#include <string>

#include "sim/cli/output.h"

namespace stallcast::cli {

/// Prints all points of the file. `pareto` marks the front of step time, GPU memory and attention
/// mass among the points that fit.
void ShowSweep(const std::string& path, bool pareto, Format format);

}  // namespace stallcast::cli
