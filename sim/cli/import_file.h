// Files with timelines, of ours or of another program, as commands read them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "traces/convert/import.h"

namespace stallcast::cli {

struct ImportFlags {
  bool strict = false;
  std::string step_range;
};

/// Adds --strict and --step-range.
void AddImportFlags(CLI::App& command, ImportFlags& flags);

/// Reads a file without its tensors' elements, with a progress bar on a terminal; where `check`,
/// their stored bytes are checked.
traces::ImportedTrace ImportFile(const std::string& path, const ImportFlags& flags, bool check);
/// The same for its timelines: says what is damaged or lost, on standard error or into `notes`.
traces::Trace ImportTimelines(const std::string& path, const ImportFlags& flags,
                              std::vector<std::string>* notes = nullptr);

}  // namespace stallcast::cli
