// The commands of `stallcast`, one file each. Each function adds its subcommand with its options,
// its help and a callback that runs it (see program.h).
#pragma once

#include <CLI/CLI.hpp>

namespace stallcast::cli {

/// The trace that the examples in the help use.
#define STALLCAST_SAMPLE "sample:8k"

void AddInfo(CLI::App& app);
void AddPredict(CLI::App& app);
void AddSweep(CLI::App& app);
void AddCompare(CLI::App& app);
void AddExport(CLI::App& app);
void AddSynth(CLI::App& app);
void AddReproduce(CLI::App& app);
void AddTrim(CLI::App& app);
void AddReplay(CLI::App& app);
void AddAdvise(CLI::App& app);
void AddProfile(CLI::App& app);
void AddCompletion(CLI::App& app);

}  // namespace stallcast::cli
