// stallcast sweep: its options, and the predictions of its grid into a file.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "sim/cli/progress.h"
#include "sim/cli/run_options.h"
#include "sim/cli/sweep_output.h"
#include "sim/shared_sweep.h"
#include "sim/sweep.h"

namespace stallcast::cli {

struct SweepOptions {
  std::string trace, out;
  std::vector<std::string> grid;  ///< axes, as ParseAxis() reads them
  RunOptions run;
  bool again = false;

  /// Adds all but the trace.
  void AddTo(CLI::App& command);
};

struct Swept {
  int64_t points = 0;
  sim::SweepCounts counts;
};
/// The trace and the grid.
sim::SweepInputs OpenSweep(const SweepOptions& options, Progress& progress);
/// Predicts the grid's points into the file `out`. Error: no point has a result.
Swept RunSweep(const SweepOptions& options, Progress& progress, const std::stop_token& stop = {},
               const sim::PredictWork& predict = sim::PredictHere);

}  // namespace stallcast::cli
