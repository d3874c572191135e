// stallcast sweep
#include "sim/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "sim/cli/commands.h"
#include "sim/cli/output.h"
#include "sim/cli/run_options.h"
#include "sim/cli/sweep_output.h"
#include "traces/common/error.h"
#include "traces/common/whole_file.h"

namespace stallcast::cli {
namespace {

struct SweepCommand {
  std::string trace, out, show;
  std::vector<std::string> grid;
  RunOptions run;
  bool again = false, pareto = false;
  Format format = Format::kTable;

  void Run() const;
  void Sweep() const;
  void Report(int64_t total, const sim::SweepCounts& counts) const;
};

void SweepCommand::Sweep() const {
  const std::vector<sim::Axis> axes = run.Axes(grid);
  std::vector<std::string> inputs = run.Inputs();
  inputs.push_back(trace);
  for (const sim::Axis& axis : axes) {
    inputs.insert(inputs.end(), axis.values.begin(), axis.values.end());
  }
  RefuseToReplace(out, inputs);

  Progress progress;
  sim::Predictor predictor(trace, run.PredictorOptions(progress));
  sim::PredictRequest base = run.GridBase();
  if (base.context == 0) base.context = predictor.info().prompt_tokens();
  const std::vector<sim::GridPoint> points = sim::ExpandGrid(base, axes);
  sim::ResultStore store(out, /*create=*/true);
  const auto total = std::ssize(points);
  const sim::SweepCounts counts =
      sim::Sweep(predictor, points, store, again, [&](int64_t finished) {
        progress.Update(fmt::format("{} points", total),
                        static_cast<double>(finished) / static_cast<double>(total));
      });
  progress.Clear();
  Report(total, counts);
}

// Results in another format than a table stand on standard output alone.
void SweepCommand::Report(int64_t total, const sim::SweepCounts& counts) const {
  int64_t without = 0;
  for (const auto& [problem, number] : counts.problems) without += number;
  if (total > 0 && without == total) {
    throw Error(fmt::format("none of {} points can be predicted: {}", total,
                            counts.problems.begin()->first),
                out, "`stallcast sweep --show` prints all reasons");
  }
  const std::string anew =
      counts.anew > 0
          ? fmt::format(", {} of another build of stallcast predicted anew", counts.anew)
          : "";
  const std::string summary = fmt::format(
      "{} points: {} predicted, {} failed, {} there already{}; "
      "`stallcast sweep --show {}` prints them\n",
      total, counts.done, counts.failed, counts.present, anew, out);
  if (format == Format::kTable) {
    Print(summary);
  } else {
    fmt::print(stderr, "{}", summary);
  }
  for (const auto& [problem, number] : counts.problems) {
    fmt::print(stderr, "failed ({}): {}\n", number, problem);
  }
}

void SweepCommand::Run() const {
  if (!show.empty()) {
    if (!trace.empty() || !out.empty() || !grid.empty()) {
      throw UsageError("--show only shows", "stallcast sweep", "run the sweep first, then show it");
    }
    return ShowSweep(show, pareto, format);
  }
  if (trace.empty() || out.empty()) {
    throw UsageError("a sweep needs a TRACE and --out FILE", "stallcast sweep",
                     "or give --show FILE; `stallcast sweep --help` has examples");
  }
  Sweep();
  if (pareto || format != Format::kTable) ShowSweep(out, pareto, format);
}

}  // namespace

void AddSweep(CLI::App& app) {
  auto command = std::make_shared<SweepCommand>();
  CLI::App* sub = app.add_subcommand("sweep", "Predict a grid of runs over all cores, into a file");
  sub->description(R"(Predicts every point of a grid over all cores, into an SQLite file.

Examples:
  stallcast sweep )" STALLCAST_SAMPLE R"( --out results.sqlite --method freekv \
      -g budget=2048:8192:x2 -g link.h2d=25GB/s,50GB/s,100GB/s
  stallcast sweep )" STALLCAST_SAMPLE R"( --out results.sqlite --method all -g context=8K,32K,128K
  stallcast sweep --show results.sqlite --pareto

Stopped, it goes on where it was when called again. Points that fail are kept with the reason; what
another build of stallcast left is predicted anew.)");
  constexpr const char* kGrid = "Grid";
  sub->add_option("trace", command->trace, "Trace to replay (.kvt)")->type_name("TRACE");
  RunOptions::AddGrid(*sub, command->grid);
  sub->add_option("-o,--out", command->out, "Results file (SQLite)")
      ->type_name("FILE")
      ->group(kGrid);
  sub->add_flag("--again", command->again, "Predict points anew that the file holds already")
      ->group(kGrid);
  command->run.AddTo(*sub, "freekv");
  AddFormat(*sub, command->format);
  sub->add_option("--show", command->show, "Print the results of an earlier sweep")
      ->type_name("FILE")
      ->group("Output");
  sub->add_flag("--pareto", command->pareto,
                "Mark the Pareto front of step time, GPU memory and attention mass")
      ->group("Output");
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
