// What a sweep's file holds, as a table, a picture or records.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "sim/cli/output.h"
#include "sim/cli/sort_order.h"
#include "sim/requirements.h"

namespace stallcast::cli {

struct SweepForm {
  std::string file;     ///< of results
  bool pareto = false;  ///< mark the front of step time, GPU memory and attention mass
  sim::Requirements required;
  SortOrder order;
  Screen screen;
  size_t most_rows = 0;  ///< of a table; 0: all
  std::string plot;      ///< SVG file to write; empty: none
  Format format = Format::kTable;

  /// Adds those that shape a record: --min-mass and the like, and --pareto.
  void AddRecordOptions(CLI::App& command);
};

/// A table or a plot takes 1.3 KB of memory a point.
constexpr int64_t kMostInTable = 1'000'000;
/// Prints all points of the file. Usage Error: too many for a table or a plot.
void ShowSweep(const SweepForm& form);

/// The points one by one as flat records, by key. `names`: of all parameters and overrides. Goes
/// through the file twice and holds no point.
void ForEachRecord(
    const SweepForm& form,
    const std::function<void(const Json& record, const RecordWriter::Names& names)>& use);

}  // namespace stallcast::cli
