// Options that say what is good enough to be recommended.
#pragma once

#include <CLI/CLI.hpp>

#include "sim/requirements.h"

namespace stallcast::cli {

/// Adds --min-mass, --max-gpu and --max-step.
void AddRequirements(CLI::App& command, sim::Requirements& required);

}  // namespace stallcast::cli
