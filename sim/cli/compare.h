// stallcast compare: its options, the comparison of two timelines, and its record.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/cli/import_file.h"
#include "sim/cli/output.h"
#include "sim/compare.h"
#include "sim/compare_programs.h"

namespace stallcast::cli {

struct CompareOptions {
  std::string by = "kind";
  int predicted = 0, measured = 0;  ///< 1, 2, ... among the timelines; 0: the only one
  ImportFlags flags;

  void AddTo(CLI::App& command);
};

/// Two timelines: op by op where one is a prediction and the other a run of the same plan, else
/// kind by kind as programs.
struct Compared {
  traces::Timeline first, second;
  std::optional<sim::Comparison> ops;
  std::string by;
  std::vector<sim::ResidualSummary> groups;  ///< of `ops`, by `by`
  std::optional<sim::ProgramComparison> programs;
};

/// Compares two of the timelines, which `where` names. Unless the options choose: a prediction and
/// a recording, or the only two. Usage Error where that is not clear.
Compared RunCompare(std::vector<traces::Timeline> timelines, const std::string& where,
                    const CompareOptions& options);
/// As `--format json` prints it.
Json RecordOf(const Compared& compared);

}  // namespace stallcast::cli
