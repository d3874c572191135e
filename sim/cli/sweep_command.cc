// stallcast sweep
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "sim/cli/commands.h"
#include "sim/cli/output.h"
#include "sim/cli/sweep.h"
#include "sim/launch.h"
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
  void Help(sim::Ranks& ranks) const;
  Swept Shared(const sim::Launch& launch, Progress& progress) const;
  void Report(int64_t total, const sim::SweepCounts& counts) const;
};

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

// Another rank's part: no word of it, as rank 0 says all.
void SweepCommand::Help(sim::Ranks& ranks) const {
  Progress silent([](const std::string&, double) {});
  const sim::SentHome home = sim::HelpSweep(ranks, [&] { return OpenSweep(options, silent); });
  // MPI's own end would wait for the lost rank.
  if (home != sim::SentHome::kTogether) std::_Exit(home == sim::SentHome::kAlone ? 0 : 1);
}

// By this process, or by all ranks of which it is the first.
Swept SweepCommand::Shared(const sim::Launch& launch, Progress& progress) const {
  const std::unique_ptr<sim::Ranks> ranks = sim::JoinRanks();
  if (!ranks) {
    if (launch.size > 1) {
      fmt::print(stderr,
                 "stallcast: rank 0 of {} sweeps alone: this build has no MPI; install "
                 "libopenmpi-dev and build again\n",
                 launch.size);
    }
    return RunSweep(options, progress);
  }
  sim::SweepLeader leader(*ranks, [&](const std::string& lost) {
    progress.Clear();
    fmt::print(stderr, "stallcast: {}\n", lost);
  });
  return RunSweep(options, progress, {},
                  [&](sim::Predictor& predictor, const sim::SweepWork& work) {
                    leader.Predict(predictor, work);
                  });
}

void SweepCommand::Run() const {
  const sim::Launch launch = sim::LaunchOf();
  if (launch.rank > 0) {
    const bool sweeps = show.empty() && !options.trace.empty() && !options.out.empty();
    const std::unique_ptr<sim::Ranks> ranks = sweeps ? sim::JoinRanks() : nullptr;
    // A launcher that this MPI does not know leaves each process by itself: the first one sweeps.
    if (ranks && ranks->rank() > 0) Help(*ranks);
    return;
  }
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
  Progress progress(launch.size > 1 ? Progress::kLines : Progress::kBar);
  const Swept swept = Shared(launch, progress);
  Report(swept.points, swept.counts);
  of.file = options.out;
  of.most_rows = kMostRows;
  const bool table = of.format == Format::kTable;
  if ((table || !of.plot.empty()) &&
      sim::ResultStore(of.file, /*create=*/false).Count() > kMostInTable) {
    fmt::print(stderr, "{}\n",
               Wrap("too many points for a table or a plot: --show FILE --format csv prints them, "
                    "and the file's view `points` takes SQL",
                    of.screen.width, 2));
    of.plot.clear();
    if (!table) ShowSweep(of);
  } else {
    if (table) Print("\n");
    ShowSweep(of);
  }
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
the exit status is then 1. Points of another build of stallcast are predicted again. Under mpirun
all ranks share one sweep: rank 0 writes the file, the others predict.)");
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
