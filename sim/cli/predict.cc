// stallcast predict
#include "sim/predict.h"

#include <fmt/format.h>

#include <memory>

#include "sim/cli/commands.h"
#include "sim/cli/output.h"
#include "sim/cli/output_file.h"
#include "sim/cli/prediction_output.h"
#include "sim/cli/run_options.h"
#include "sim/names.h"
#include "traces/common/error.h"

namespace stallcast::cli {
namespace {

struct PredictCommand {
  std::string trace;
  RunOptions run;
  Format format = Format::kTable;
  bool wide = false;
  std::string timeline;

  void Run() const;
};

// The predictions for one machine, best first. Where every method was asked for, one that cannot
// run as asked is left out with a note; a method asked for by name has to run.
MachinePredictions PredictMachine(sim::Predictor& predictor, const RunOptions& run,
                                  const std::vector<std::string>& methods,
                                  const std::string& machine, Progress& progress) {
  MachinePredictions result;
  result.profile = hardware::FindProfile(machine);
  const bool all = methods == sim::MethodNames();
  std::optional<Error> first_error;
  for (size_t i = 0; i < methods.size(); ++i) {
    const sim::PredictRequest request = run.RequestFor(methods[i], machine);
    try {
      result.rows.push_back(predictor.Predict(request));
    } catch (const Error& error) {
      if (!all) throw;
      if (!first_error) first_error = error;
      result.left_out.push_back(
          fmt::format("left out: {}: {}; {}", methods[i], error.problem(), error.remedy()));
    }
    progress.Update("predicting on " + machine,
                    static_cast<double>(i + 1) / static_cast<double>(methods.size()));
  }
  if (result.rows.empty()) throw *first_error;
  SortBestFirst(result.rows);
  return result;
}

void PredictCommand::Run() const {
  const std::vector<std::string> methods = run.Methods("all");
  const std::vector<std::string> machines = run.Machines();
  run.CheckParams(methods);
  // Everything that was typed is checked before the first replay.
  for (const std::string& machine : machines) {
    run.RequestFor(methods.front(), machine);
  }
  TimelineFormat timeline_format{};
  if (!timeline.empty()) {
    if (machines.size() > 1) {
      throw UsageError("a timeline is of one machine", "--timeline", "name a single --machine");
    }
    timeline_format = TimelineFormatOf(timeline, "");
    std::vector<std::string> inputs = run.Inputs();
    inputs.push_back(trace);
    RefuseToReplace(timeline, inputs);
  }

  Progress progress;
  sim::Predictor predictor(trace, run.PredictorOptions(progress));
  std::vector<MachinePredictions> predictions;
  predictions.reserve(machines.size());
  for (const std::string& machine : machines) {
    predictions.push_back(PredictMachine(predictor, run, methods, machine, progress));
  }
  std::string written;
  if (!timeline.empty()) {
    const std::string& best = predictions.front().rows.front().request.method;
    std::vector<traces::Timeline> timelines(1);
    predictor.Predict(run.RequestFor(best, machines.front()), timelines.data());
    WriteTimelines(timelines, timeline_format, predictor.info(), timeline);
    written = "timeline of " + best + " written to " + timeline + "\n";
  }
  progress.Clear();

  switch (format) {
    case Format::kJson:
      return Print(ToJsonText({{"trace", trace}, {"predictions", Records(predictions)}}) + "\n");
    case Format::kCsv:
      return Print(ToCsv(Records(predictions)));
    case Format::kTable:
      break;
  }
  std::string text;
  for (const MachinePredictions& machine : predictions) {
    if (!text.empty()) text += '\n';
    text += methods.size() == 1 ? Report(machine, trace) : ComparisonTable(machine, trace, wide);
  }
  Print(text + (written.empty() ? "" : "\n" + written));
}

}  // namespace

void AddPredict(CLI::App& app) {
  auto command = std::make_shared<PredictCommand>();
  CLI::App* sub = app.add_subcommand("predict", "Predict decode steps of a trace on a machine");
  sub->description(
      R"(Predicts decode steps: replays a trace through KV-cache methods and times the result.

Examples:
  stallcast predict )" STALLCAST_SAMPLE R"(
  stallcast predict )" STALLCAST_SAMPLE
      R"( --model llama-3.1-8b --context 32K --machine h200,a100-40gb
  stallcast predict )" STALLCAST_SAMPLE R"( --method freekv --timeline freekv.pftrace

Several methods give a table, one method a report. The timeline opens in ui.perfetto.dev.)");
  sub->add_option("trace", command->trace, "Trace to replay (.kvt)")
      ->required()
      ->type_name("TRACE");
  command->run.AddTo(*sub);
  AddFormat(*sub, command->format);
  sub->add_flag("--wide", command->wide, "All columns, however wide the table gets")
      ->group("Output");
  sub->add_option("--timeline", command->timeline,
                  "Write the timeline of the method, or of the best: .pftrace, .json, .csv or .kvt")
      ->type_name("FILE")
      ->group("Output");
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
