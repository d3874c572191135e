#include "sim/cli/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>

#include "models/hardware/profile.h"
#include "sim/cli/commands.h"
#include "sim/cli/help.h"
#include "sim/grid.h"
#include "sim/replay_method.h"
#include "traces/common/error.h"
#include "traces/common/parallel.h"
#include "traces/common/whole_file.h"
#include "traces/convert/kernel_kinds.h"
#include "traces/convert/timeline_file.h"

namespace stallcast::cli {
namespace {

using traces::Timeline;

using Stage = ReplayRun::Stage;
using GridPoint = ReplayRun::Point;

struct ReplayCommand {
  ReplayOptions options;
  std::string out;
  Format format = Format::kTable;

  void Run() const;
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

std::string Shortened(const std::string& name) {
  constexpr size_t kWidest = 36;
  std::string text = traces::ShortName(name);
  if (text.size() > kWidest) text.replace(kWidest - 3, std::string::npos, "...");
  return text;
}

sim::ReplayChange ParseSetting(std::string_view name, std::string_view value) {
  return sim::ParseReplayChange(fmt::format("set {} {}", name, value));
}

bool IsSetting(std::string_view name) {
  return std::ranges::any_of(sim::ReplaySettings(),
                             [&](const auto& setting) { return setting.first == name; });
}

// `text` with each word that is an axis's name replaced by its value.
std::string WithValues(const std::string& text, const std::vector<sim::Axis>& axes,
                       const std::vector<std::string>& values, std::vector<bool>* used) {
  std::string out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find_first_of(" ,=", begin), text.size());
    std::string word = text.substr(begin, end - begin);
    for (size_t i = 0; i < axes.size(); ++i) {
      if (word != axes[i].name) continue;
      word = values[i];
      (*used)[i] = true;
    }
    out += word;
    if (end < text.size()) out += text[end];
    begin = end + 1;
  }
  return out;
}

std::vector<GridPoint> PointsOf(const std::vector<sim::Axis>& axes,
                                const std::vector<sim::ReplayChange>& sets,
                                const std::vector<std::string>& changes) {
  constexpr size_t kMostPoints = 10'000;
  size_t count = 1;
  for (const sim::Axis& axis : axes) {
    count *= axis.values.size();
    if (count > kMostPoints) {
      throw UsageError(fmt::format("more than {} points", kMostPoints), "--grid", "give fewer");
    }
  }
  std::vector<GridPoint> points(count);
  std::vector<bool> used(axes.size());
  for (size_t p = 0; p < count; ++p) {
    GridPoint& point = points[p];
    point.changes = sets;
    size_t rest = p;
    for (size_t i = axes.size(); i-- > 0; rest /= axes[i].values.size()) {
      point.values.insert(point.values.begin(), axes[i].values[rest % axes[i].values.size()]);
    }
    for (size_t i = 0; i < axes.size(); ++i) {
      if (!IsSetting(axes[i].name)) continue;
      point.changes.push_back(ParseSetting(axes[i].name, point.values[i]));
      used[i] = true;
    }
    for (const std::string& text : changes) {
      point.changes.push_back(sim::ParseReplayChange(WithValues(text, axes, point.values, &used)));
    }
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (used[i]) continue;
    throw UsageError(fmt::format("'{}' is no setting, and no --change has this word", axes[i].name),
                     "--grid", "give link.h2d=1,2,4, or --change 'scale all N' --grid N=0.5,1");
  }
  return points;
}

Json GridRows(const std::vector<sim::Axis>& axes, const std::vector<GridPoint>& points,
              Picoseconds unchanged) {
  Json rows = Json::array();
  for (const GridPoint& point : points) {
    const sim::Replayed& r = point.replayed;
    Json row = Json::object();
    for (size_t i = 0; i < axes.size(); ++i) row[axes[i].name] = point.values[i];
    row.update({{"step_ms", Milliseconds(r.summary.step)},
                {"effect_ms", Milliseconds(r.summary.step - unchanged)},
                {"computing_ms", Milliseconds(r.summary.computing)},
                {"exposed_ms", Milliseconds(r.summary.exposed)},
                {"ceiling_ms", Milliseconds(r.ceiling)}});
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string GridText(const std::vector<sim::Axis>& axes, const std::vector<GridPoint>& points,
                     Picoseconds unchanged) {
  std::vector<TextTable::Column> columns;
  for (const sim::Axis& axis : axes) columns.push_back({axis.name, "", true});
  for (const char* name : {"step", "effect", "computing", "exposed", "ceiling"}) {
    columns.push_back({name, "ms"});
  }
  TextTable table(columns);
  const auto ms = [](Picoseconds time) { return Fixed(Milliseconds(time), 3); };
  for (const GridPoint& point : points) {
    const sim::Replayed& r = point.replayed;
    std::vector<std::string> row = point.values;
    row.insert(row.end(), {ms(r.summary.step),
                           fmt::format("{:+.3f}", Milliseconds(r.summary.step - unchanged)),
                           ms(r.summary.computing), ms(r.summary.exposed), ms(r.ceiling)});
    table.Add(row);
  }
  return table.Render();
}

void ReplayCommand::Run() const {
  std::optional<traces::TimelineFormat> out_format;
  if (!out.empty()) {
    if (!options.grid.empty()) {
      throw UsageError("a grid has many replays", "--timeline-out", "leave out --grid");
    }
    RefuseToReplace(out, {options.recording});
    out_format = traces::TimelineFormatOf(out, "");
  }
  Progress progress;
  const ReplayRun run = RunReplay(options, progress);
  if (out_format) {
    traces::WriteTimelines(std::vector<Timeline>{run.Last()}, *out_format, run.info, out);
  }
  const bool grid = !run.axes.empty();
  const Picoseconds unchanged = run.stages.front().replayed.summary.step;
  if (format == Format::kCsv) {
    if (grid) return Print(ToCsv(GridRows(run.axes, run.points, unchanged)));
    return Print(ToCsv(options.top > 0 ? TopRows(run.tops) : StageRows(run.stages, /*flat=*/true)));
  }
  if (format == Format::kJson) return Print(ToJsonText(RecordOf(run)) + "\n");
  std::string text =
      fmt::format("{}: {} steps, median {:.3f} ms; replayed unchanged {:.3f} ms ({} %)\n\n",
                  run.title, run.recorded.steps.size(), Milliseconds(run.recorded.step),
                  Milliseconds(unchanged), Percent(run.ReplayError(), 2));
  text += grid ? GridText(run.axes, run.points, unchanged) : StageText(run.stages);
  if (options.top > 0) text += "\n" + TopText(run.tops);
  for (const std::string& note : run.notes) text += "note: " + note + '\n';
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
  text += "\n\nTerms of a FILTER (`all` takes all):\n";
  for (const auto& [name, help] : sim::ReplayFields()) {
    text += fmt::format("  {:<7}{}\n", fmt::format("{}=", name),
                        Wrap(help, HelpWidth() - indent.size() - 3));
  }
  return text +
         "\nTerms are joined by commas, and alternatives of a text by |, as role=recall|offload.";
}

}  // namespace

void ReplayOptions::AddTo(CLI::App& command) {
  command.add_option("--change", changes, "A change, in quotes; may be given again")
      ->type_name("'VERB ...'")
      ->allow_extra_args(false)
      ->group("Changes");
  command.add_option("--set", sets, "A setting, as link.h2d=2x; applied before changes")
      ->type_name("NAME=FACTOR")
      ->allow_extra_args(false)
      ->group("Changes");
  command
      .add_option("-g,--grid", grid,
                  "A replay for each value: of a setting, or of a word in --change")
      ->type_name("NAME=VALUES")
      ->allow_extra_args(false)
      ->group("Changes");
  command.add_option("--machine", machine, "Whose link copies meet on; else the recording's")
      ->type_name("NAME")
      ->group("Changes");
  command
      .add_flag(
          "--top{10}", top,
          "List the ten ops with the largest exposed time, or --top=N, and the gain without each")
      ->group("Output");
  command.add_option("--timeline", number, "Which timeline of the file, as `info` lists them")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000))
      ->group("Trace");
  AddImportFlags(command, flags);
}

