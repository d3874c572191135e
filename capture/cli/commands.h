// The commands of `stallcast-gpu`, one file each (see sim/cli/program.h).
#pragma once

#include <CLI/CLI.hpp>

namespace stallcast::cli {

void AddRecord(CLI::App& app);
/// Only with the CUDA toolkit.
void AddRun(CLI::App& app);
void AddCalibrate(CLI::App& app);
void AddBench(CLI::App& app);

}  // namespace stallcast::cli
