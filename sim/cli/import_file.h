// Files with timelines, of ours or of another program, as commands read them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "sim/cli/progress.h"
#include "traces/convert/import.h"

namespace stallcast::cli {

struct ImportFlags {
  bool strict = false;
  std::string step_range;
};

/// Adds --strict and --step-range.
void AddImportFlags(CLI::App& command, ImportFlags& flags);

/// Reads a file without its tensors' elements; where `check`, their stored bytes are checked.
traces::ImportedTrace ImportFile(const std::string& path, const ImportFlags& flags,
                                 Progress& progress, bool check);
/// The same for its timelines: says what is damaged or lost, on standard error or into `notes`.
traces::Trace ImportTimelines(const std::string& path, const ImportFlags& flags, Progress& progress,
                              std::vector<std::string>* notes = nullptr);
/// The same, where timelines without a title get the file's name.
traces::Trace ImportTitled(const std::string& path, const ImportFlags& flags, Progress& progress,
                           std::vector<std::string>* notes);

}  // namespace stallcast::cli
