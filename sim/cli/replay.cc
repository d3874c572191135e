// stallcast replay
#include "sim/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "models/hardware/profile.h"
#include "sim/cli/commands.h"
#include "sim/cli/help.h"
#include "sim/cli/import_file.h"
#include "sim/cli/output.h"
#include "traces/common/error.h"
#include "traces/common/whole_file.h"
#include "traces/convert/kernel_kinds.h"
#include "traces/convert/timeline_file.h"
#include "traces/step_spans.h"

namespace stallcast::cli {
namespace {

using traces::Timeline;

struct ReplayCommand {
  std::string recording, machine, out;
  std::vector<std::string> changes, sets;
  int number = 0, top = 0;
  ImportFlags flags;
  Format format = Format::kTable;

  void Run() const;
};

// The machine that the recording names, where it is known, or the H200.
std::string MachineOf(const std::string& given, const std::string& recorded) {
  if (!given.empty()) return given;
  const auto lower = [](std::string_view text) {
    std::string small(text);
    for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return small;
  };
  const std::string is = lower(recorded);
  std::string best = "h200";
  size_t most = 0;
  for (const std::string& name : hardware::ProfileNames()) {
    // All words of a name but its memory's size, "a100-80gb", which tells equal ones apart. The
    // most letters: "h20" is in "h200" too.
    size_t letters = 0;
    bool all = true;
    for (size_t at = 0; at <= name.size();) {
      const size_t end = std::min(name.find('-', at), name.size());
      const std::string word = name.substr(at, end - at);
      const bool found = is.find(word) != std::string::npos;
      if (found) letters += word.size();
      all = all && (found || word.ends_with("gb"));
      at = end + 1;
    }
    if (all && letters > most) best = name, most = letters;
  }
  return best;
}

// What the changes up to one of them give.
struct Stage {
  std::string change;
  sim::Replayed replayed;
};

std::string KindsOf(const std::map<std::string, Picoseconds>& times) {
  std::vector<std::pair<std::string, Picoseconds>> sorted(times.begin(), times.end());
  std::ranges::stable_sort(sorted,
                           [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  constexpr size_t kMost = 4;
  for (size_t i = 0; i < std::min(kMost, sorted.size()); ++i) {
    if (sorted[i].second.count() <= 0) break;
    text += fmt::format("{}{} {:.2f}", i == 0 ? "" : ", ", sorted[i].first,
                        Milliseconds(sorted[i].second));
  }
  return text.empty() ? "-" : text;
}

std::map<std::string, Picoseconds> ExposedOf(const sim::TimelineSummary& summary) {
  std::map<std::string, Picoseconds> exposed;
  for (const auto& [kind, of] : summary.kinds) exposed[kind] = of.exposed;
  exposed["nothing runs"] = summary.nothing;
  return exposed;
}

Json TimesJson(const std::map<std::string, Picoseconds>& times) {
  Json json = Json::object();
  for (const auto& [kind, time] : times) {
    if (time.count() > 0) json[kind] = Milliseconds(time);
  }
  return json;
}

Json StageJson(const Stage& stage, Picoseconds before) {
  const sim::Replayed& r = stage.replayed;
  return {{"change", stage.change},
          {"ops_changed", r.changed},
          {"step_ms", Milliseconds(r.summary.step)},
          {"effect_ms", Milliseconds(r.summary.step - before)},
          {"computing_ms", Milliseconds(r.summary.computing)},
          {"exposed_total_ms", Milliseconds(r.summary.exposed)},
          {"ceiling_ms", Milliseconds(r.ceiling)},
          {"exposed_ms", TimesJson(ExposedOf(r.summary))},
          {"critical_path_ms", TimesJson(r.critical)}};
}

// All stages, each beside the one before; flat: without what is nested.
Json StageRows(const std::vector<Stage>& stages, bool flat) {
  Json rows = Json::array();
  Picoseconds before = stages.front().replayed.summary.step;
  for (const Stage& stage : stages) {
    Json row = StageJson(stage, before);
    if (flat) {
      row.erase("exposed_ms");
      row.erase("critical_path_ms");
    }
    rows.push_back(std::move(row));
    before = stage.replayed.summary.step;
  }
  return rows;
}

std::string StageText(const std::vector<Stage>& stages) {
  TextTable table({{"change", "", true},
                   {"step", "ms"},
                   {"effect", "ms"},
                   {"computing", "ms"},
                   {"exposed", "ms"},
                   {"ceiling", "ms"},
                   {"ops", "", false, 1}});
  Picoseconds before = stages.front().replayed.summary.step;
  const auto ms = [](Picoseconds time) { return Fixed(Milliseconds(time), 3); };
  for (const Stage& stage : stages) {
    const sim::Replayed& r = stage.replayed;
    const double effect = Milliseconds(r.summary.step - before);
    table.Add({stage.change, ms(r.summary.step),
               &stage == &stages.front() ? "" : fmt::format("{:+.3f}", effect),
               ms(r.summary.computing), ms(r.summary.exposed), ms(r.ceiling),
               &stage == &stages.front() ? "" : Count(r.changed)});
    before = r.summary.step;
  }
  std::string text = table.Render() + "\n";
  const auto describe = [&](const Stage& stage) {
    text +=
        fmt::format("{}\n  exposed a step: {} ms\n  critical path:  {} ms\n", stage.change,
                    KindsOf(ExposedOf(stage.replayed.summary)), KindsOf(stage.replayed.critical));
  };
  describe(stages.front());
  if (stages.size() > 1) describe(stages.back());
  return text;
}

Json TopRows(const std::vector<sim::ReplayTop>& tops) {
  Json rows = Json::array();
  for (const sim::ReplayTop& top : tops) {
    rows.push_back({{"op", top.name},
                    {"lane", top.lane},
                    {"kind", top.kind},
                    {"ops", top.ops},
                    {"busy_ms", Milliseconds(top.busy)},
                    {"exposed_ms", Milliseconds(top.exposed)},
                    {"gain_ms", Milliseconds(top.gain)}});
  }
  return rows;
}

std::string Shortened(const std::string& name) {
  constexpr size_t kWidest = 36;
  std::string text = traces::ShortName(name);
  if (text.size() > kWidest) text.replace(kWidest - 3, std::string::npos, "...");
  return text;
}

std::string TopText(const std::vector<sim::ReplayTop>& tops) {
  TextTable table({{"op", "", true},
                   {"kind", "", true},
                   {"ops", "a step"},
                   {"busy", "ms"},
                   {"exposed", "ms"},
                   {"gain", "ms"}});
  for (const sim::ReplayTop& top : tops) {
    table.Add({Shortened(top.name), top.kind, Short(top.ops), Fixed(Milliseconds(top.busy), 3),
               Fixed(Milliseconds(top.exposed), 3), Fixed(Milliseconds(top.gain), 3)});
  }
  return "Largest exposed time; gain: what the step loses without these ops.\n\n" + table.Render();
}

void ReplayCommand::Run() const {
  std::optional<traces::TimelineFormat> out_format;
  if (!out.empty()) {
    RefuseToReplace(out, {recording});
    out_format = traces::TimelineFormatOf(out, "");
  }
  if (top < 0 || top > 100) throw UsageError("so many ops", "--top", "give 1 to 100");
  std::vector<sim::ReplayChange> parsed;
  for (const std::string& text : sets) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      throw UsageError("'" + text + "' is no setting", "--set", "give link.h2d=2x, for example");
    }
    parsed.push_back(
        sim::ParseReplayChange("set " + text.substr(0, equals) + " " + text.substr(equals + 1)));
  }
  for (const std::string& text : changes) parsed.push_back(sim::ParseReplayChange(text));

  std::vector<std::string> notes;
  traces::Trace file = ImportTimelines(recording, flags, &notes);
  if (file.timelines.empty()) {
    throw Error("holds no timeline", recording, "give a recording of a program");
  }
  const auto count = static_cast<int>(file.timelines.size());
  if (number > count || (number == 0 && count > 1)) {
    throw UsageError(fmt::format("{} timelines", count), recording,
                     "choose one with --timeline N; `stallcast info` lists them");
  }
  Timeline& timeline = file.timelines[static_cast<size_t>(std::max(0, number - 1))];
  if (traces::StepSpans(timeline).empty()) {
    // Without steps the recording as a whole is one.
    std::ranges::fill(timeline.step, 0);
    notes.emplace_back("no steps are known (--step-range names them): the whole recording is one");
  }
  if (timeline.title.empty()) timeline.title = std::filesystem::path(recording).filename().string();

  const hardware::Profile profile = hardware::FindProfile(MachineOf(machine, file.info.machine()));
  const sim::Replay replay(timeline, sim::MakeReplayMachine(profile));
  notes.insert(notes.end(), replay.notes().begin(), replay.notes().end());
  const sim::TimelineSummary recorded = sim::Summarize(timeline);
  std::vector<Stage> stages;
  stages.push_back({"as recorded", replay.Run()});
  for (size_t i = 0; i < parsed.size(); ++i) {
    stages.push_back({parsed[i].text, replay.Run(std::span(parsed).first(i + 1))});
  }
  const std::vector<sim::ReplayTop> tops =
      top > 0 ? replay.Top(static_cast<size_t>(top), stages.front().replayed)
              : std::vector<sim::ReplayTop>();
  if (out_format) {
    Timeline made = stages.back().replayed.timeline;
    made.title = fmt::format("replay of {}", timeline.title);
    for (const sim::ReplayChange& change : parsed) made.notes.push_back("change: " + change.text);
    made.notes.insert(made.notes.end(), notes.begin(), notes.end());
    traces::WriteTimelines(std::vector<Timeline>{std::move(made)}, *out_format, file.info, out);
  }

  const double error = Seconds(stages.front().replayed.summary.step) / Seconds(recorded.step) - 1;
  if (format == Format::kCsv) {
    return Print(ToCsv(top > 0 ? TopRows(tops) : StageRows(stages, /*flat=*/true)));
  }
  if (format == Format::kJson) {
    return Print(ToJsonText({{"recording", recording},
                             {"machine", profile.title},
                             {"steps", recorded.steps.size()},
                             {"recorded_step_ms", Milliseconds(recorded.step)},
                             {"replay_error", error},
                             {"stages", StageRows(stages, /*flat=*/false)},
                             {"top", TopRows(tops)},
                             {"notes", notes}}) +
                 "\n");
  }
  std::string text =
      fmt::format("{}: {} steps, median {:.3f} ms; replayed unchanged {:.3f} ms ({} %)\n\n",
                  timeline.title, recorded.steps.size(), Milliseconds(recorded.step),
                  Milliseconds(stages.front().replayed.summary.step), Percent(error, 2));
  text += StageText(stages);
  if (top > 0) text += "\n" + TopText(tops);
  for (const std::string& note : notes) text += "note: " + note + '\n';
  Print(text);
}

std::string VerbHelp() {
  std::string text;
  const std::string indent(6, ' ');
  for (const sim::ReplayVerbInfo& info : sim::ReplayVerbs()) {
    text += fmt::format("  {} {}\n{}", info.name, info.arguments, indent);
    for (const char c : Wrap(info.help, HelpWidth() - indent.size())) {
      text += c;
      if (c == '\n') text += indent;
    }
    text += '\n';
  }
  text += "Settings:";
  for (const auto& [name, help] : sim::ReplaySettings()) text += fmt::format(" {}", name);
  return text;
}

}  // namespace

void AddReplay(CLI::App& app) {
  auto command = std::make_shared<ReplayCommand>();
  CLI::App* sub =
      app.add_subcommand("replay", "Run a recording again, with the machine or program changed");
  sub->description(
      R"(Replays a recording of any program (Kineto, Nsight Systems, Perfetto, ours), unchanged or
with changes. Changes add up in the order given.

Examples:
  stallcast replay kineto.json.gz --top
  stallcast replay kineto.json.gz --set link.h2d=2x
  stallcast replay kineto.json.gz --change "scale kind=offload 0.01" \
      --change "move kind=recall new"
  stallcast replay kineto.json.gz --change "graph all" --timeline-out graph.pftrace

A FILTER is `all`, or kind=, role=, name=, lane=, layer=, step=, joined by commas.
Changes:
)" + VerbHelp());
  sub->add_option("recording", command->recording, "File with a recording")
      ->required()
      ->type_name("FILE");
  sub->add_option("--change", command->changes, "A change, in quotes; may be given again")
      ->type_name("'VERB ...'")
      ->allow_extra_args(false)
      ->group("Changes");
  sub->add_option("--set", command->sets, "A setting, as link.h2d=2x; applied before changes")
      ->type_name("NAME=FACTOR")
      ->allow_extra_args(false)
      ->group("Changes");
  sub->add_option("--machine", command->machine, "Whose link copies meet on; else the recording's")
      ->type_name("NAME")
      ->group("Changes");
  sub->add_flag(
         "--top{10}", command->top,
         "List the ten ops with the largest exposed time, or --top=N, and the gain without each")
      ->group("Output");
  sub->add_option("--timeline", command->number, "Which timeline of the file, as `info` lists them")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000))
      ->group("Trace");
  sub->add_option("--timeline-out", command->out,
                  "Write the last replay's timeline: .kvt, .pftrace, .json or .csv")
      ->type_name("FILE")
      ->group("Output");
  AddFormat(*sub, command->format);
  AddImportFlags(*sub, command->flags);
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
