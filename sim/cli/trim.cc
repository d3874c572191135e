// stallcast trim
#include "traces/convert/trim.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "sim/cli/commands.h"
#include "sim/cli/output.h"
#include "sim/cli/progress.h"
#include "sim/grid.h"
#include "traces/common/whole_file.h"
#include "traces/samples.h"

namespace stallcast::cli {
namespace {

struct TrimCommand {
  std::string trace, out, prompt, steps;
  traces::TrimSpec spec;
  bool no_values = false;

  void Run() const;
};

void TrimCommand::Run() const {
  traces::TrimSpec wanted = spec;
  wanted.values = !no_values;
  if (!prompt.empty()) wanted.prompt_tokens = sim::ParseTokens(prompt, "--prompt");
  if (!steps.empty()) wanted.steps = sim::ParseTokens(steps, "--steps");
  const std::filesystem::path in = traces::TracePath(trace);
  RefuseToReplace(out, {in.string()});
  Progress progress;
  std::vector<std::string> problems;
  WriteWhole(out, [&](const std::filesystem::path& part) {
    problems = traces::Trim(in, wanted, part,
                            [&](double share) { progress.Update("writing " + out, share); });
  });
  progress.Clear();
  traces::ReadReport report;
  const traces::Trace made = traces::ReadTrace(out, {.tensors = false}, &report);
  std::string text = fmt::format(
      "{}: {} tensors, {} prompt tokens, {} steps, {:.1f} of {:.1f} MB\n", out,
      report.tensors.size(), Count(made.info.prompt_tokens()), Count(made.info.decode_steps()),
      static_cast<double>(std::filesystem::file_size(out)) / 1e6,
      static_cast<double>(std::filesystem::file_size(in)) / 1e6);
  for (const std::string& problem : problems) text += "- " + problem + '\n';
  Print(text);
}

}  // namespace

void AddTrim(CLI::App& app) {
  auto command = std::make_shared<TrimCommand>();
  CLI::App* sub = app.add_subcommand("trim", "Make a smaller trace of a part of one");
  sub->description(
      R"(Writes a part of a captured trace: some of its layers, KV heads, steps, prompt.

Examples:
  stallcast trim sample:8k -o small.kvt --layers 14 --steps 64
  stallcast trim long.kvt -o tail.kvt --prompt 16K --no-values

Timelines and access logs, which are of the whole, are left out.)");
  sub->add_option("trace", command->trace, "Trace to take from")->required()->type_name("TRACE");
  sub->add_option("-o,--out", command->out, "File to write (.kvt)")
      ->required()
      ->type_name("FILE")
      ->group("Output");
  constexpr const char* kKeep = "What stays (by default all)";
  sub->add_option("--layers", command->spec.layers, "Layers, as `info` lists them: 7,21")
      ->delimiter(',')
      ->type_name("LIST")
      ->group(kKeep);
  sub->add_option("--kv-heads", command->spec.kv_heads,
                  "KV heads, from 0, with the query heads that they serve")
      ->delimiter(',')
      ->type_name("LIST")
      ->group(kKeep);
  sub->add_option("--prompt", command->prompt, "The last tokens of the prompt, as 8192 or 8K")
      ->type_name("TOKENS")
      ->group(kKeep);
  sub->add_option("--steps", command->steps, "The first decode steps")
      ->type_name("N")
      ->group(kKeep);
  sub->add_flag("--no-values", command->no_values,
                "Leave the values out: predictions then lack the output error")
      ->group(kKeep);
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
