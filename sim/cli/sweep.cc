#include "sim/cli/sweep.h"

#include <fmt/format.h>

#include <utility>

#include "sim/cli/predict.h"
#include "traces/common/error.h"
#include "traces/common/whole_file.h"

namespace stallcast::cli {
void SweepOptions::AddTo(CLI::App& command) {
  constexpr const char* kGrid = "Grid";
  RunOptions::AddGrid(command, grid);
  command.add_option("-o,--out", out, "Results file (SQLite)")->type_name("FILE")->group(kGrid);
  command.add_flag("--again", again, "Predict again the points that the file holds")->group(kGrid);
  run.AddTo(command, "freekv");
}

sim::SweepInputs OpenSweep(const SweepOptions& options, Progress& progress) {
  const std::filesystem::path file = TraceToReplay(options.trace);
  const RunOptions& run = options.run;
  const std::vector<sim::Axis> axes = run.Axes(options.grid);
  sim::SweepInputs inputs;
  inputs.predictor = std::make_shared<sim::Predictor>(file, run.PredictorOptions(progress));
  run.RequireModel(inputs.predictor->info(), axes);
  sim::PredictRequest base = run.GridBase();
  if (base.context == 0) base.context = inputs.predictor->info().prompt_tokens();
  inputs.grid = std::make_shared<const sim::Grid>(base, axes);
  return inputs;
}

Swept RunSweep(const SweepOptions& options, Progress& progress, const std::stop_token& stop,
               const sim::PredictWork& predict) {
  const std::string& out = options.out;
  std::vector<std::string> read = options.run.Inputs();
  read.push_back(TraceToReplay(options.trace).string());
  for (const sim::Axis& axis : options.run.Axes(options.grid)) {
    read.insert(read.end(), axis.values.begin(), axis.values.end());
  }
  RefuseToReplace(out, read);

  const sim::SweepInputs inputs = OpenSweep(options, progress);
  sim::ResultStore store(out, /*create=*/true);
  const auto total = std::ssize(*inputs.grid);
  Swept swept;
  swept.points = total;
  swept.counts = sim::Sweep(
      *inputs.predictor, *inputs.grid, store, options.again,
      [&](int64_t finished) {
        progress.Update(fmt::format("{} point{}", total, total == 1 ? "" : "s"),
                        static_cast<double>(finished) / static_cast<double>(total));
      },
      stop, predict);
  progress.Clear();
  int64_t without = 0;
  for (const auto& [problem, number] : swept.counts.problems) without += number;
  if (total > 0 && without == total) {
    throw Error(fmt::format("none of {} points can be predicted: {}", total,
                            swept.counts.problems.begin()->first),
                out, "`stallcast sweep --show` prints all reasons");
  }
  return swept;
}

}  // namespace stallcast::cli
