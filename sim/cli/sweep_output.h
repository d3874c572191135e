// What a sweep's file holds, as a table, a picture or records.
#pragma once

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
};

/// Prints all points of the file.
void ShowSweep(const SweepForm& form);

}  // namespace stallcast::cli
