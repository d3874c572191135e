#include "sim/cli/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "sim/cli/commands.h"
#include "sim/cli/output.h"
#include "sim/cli/predict.h"
#include "traces/common/error.h"
#include "traces/common/whole_file.h"

namespace stallcast::cli {
namespace {

// Of the table that a sweep ends with.
constexpr size_t kMostRows = 40;

struct SweepCommand {
  SweepOptions options;
  std::string show;
  bool wide = false;
  SweepForm form;

  void Run() const;
  void Report(int64_t total, const sim::SweepCounts& counts) const;
};

}  // namespace

void SweepOptions::AddTo(CLI::App& command) {
  constexpr const char* kGrid = "Grid";
  RunOptions::AddGrid(command, grid);
  command.add_option("-o,--out", out, "Results file (SQLite)")->type_name("FILE")->group(kGrid);
  command.add_flag("--again", again, "Predict again the points that the file holds")->group(kGrid);
  run.AddTo(command, "freekv");
}

Swept RunSweep(const SweepOptions& options, Progress& progress, const std::stop_token& stop) {
  const auto& [trace, out, grid, run, again] = options;
  const std::filesystem::path file = TraceToReplay(trace);
  const std::vector<sim::Axis> axes = run.Axes(grid);
  std::vector<std::string> inputs = run.Inputs();
  inputs.push_back(file.string());
  for (const sim::Axis& axis : axes) {
    inputs.insert(inputs.end(), axis.values.begin(), axis.values.end());
  }
  RefuseToReplace(out, inputs);

  sim::Predictor predictor(file, run.PredictorOptions(progress));
  run.RequireModel(predictor.info(), axes);
  sim::PredictRequest base = run.GridBase();
  if (base.context == 0) base.context = predictor.info().prompt_tokens();
  const std::vector<sim::GridPoint> points = sim::ExpandGrid(base, axes);
  sim::ResultStore store(out, /*create=*/true);
  const auto total = std::ssize(points);
  Swept swept;
  swept.points = total;
  swept.counts = sim::Sweep(
      predictor, points, store, again,
      [&](int64_t finished) {
        progress.Update(fmt::format("{} point{}", total, total == 1 ? "" : "s"),
                        static_cast<double>(finished) / static_cast<double>(total));
      },
      stop);
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

namespace {

// Results in another format than a table stand on standard output alone.
void SweepCommand::Report(int64_t total, const sim::SweepCounts& counts) const {
  const std::string anew =
      counts.anew > 0
          ? fmt::format(", {} of another build of stallcast predicted anew", counts.anew)
          : "";
  const std::string summary = fmt::format(
      "{} point{}: {} predicted, {} failed, {} there already{}; "
      "`stallcast sweep --show {}` prints them\n",
      total, total == 1 ? "" : "s", counts.done, counts.failed, counts.present, anew, options.out);
  if (form.format == Format::kTable) {
    Print(summary);
  } else {
    fmt::print(stderr, "{}", summary);
  }
  for (const auto& [problem, number] : counts.problems) {
    fmt::print(stderr, "failed ({}): {}\n", number, problem);
  }
}

void SweepCommand::Run() const {
  SweepForm of = form;
  of.screen = ScreenFor(wide);
  if (!show.empty()) {
    if (!options.trace.empty() || !options.out.empty() || !options.grid.empty()) {
      throw UsageError("--show only shows", "sweep", "run the sweep first, then show it");
    }
    of.file = show;
    if (!of.plot.empty()) RefuseToReplace(of.plot, {show});
    return ShowSweep(of);
  }
  if (options.trace.empty() || options.out.empty()) {
    throw UsageError("a sweep needs a TRACE and --out FILE", "sweep",
                     "or give --show FILE; `stallcast sweep --help` has examples");
  }
  if (!of.plot.empty()) RefuseToReplace(of.plot, {options.trace, options.out});
  Progress progress;
  const Swept swept = RunSweep(options, progress);
  Report(swept.points, swept.counts);
  of.file = options.out;
  of.most_rows = kMostRows;
  if (of.format == Format::kTable) Print("\n");
  ShowSweep(of);
  if (!swept.counts.problems.empty()) throw CLI::RuntimeError(1);
}

}  // namespace

void AddSweep(CLI::App& app) {
  auto command = std::make_shared<SweepCommand>();
  CLI::App* sub = app.add_subcommand("sweep", "Predict a grid of runs over all cores, into a file");
  sub->description(R"(Predicts every point of a grid over all cores, into an SQLite file.

Examples:
  stallcast sweep )" STALLCAST_SAMPLE R"( --model llama-3.1-8b --out results.sqlite \
      --method freekv -g budget=2K:8K:x2 -g link.h2d=0.5x,1x,2x --plot results.svg
  stallcast sweep )" STALLCAST_SAMPLE R"( --model llama-3.1-8b --out results.sqlite \
      --method all -g context=8K,32K,128K -g machine=h200,a100-40gb
  stallcast sweep --show results.sqlite --pareto --min-mass 0.9

Rows are sorted by time within a workload: a trace, model, context, batch and number of GPUs. Rows
that a swept value does not change are one, with "any" as the value. The same call again continues
a sweep that was stopped. Points that fail are kept with the reason and tried again by the next call;
the exit status is then 1. Points of another build of stallcast are predicted again.)");
  sub->add_option("trace", command->options.trace,
                  "Trace to replay (.kvt), or a shipped one: sample:8k")
      ->type_name("TRACE");
  command->options.AddTo(*sub);
  command->form.AddRecordOptions(*sub);
  AddFormat(*sub, command->form.format);
  AddSort(*sub, command->form.order);
  AddWide(*sub, command->wide);
  sub->add_option("--show", command->show, "Print the results of an earlier sweep")
      ->type_name("FILE")
      ->group("Output");
  sub->add_option("--plot", command->form.plot,
                  "Draw the values of --sort (default: mean step) over the axis with most numbers")
      ->type_name("OUT.svg")
      ->group("Output");
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
