// stallcast export
#include <memory>

#include "sim/cli/commands.h"
#include "sim/cli/import_file.h"
#include "sim/cli/step_table.h"
#include "traces/common/error.h"
#include "traces/common/whole_file.h"
#include "traces/convert/timeline_file.h"

namespace stallcast::cli {
namespace {

struct ExportCommand {
  std::string trace, out, format;
  int timeline = 0;  // 1, 2, ... as `info` lists them; 0: all
  ImportFlags flags;
  StepTableCommand steps;

  void Run() const;
};

void ExportCommand::Run() const {
  if (steps.asked) return steps.Write(trace, out);
  const traces::TimelineFormat out_format = traces::TimelineFormatOf(out, format);
  RefuseToReplace(out, {trace});
  Progress progress;
  traces::Trace file = ImportTimelines(trace, flags, progress);
  if (file.timelines.empty()) {
    throw Error("holds no timeline", trace, "make one with `stallcast predict --timeline run.kvt`");
  }
  if (timeline > std::ssize(file.timelines)) {
    throw UsageError("there is no timeline " + std::to_string(timeline), trace,
                     "choose 1 to " + std::to_string(file.timelines.size()));
  }
  if (timeline > 0) file.timelines = {file.timelines[static_cast<size_t>(timeline) - 1]};
  traces::WriteTimelines(file.timelines, out_format, file.info, out);
}

}  // namespace

void AddExport(CLI::App& app) {
  auto command = std::make_shared<ExportCommand>();
  CLI::App* sub = app.add_subcommand("export", "Write timelines for Perfetto, Chrome or a table");
  sub->description(
      R"(Writes the timelines of a file for other tools, side by side. Reads .kvt, Perfetto, Chrome
and Kineto JSON (gzip too), and SQLite exports of Nsight Systems.

Examples:
  stallcast predict )" STALLCAST_SAMPLE R"( --method freekv --timeline freekv.kvt
  stallcast export freekv.kvt -o freekv.pftrace
      opens in ui.perfetto.dev: lanes as tracks, roles as categories, waits as flows
  stallcast export kineto.json.gz -o kineto.kvt --step-range decode
  stallcast export sample:8k --step-table --model llama-3.1-8b -o steps.csv
      step time by batch and context, for simulators of requests)");
  sub->add_option("trace", command->trace, "File with timelines; with --step-table a trace")
      ->required()
      ->type_name("FILE");
  sub->add_option("-o,--out", command->out, "File to write: .pftrace, .json (Chrome), .csv or .kvt")
      ->required()
      ->type_name("FILE")
      ->group("Output");
  sub->add_option("--as", command->format, "pftrace, json, csv or kvt, whatever the name ends in")
      ->type_name("FORMAT")
      ->group("Output");
  sub->add_option("--timeline", command->timeline, "Only this one, numbered as `info` lists them")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000))
      ->group("Output");
  AddImportFlags(*sub, command->flags);
  command->steps.AddTo(*sub);
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