double ReplayRun::ReplayError() const {
  return Seconds(stages.front().replayed.summary.step) / Seconds(recorded.step) - 1;
}

Timeline ReplayRun::Last() const {
  Timeline made = stages.back().replayed.timeline;
  made.title = fmt::format("replay of {}", title);
  for (size_t i = 1; i < stages.size(); ++i) made.notes.push_back("change: " + stages[i].change);
  made.notes.insert(made.notes.end(), notes.begin(), notes.end());
  return made;
}

ReplayRun RunReplay(const ReplayOptions& options, Progress& progress) {
  const std::string& recording = options.recording;
  if (options.top < 0 || options.top > 100) {
    throw UsageError("so many ops", "--top", "give 1 to 100");
  }
  std::vector<sim::ReplayChange> parsed;
  for (const std::string& text : options.sets) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      throw UsageError("'" + text + "' is no setting", "--set", "give link.h2d=2x, for example");
    }
    parsed.push_back(ParseSetting(text.substr(0, equals), text.substr(equals + 1)));
  }
  ReplayRun run;
  for (const std::string& text : options.grid) run.axes.push_back(sim::ParseAxis(text));
  if (run.axes.empty()) {
    for (const std::string& text : options.changes) parsed.push_back(sim::ParseReplayChange(text));
  } else {
    if (options.top > 0) {
      throw UsageError("a grid has many replays", "--top", "leave out --grid");
    }
    run.points = PointsOf(run.axes, parsed, options.changes);
  }
  run.recording = recording;
  traces::Trace file = ImportTitled(recording, options.flags, progress, &run.notes);
  if (file.timelines.empty()) {
    throw Error("holds no timeline", recording, "give a recording of a program");
  }
  const auto count = static_cast<int>(file.timelines.size());
  if (options.number > count || (options.number == 0 && count > 1)) {
    throw UsageError(fmt::format("{} timelines", count), recording,
                     "choose one with --timeline N; `stallcast info` lists them");
  }
  Timeline& timeline = file.timelines[static_cast<size_t>(std::max(0, options.number - 1))];
  if (sim::TakeAsOneStep(&timeline)) {
    run.notes.emplace_back(
        "no steps are known (--step-range names them): the whole recording is one");
  }
  run.title = timeline.title;

  const std::string machine =
      options.machine.empty() ? sim::MachineOfRecording(file.info.machine()) : options.machine;
  const hardware::Profile profile = hardware::FindProfile(machine);
  run.machine = profile.title;
  const auto predict = [&](sim::ReplayChange& change) {
    sim::PredictReplacement(&change, machine);
    if (!change.note.empty() && std::ranges::find(run.notes, change.note) == run.notes.end()) {
      run.notes.push_back(change.note);
    }
  };
  std::ranges::for_each(parsed, predict);
  for (GridPoint& point : run.points) std::ranges::for_each(point.changes, predict);
  const sim::Replay replay(timeline, sim::MakeReplayMachine(profile));
  run.notes.insert(run.notes.end(), replay.notes().begin(), replay.notes().end());
  run.recorded = sim::Summarize(timeline);
  run.stages.push_back({"as recorded", replay.Run()});
  ParallelFor(std::ssize(run.points), [&](int, int64_t i) {
    GridPoint& point = run.points[static_cast<size_t>(i)];
    point.replayed = replay.Run(point.changes);
    point.replayed.timeline = {};
  });
  for (size_t i = 0; run.axes.empty() && i < parsed.size(); ++i) {
    run.stages.push_back({parsed[i].text, replay.Run(std::span(parsed).first(i + 1))});
  }
  if (options.top > 0) {
    run.tops = replay.Top(static_cast<size_t>(options.top), run.stages.front().replayed);
  }
  run.info = std::move(file.info);
  return run;
}

Json RecordOf(const ReplayRun& run) {
  return {{"recording", run.recording},
          {"machine", run.machine},
          {"steps", run.recorded.steps.size()},
          {"recorded_step_ms", Milliseconds(run.recorded.step)},
          {"replay_error", run.ReplayError()},
          {"stages", StageRows(run.stages, /*flat=*/false)},
          {"grid", GridRows(run.axes, run.points, run.stages.front().replayed.summary.step)},
          {"top", TopRows(run.tops)},
          {"notes", run.notes}};
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
  stallcast replay kineto.json.gz -g link.h2d=1:4:x2 -g SHARE=0.25:1:0.25 \
      --change "scale kind=recall SHARE"

Changes:
)" + VerbHelp());
  sub->add_option("recording", command->options.recording, "File with a recording")
      ->required()
      ->type_name("FILE");
  command->options.AddTo(*sub);
  sub->add_option("--timeline-out", command->out,
                  "Write the last replay's timeline: .kvt, .pftrace, .json or .csv")
      ->type_name("FILE")
      ->group("Output");
  AddFormat(*sub, command->format);
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
