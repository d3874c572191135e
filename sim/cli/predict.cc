#include "sim/cli/predict.h"

#include <fmt/format.h>

#include <memory>

#include "sim/cli/commands.h"
#include "sim/cli/output.h"
#include "sim/cli/prediction_output.h"
#include "sim/cli/requirement_options.h"
#include "sim/cli/run_options.h"
#include "sim/cli/sort_order.h"
#include "sim/names.h"
#include "traces/common/error.h"
#include "traces/common/whole_file.h"
#include "traces/convert/timeline_file.h"
#include "traces/samples.h"

namespace stallcast::cli {
namespace {

struct PredictCommand {
  std::string trace;
  RunOptions run;
  Format format = Format::kTable;
  sim::Requirements required;
  SortOrder order;
  bool wide = false;
  std::string timeline;

  void Run() const;
};

// The predictions for one machine, best first. Where every method was asked for, one that cannot
// run as asked is left out with a note; a method asked for by name has to run.
MachinePredictions PredictMachine(sim::Predictor& predictor, const RunOptions& run,
                                  const std::vector<std::string>& methods,
                                  const std::string& machine, const SortOrder& order,
                                  Progress& progress) {
  MachinePredictions result;
  result.profile = hardware::FindProfile(machine);
  result.remarks = run.NotApplied(methods);
  const bool all = run.AllMethods();
  std::optional<Error> first_error;
  for (size_t i = 0; i < methods.size(); ++i) {
    const sim::PredictRequest request = run.RequestFor(methods[i], machine);
    try {
      result.rows.push_back(predictor.Predict(request));
    } catch (const Error& error) {
      if (!all) throw;
      if (!first_error) first_error = error;
      result.left_out.push_back(
          {methods[i], fmt::format("{}; {}", error.problem(), error.remedy())});
    }
    progress.Update("predicting on " + machine,
                    static_cast<double>(i + 1) / static_cast<double>(methods.size()));
  }
  if (result.rows.empty()) throw *first_error;
  Sort(result.rows, order);
  return result;
}

}  // namespace

std::filesystem::path TraceToReplay(const std::string& trace) {
  const std::filesystem::path file = traces::TracePath(trace);
  const std::string text = file.string();
  for (const char* ending : {".json", ".json.gz", ".pftrace", ".sqlite", ".perfetto-trace"}) {
    if (!text.ends_with(ending)) continue;
    throw UsageError("a recording, not a .kvt trace: it has no queries and keys to replay", trace,
                     "`stallcast info` and `stallcast compare` read it");
  }
  return file;
}

traces::proto::TraceInfo InfoOf(const sim::Prediction& prediction, const std::string& machine,
                                const traces::proto::TraceInfo& traced, const std::string& trace) {
  traces::proto::TraceInfo info;
  *info.mutable_model() = llm::ToTrace(prediction.model);
  info.set_machine(machine);
  info.set_provenance(fmt::format("predicted from {}: {}, {}; {}", trace, traced.model().name(),
                                  traced.machine().empty() ? "no machine" : traced.machine(),
                                  traced.provenance()));
  info.set_synthetic(traced.synthetic());
  info.set_prompt_tokens(prediction.request.context);
  info.set_decode_steps(prediction.request.steps);
  return info;
}

namespace {

void PredictCommand::Run() const {
  const std::vector<std::string> methods = run.Methods();
  const std::vector<std::string> machines = run.Machines();
  run.CheckParams(methods);
  // Everything that was typed is checked before the first replay.
  for (const std::string& machine : machines) {
    run.RequestFor(methods.front(), machine);
  }
  const std::filesystem::path file = TraceToReplay(trace);
  traces::TimelineFormat timeline_format{};
  if (!timeline.empty()) {
    if (machines.size() > 1) {
      throw UsageError("a timeline is of one machine", "--timeline", "name a single --machine");
    }
    timeline_format = traces::TimelineFormatOf(timeline);
    std::vector<std::string> inputs = run.Inputs();
    inputs.push_back(file.string());
    RefuseToReplace(timeline, inputs);
  }

  Progress progress;
  sim::Predictor predictor(file, run.PredictorOptions(progress));
  run.RequireModel(predictor.info());
  std::vector<MachinePredictions> predictions;
  predictions.reserve(machines.size());
  for (const std::string& machine : machines) {
    predictions.push_back(PredictMachine(predictor, run, methods, machine, order, progress));
  }
  std::string written;
  if (!timeline.empty()) {
    const std::vector<sim::Prediction>& rows = predictions.front().rows;
    const std::string& best = rows[ChosenRow(rows, required)].request.method;
    std::vector<traces::Timeline> timelines(1);
    const sim::Prediction of =
        predictor.Predict(run.RequestFor(best, machines.front()), timelines.data());
    traces::WriteTimelines(timelines, timeline_format,
                           InfoOf(of, predictions.front().profile.title, predictor.info(), trace),
                           timeline);
    written = "timeline of " + best + " written to " + timeline + "\n";
  }
  progress.Clear();

  const sim::ResultStore::Trace traced{predictor.key(), file.string()};
  switch (format) {
    case Format::kJson:
      return Print(ToJsonText({{"trace", trace},
                               {"predictions", Records(predictions, traced, required)},
                               {"left_out", LeftOutRecords(predictions)},
                               {"remarks", predictions.front().remarks}}) +
                   "\n");
    case Format::kCsv:
      for (const Json& each : LeftOutRecords(predictions)) {
        fmt::print(stderr, "left out on {}: {}: {}\n", each["machine"].get<std::string>(),
                   each["method"].get<std::string>(), each["reason"].get<std::string>());
      }
      for (const std::string& each : predictions.front().remarks) fmt::print(stderr, "{}\n", each);
      return Print(ToCsv(Records(predictions, traced, required)));
    case Format::kTable:
      break;
  }
  const TableForm form{required, ScreenFor(wide)};
  std::string text;
  for (const MachinePredictions& machine : predictions) {
    if (!text.empty()) text += '\n';
    text +=
        methods.size() == 1 ? Report(machine, trace, form) : ComparisonTable(machine, trace, form);
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
  stallcast predict )" STALLCAST_SAMPLE R"( --model llama-3.1-8b
  stallcast predict )" STALLCAST_SAMPLE R"( --model llama-3.1-8b --context 32K \
      --min-mass 0.9 --max-gpu 24GB
  stallcast predict )" STALLCAST_SAMPLE R"( --model llama-3.1-8b --method freekv \
      --set link.h2d=2x --timeline freekv.pftrace

Several methods give a table, one method a report. Several machines give a table each; `stallcast
sweep -g machine=h200,a100-40gb` puts them into one. The timeline opens in ui.perfetto.dev.)");
  sub->add_option("trace", command->trace, "Trace to replay (.kvt), or a shipped one: sample:8k")
      ->required()
      ->type_name("TRACE");
  command->run.AddTo(*sub, "all");
  AddRequirements(*sub, command->required);
  AddFormat(*sub, command->format);
  AddSort(*sub, command->order);
  AddWide(*sub, command->wide);
  sub->add_option("--timeline", command->timeline,
                  "Write the timeline of the method, or of the one with the star: .pftrace, .json, "
                  ".csv or .kvt")
      ->type_name("FILE")
      ->group("Output");
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
