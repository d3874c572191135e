#include "sim/cli/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "sim/cli/commands.h"
#include "sim/typical_layer.h"
#include "traces/common/error.h"
#include "traces/common/quantity.h"

namespace stallcast::cli {
namespace {

using traces::Timeline;
using Origin = Timeline::Origin;

constexpr size_t kMostUnmatchedShown = 10;

struct CompareCommand {
  CompareOptions options;
  std::string a, b, max_step_error;
  bool exposed = false, typical_layer = false;  // that table alone
  Format format = Format::kTable;
  bool wide = false;

  void Run() const;

 private:
  void PrintAlone(const std::string& table, const Json& rows) const;
  void PrintPrograms(const Compared& compared) const;
  void PrintAll(const Compared& compared) const;
};

// Two timelines out of those of the files, numbered over these: by the numbers given, or else a
// prediction and a recording, or else the only two there are. A prediction comes first.
std::pair<const Timeline*, const Timeline*> ChooseTwo(const std::vector<Timeline>& timelines,
                                                      int first, int second,
                                                      const std::string& where) {
  const auto at = [&](int number, const char* option) -> const Timeline* {
    if (number == 0) return nullptr;
    if (number > std::ssize(timelines)) {
      throw UsageError(fmt::format("there is no timeline {}", number), option,
                       fmt::format("choose 1 to {}", timelines.size()));
    }
    return &timelines[static_cast<size_t>(number) - 1];
  };
  const Timeline* a = at(first, "--predicted");
  const Timeline* b = at(second, "--measured");
  if (a != nullptr && a == b) {
    throw UsageError("the same timeline twice", "--predicted and --measured", "choose another");
  }
  const auto count = [&](bool predicted) {
    return std::ranges::count_if(timelines, [&](const Timeline& t) {
      return (t.origin == Origin::kPredicted) == predicted;
    });
  };
  const auto only = [&](bool predicted, const Timeline* other) {
    const Timeline* found = nullptr;
    for (const Timeline& t : timelines) {
      if (&t == other || (t.origin == Origin::kPredicted) != predicted) continue;
      if (found != nullptr) return static_cast<const Timeline*>(nullptr);
      found = &t;
    }
    return found;
  };
  if (timelines.size() == 2) {
    const bool swap = count(true) == 1 && timelines[1].origin == Origin::kPredicted;
    if (a == nullptr && b == nullptr) return {&timelines[swap ? 1 : 0], &timelines[swap ? 0 : 1]};
    if (b == nullptr) b = a == &timelines[0] ? &timelines[1] : &timelines[0];
    if (a == nullptr) a = b == &timelines[0] ? &timelines[1] : &timelines[0];
    return {a, b};
  }
  if (a == nullptr) a = only(true, b);
  if (b == nullptr) b = only(false, a);
  if (a != nullptr && b != nullptr) return {a, b};
  if (timelines.size() < 2) {
    throw Error(fmt::format("{} timeline", timelines.empty() ? "no" : "only one"), where,
                "give two: a prediction (stallcast predict --timeline x.kvt) or a recording each");
  }
  throw UsageError(fmt::format("{} timelines", timelines.size()), where,
                   "choose two with --predicted N and --measured N, counted over the files");
}

Json GroupRows(const std::vector<sim::ResidualSummary>& groups) {
  Json rows = Json::array();
  for (const sim::ResidualSummary& g : groups) {
    rows.push_back({{"group", g.group},
                    {"ops", g.ops},
                    {"predicted_ms", Milliseconds(g.total.predicted.value)},
                    {"measured_ms", Milliseconds(g.total.measured.value)},
                    {"bias", g.total.relative()},
                    {"median_residual_us", Seconds(g.median) * 1e6},
                    {"p90_residual_us", Seconds(g.p90) * 1e6},
                    {"worst_residual_us", Seconds(g.worst) * 1e6},
                    {"median_relative", g.median_relative},
                    {"p90_relative", g.p90_relative},
                    {"worst_relative", g.worst_relative},
                    {"worst_step", g.worst_step},
                    {"worst_op", g.worst_op},
                    {"idle_before_predicted_ms", Milliseconds(g.idle.predicted.value)},
                    {"idle_before_measured_ms", Milliseconds(g.idle.measured.value)}});
  }
  return rows;
}

// What was exposed, and its times a step; roles that never were are left out.
std::vector<std::pair<std::string, sim::TimePair>> ExposedTimes(const sim::ExposedPair& exposed) {
  std::vector<std::pair<std::string, sim::TimePair>> times;
  for (int r = 0; r < traces::kRoles; ++r) {
    const auto role = static_cast<traces::Role>(r);
    const sim::TimePair& time = exposed.role(role);
    if (time.predicted.value.count() == 0 && time.measured.value.count() == 0) continue;
    times.emplace_back(Name(role), time);
  }
  times.emplace_back("nothing runs", exposed.nothing);
  times.emplace_back("all", exposed.total);
  return times;
}

Json ExposedRows(const std::optional<sim::ExposedPair>& exposed) {
  Json rows = Json::array();
  if (!exposed) return rows;
  for (const auto& [during, time] : ExposedTimes(*exposed)) {
    rows.push_back({{"exposed", during},
                    {"predicted_ms", Milliseconds(time.predicted.value)},
                    {"measured_ms", Milliseconds(time.measured.value)},
                    {"residual_us", Seconds(time.residual()) * 1e6},
                    {"relative", time.relative()},
                    {"within_goal", sim::WithinExposedGoal(time)}});
  }
  return rows;
}

std::string ExposedTable(const std::optional<sim::ExposedPair>& exposed, const Screen& screen) {
  if (!exposed)
    return "exposed a step: not known without a compute lane and a step on both sides\n";
  TextTable table({{"exposed a step", "", true},
                   {"predicted", "ms"},
                   {"measured", "ms"},
                   {"residual", "us"},
                   {"", "%"},
                   {"within", fmt::format("{} % or {:.0f} us", sim::kExposedGoalShare * 100,
                                          Seconds(sim::kExposedGoalTime) * 1e6)}});
  for (const auto& [during, time] : ExposedTimes(*exposed)) {
    table.Add({during, Fixed(Milliseconds(time.predicted.value), 3),
               Fixed(Milliseconds(time.measured.value), 3),
               Fixed(Seconds(time.residual()) * 1e6, 1), Percent(time.relative()),
               sim::WithinExposedGoal(time) ? "yes" : "no"});
  }
  return table.Render(screen);
}

Json LayerRows(const sim::TypicalLayer& layer) {
  Json rows = Json::array();
  for (const sim::TypicalLayer::Place& place : layer.places) {
    rows.push_back({{"op", place.op},
                    {"layers", layer.layers},
                    {"begin_predicted_us", Seconds(place.begin.predicted.value) * 1e6},
                    {"begin_measured_us", Seconds(place.begin.measured.value) * 1e6},
                    {"idle_before_predicted_us", Seconds(place.idle.predicted.value) * 1e6},
                    {"idle_before_measured_us", Seconds(place.idle.measured.value) * 1e6},
                    {"duration_predicted_us", Seconds(place.duration.predicted.value) * 1e6},
                    {"duration_measured_us", Seconds(place.duration.measured.value) * 1e6},
                    {"start_delay_us", Seconds(place.start_delay()) * 1e6}});
  }
  return rows;
}

std::string LayerTable(const sim::TypicalLayer& layer, const Screen& screen) {
  if (layer.places.empty()) return "no op that is on both sides has a layer\n";
  const auto us = [](Picoseconds time) { return Fixed(Seconds(time) * 1e6, 2); };
  TextTable table({{"op", "", true},
                   {"begins", "predicted us"},
                   {"", "measured us"},
                   {"idle before", "predicted us", false, 1},
                   {"", "measured us", false, 1},
                   {"takes", "predicted us"},
                   {"", "measured us"},
                   {"ends later", "us"}});
  for (const sim::TypicalLayer::Place& place : layer.places) {
    table.Add({place.op, us(place.begin.predicted.value), us(place.begin.measured.value),
               us(place.idle.predicted.value), us(place.idle.measured.value),
               us(place.duration.predicted.value), us(place.duration.measured.value),
               us(place.start_delay())});
  }
  std::string text =
      fmt::format(
          "{} of {} layers have these ops in this order: means, from the begin of the first\n\n",
          Count(layer.layers), Count(layer.of)) +
      table.Render(screen);
  if (layer.period.measured.value.count() != 0) {
    text += fmt::format("\nto the next layer: {} us predicted, {} measured ({} %)\n",
                        us(layer.period.predicted.value), us(layer.period.measured.value),
                        Percent(layer.period.relative()));
  }
  return text;
}

Json UnmatchedRows(const std::map<std::string, int64_t>& counts) {
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& x, const auto& y) { return x.second > y.second; });
  Json rows = Json::array();
  for (const auto& [name, count] : sorted) rows.push_back({{"name", name}, {"rows", count}});
  return rows;
}

std::string Unmatched(std::string_view side, const std::map<std::string, int64_t>& counts,
                      const Screen& screen) {
  int64_t total = 0;
  for (const auto& [name, count] : counts) total += count;
  std::string text = fmt::format("only {}: {}", side, Count(total));
  const Json rows = UnmatchedRows(counts);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == kMostUnmatchedShown) {
      text += fmt::format(", and {} more kinds", rows.size() - i);
      break;
    }
    text += fmt::format("{} {} {}", i == 0 ? " (" : ",", Count(rows[i]["rows"].get<int64_t>()),
                        rows[i]["name"].get<std::string>());
  }
  return Wrap(text + (rows.empty() ? "" : ")"), screen.width, 2) + "\n";
}

std::string TableText(const sim::Comparison& c, const std::vector<sim::ResidualSummary>& groups,
                      const std::string& by, const Timeline& predicted, const Timeline& measured,
                      const Screen& screen) {
  constexpr size_t kIndent = 11;  // under the titles
  std::string text = Wrap("predicted: " + predicted.title, screen.width, kIndent) + "\n" +
                     Wrap("measured:  " + measured.title, screen.width, kIndent) + "\n\n";
  text += fmt::format("{} ops matched over {} steps\n", Count(std::ssize(c.ops)), c.steps.size());
  if (!c.steps.empty()) {
    text +=
        fmt::format("step time error: {} % median, {} % worst (step {})\n",
                    Percent(c.median_step_error, 2), Percent(c.worst_step_error, 2), c.worst_step);
  }
  TextTable table({{by, "", true},
                   {"ops", ""},
                   {"predicted", "ms"},
                   {"measured", "ms"},
                   {"bias", "%"},
                   {"residual", "median us"},
                   {"", "P90 us"},
                   {"", "worst us"},
                   {"relative", "median %", false, 2},
                   {"", "P90 %", false, 2},
                   {"", "worst %", false, 2},
                   {"worst at", "step:op", false, 1},
                   {"idle before", "predicted ms", false, 3},
                   {"", "measured ms", false, 3}});
  for (const sim::ResidualSummary& g : groups) {
    table.Add({g.group, Count(g.ops), Fixed(Milliseconds(g.total.predicted.value), 3),
               Fixed(Milliseconds(g.total.measured.value), 3), Percent(g.total.relative()),
               Short(Seconds(g.median) * 1e6), Short(Seconds(g.p90) * 1e6),
               Short(Seconds(g.worst) * 1e6), Percent(g.median_relative), Percent(g.p90_relative),
               Percent(g.worst_relative), fmt::format("{}:{}", g.worst_step, g.worst_op),
               Fixed(Milliseconds(g.idle.predicted.value), 3),
               Fixed(Milliseconds(g.idle.measured.value), 3)});
  }
  return text + "\n" + table.Render(screen) + "\n" + ExposedTable(c.exposed, screen) + "\n" +
         Unmatched("predicted", c.only_predicted.value, screen) +
         Unmatched("measured", c.only_measured.value, screen);
}

// How a side is called, in tables and as the beginning of keys.
struct SideNames {
  std::string a, b;
};
SideNames NamesOf(const Timeline& a, const Timeline& b) {
  const auto name = [](const Timeline& t) -> std::string {
    return t.origin == Origin::kImported ? "recorded" : std::string(Name(t.origin));
  };
  if (name(a) == name(b)) return {"a", "b"};
  return {name(a), name(b)};
}

Json KindRows(const sim::ProgramComparison& c, const SideNames& names) {
  Json rows = Json::array();
  const auto milliseconds = [&](Json& row, const char* what, Picoseconds a, Picoseconds b) {
    row[names.a + what] = Milliseconds(a);
    row[names.b + what] = Milliseconds(b);
  };
  for (const auto& [kind, of] : c.kinds) {
    Json row = {{"kind", kind}};
    row[names.a + "_ops"] = of.a.ops;
    row[names.b + "_ops"] = of.b.ops;
    milliseconds(row, "_busy_ms", of.a.busy, of.b.busy);
    milliseconds(row, "_exposed_ms", of.a.exposed, of.b.exposed);
    row[names.a + "_bytes"] = of.a.bytes;
    row[names.b + "_bytes"] = of.b.bytes;
    row["matched_ops"] = of.matched;
    row["only_" + names.a] = of.only_a;
    row["only_" + names.b] = of.only_b;
    rows.push_back(std::move(row));
  }
  return rows;
}

// "82.3 ms of a step: offload": where two programs part most.
std::string CauseText(const sim::ProgramComparison& c, const SideNames& names) {
  if (c.cause.empty()) return "";
  const bool longer = c.cause_longer.count() > 0;
  const std::string more = longer ? names.b : names.a;
  const double ms = std::abs(Milliseconds(c.cause_longer));
  if (c.cause == "computing") {
    return fmt::format("most of the difference: {} computes {:.3f} ms longer a step", more, ms);
  }
  if (c.cause == "nothing runs") {
    return fmt::format(
        "most of the difference: {} has {:.3f} ms more a step in which nothing runs (the host, "
        "launches)",
        more, ms);
  }
  const sim::ProgramComparison::Kind& of = c.kinds.at(c.cause);
  std::string text = fmt::format("most of the difference: {} has {:.3f} ms more {} exposed a step",
                                 more, ms, c.cause);
  if (of.a.bytes > 0 || of.b.bytes > 0) {
    text +=
        fmt::format(" (it moves {:.1f} MB, {} {:.1f} MB)", (longer ? of.b.bytes : of.a.bytes) / 1e6,
                    longer ? names.a : names.b, (longer ? of.a.bytes : of.b.bytes) / 1e6);
  }
  return text;
}

std::string ProgramsTable(const sim::ProgramComparison& c, const SideNames& names,
                          const Timeline& a, const Timeline& b, const Screen& screen) {
  const auto line = [&](const std::string& words) { return Wrap(words, screen.width, 2) + "\n"; };
  std::string text = line(fmt::format("{}: {}", names.a, a.title)) +
                     line(fmt::format("{}: {}", names.b, b.title)) + "\n";
  text += fmt::format("step (median): {:.3f} ms {}, {:.3f} ms {} ({} %)\n", Milliseconds(c.a.step),
                      names.a, Milliseconds(c.b.step), names.b,
                      Percent(Seconds(c.b.step) / Seconds(c.a.step) - 1));
  if (const std::string cause = CauseText(c, names); !cause.empty()) text += line(cause);
  TextTable table({{"a step, by kind", "", true},
                   {"busy", names.a + " ms"},
                   {"", names.b + " ms"},
                   {"exposed", names.a + " ms"},
                   {"", names.b + " ms"},
                   {"ops", names.a, false, 1},
                   {"", names.b, false, 1},
                   {"moved", names.a + " MB", false, 2},
                   {"", names.b + " MB", false, 2}});
  const auto ms = [](Picoseconds time) { return Fixed(Milliseconds(time), 3); };
  const auto count = [](double value) { return value == 0 ? "-" : Fixed(value, 0); };
  const auto mb = [](double bytes) { return bytes == 0 ? "-" : Short(bytes / 1e6); };
  std::vector<std::pair<std::string, sim::ProgramComparison::Kind>> sorted(c.kinds.begin(),
                                                                           c.kinds.end());
  std::ranges::stable_sort(sorted, [](const auto& x, const auto& y) {
    return std::max(x.second.a.busy, x.second.b.busy) > std::max(y.second.a.busy, y.second.b.busy);
  });
  for (const auto& [kind, of] : sorted) {
    table.Add({kind, ms(of.a.busy), ms(of.b.busy), ms(of.a.exposed), ms(of.b.exposed),
               count(of.a.ops), count(of.b.ops), mb(of.a.bytes), mb(of.b.bytes)});
  }
  table.Add({"nothing runs", "", "", ms(c.a.nothing), ms(c.b.nothing), "", "", "", ""});
  table.Add({"all exposed", "", "", ms(c.a.exposed), ms(c.b.exposed), "", "", "", ""});
  table.Add({"computing", ms(c.a.computing), ms(c.b.computing), "", "", "", "", "", ""});
  text += '\n' + table.Render(screen);
  int64_t matched = 0, only_a = 0, only_b = 0;
  std::string left_a, left_b;
  for (const auto& [kind, of] : c.kinds) {
    matched += of.matched;
    only_a += of.only_a;
    only_b += of.only_b;
    const auto say = [&](std::string& left, int64_t ops) {
      if (ops > 0) left += fmt::format("{}{} {}", left.empty() ? " (" : ", ", Count(ops), kind);
    };
    say(left_a, of.only_a);
    say(left_b, of.only_b);
  }
  text += fmt::format("\n{} ops matched by {}kind and order in {} steps\n", Count(matched),
                      c.by_layer ? "layer, " : "", c.steps);
  text += line(
      fmt::format("only {}: {}{}", names.a, Count(only_a), left_a.empty() ? "" : left_a + ")"));
  return text + line(fmt::format("only {}: {}{}", names.b, Count(only_b),
                                 left_b.empty() ? "" : left_b + ")"));
}

void CompareCommand::PrintPrograms(const Compared& compared) const {
  const Timeline& first = compared.first;
  const Timeline& second = compared.second;
  const SideNames names = NamesOf(first, second);
  switch (format) {
    case Format::kTable:
      return Print(ProgramsTable(*compared.programs, names, first, second, ScreenFor(wide)));
    case Format::kCsv:
      return Print(ToCsv(KindRows(*compared.programs, names)));
    case Format::kJson:
      return Print(ToJsonText(RecordOf(compared)) + "\n");
  }
}

Json ProgramsRecord(const Compared& compared) {
  const sim::ProgramComparison& c = *compared.programs;
  const SideNames names = NamesOf(compared.first, compared.second);
  const auto side = [](const Timeline& t, const sim::TimelineSummary& of) {
    return Json{{"title", t.title},
                {"origin", Name(t.origin)},
                {"step_ms", Milliseconds(of.step)},
                {"computing_ms", Milliseconds(of.computing)},
                {"exposed_ms", Milliseconds(of.exposed)},
                {"nothing_runs_ms", Milliseconds(of.nothing)}};
  };
  return {{names.a, side(compared.first, c.a)},
          {names.b, side(compared.second, c.b)},
          {"steps", c.steps},
          {"by_layer", c.by_layer},
          {"cause", c.cause},
          {"cause_longer_ms", Milliseconds(c.cause_longer)},
          {"kinds", KindRows(c, names)}};
}

Json OpsRecord(const Compared& compared) {
  const sim::Comparison& comparison = *compared.ops;
  Json steps = Json::array();
  for (const sim::StepTime& s : comparison.steps) {
    steps.push_back({{"step", s.step},
                     {"predicted_ms", Milliseconds(s.time.predicted.value)},
                     {"measured_ms", Milliseconds(s.time.measured.value)},
                     {"relative", s.time.relative()}});
  }
  return {{"predicted", compared.first.title},
          {"measured", compared.second.title},
          {"matched_ops", comparison.ops.size()},
          {"matched_ops_of_other_plans", comparison.of_other_plans},
          {"median_step_error", comparison.median_step_error},
          {"worst_step_error", comparison.worst_step_error},
          {"worst_step", comparison.worst_step},
          {"by", compared.by},
          {"groups", GroupRows(compared.groups)},
          {"steps", steps},
          {"exposed", ExposedRows(comparison.exposed)},
          {"only_predicted", UnmatchedRows(comparison.only_predicted.value)},
          {"only_measured", UnmatchedRows(comparison.only_measured.value)}};
}

void CompareCommand::PrintAlone(const std::string& table, const Json& rows) const {
  Print(format == Format::kTable ? table
        : format == Format::kCsv ? ToCsv(rows)
                                 : ToJsonText(rows) + "\n");
}

void CompareCommand::PrintAll(const Compared& compared) const {
  switch (format) {
    case Format::kTable:
      return Print(TableText(*compared.ops, compared.groups, compared.by, compared.first,
                             compared.second, ScreenFor(wide)));
    case Format::kCsv:
      return Print(ToCsv(GroupRows(compared.groups)));
    case Format::kJson:
      return Print(ToJsonText(RecordOf(compared)) + "\n");
  }
}

sim::GroupBy GroupingNamed(const std::string& by) {
  static const std::map<std::string, sim::GroupBy> kGroups = {{"kind", sim::GroupBy::kName},
                                                              {"role", sim::GroupBy::kRole},
                                                              {"layer", sim::GroupBy::kLayer}};
  const auto found = kGroups.find(by);
  if (found != kGroups.end()) return found->second;
  throw UsageError("unknown grouping '" + by + "'", "--by", "choose kind, role or layer");
}

void CompareCommand::Run() const {
  GroupingNamed(options.by);  // before the files are read
  double limit = -1;
  if (!max_step_error.empty()) {
    limit = ParseQuantity(max_step_error, Dimension::kNumber, "--max-step-error");
  }

  Progress progress;
  std::vector<Timeline> timelines;
  std::string notes;  // of the files, for what is compared of them
  for (const std::string& path : {a, b}) {
    if (path.empty()) continue;
    std::vector<std::string> of_file;
    traces::Trace file = ImportTitled(path, options.flags, progress, &of_file);
    for (const std::string& note : of_file) notes += fmt::format("{}: note: {}\n", path, note);
    std::move(file.timelines.begin(), file.timelines.end(), std::back_inserter(timelines));
  }
  const std::string where = b.empty() ? a : a + " and " + b;
  const Compared compared = RunCompare(std::move(timelines), where, options);
  if (compared.programs) {
    if (typical_layer || exposed || limit >= 0) {
      throw Error("these are different programs, whose ops have nothing in common", where,
                  "leave out --typical-layer, --exposed and --max-step-error");
    }
    fmt::print(stderr, "{}", notes);
    return PrintPrograms(compared);
  }
  fmt::print(stderr, "{}", notes);
  const sim::Comparison& comparison = *compared.ops;
  if (typical_layer) {
    const sim::TypicalLayer layer = sim::FindTypicalLayer(comparison);
    PrintAlone(LayerTable(layer, ScreenFor(wide)), LayerRows(layer));
  } else if (exposed) {
    PrintAlone(ExposedTable(comparison.exposed, ScreenFor(wide)), ExposedRows(comparison.exposed));
  } else {
    PrintAll(compared);
  }
  if (limit < 0) return;
  if (comparison.steps.empty()) {
    throw Error("no step is on both sides", where, "compare timelines of the same steps");
  }
  if (comparison.median_step_error > limit) {
    throw Error(fmt::format("the median step time error of {} % is above {} %",
                            Percent(comparison.median_step_error, 2), Percent(limit, 2)),
                where, "--by kind shows where it comes from");
  }
}

}  // namespace

void CompareOptions::AddTo(CLI::App& command) {
  constexpr const char* kComparison = "Comparison";
  const auto number = CLI::Range(1, 1'000'000);
  command.add_option("--by", by, "Group residuals by kind, role or layer")
      ->capture_default_str()
      ->type_name("WHAT")
      ->group(kComparison);
  command
      .add_option("--predicted", predicted, "Which timeline comes first, counted over the files")
      ->type_name("N")
      ->check(number)
      ->group(kComparison);
  command.add_option("--measured", measured, "Which comes second")
      ->type_name("N")
      ->check(number)
      ->group(kComparison);
  AddImportFlags(command, flags);
}

Compared RunCompare(std::vector<Timeline> timelines, const std::string& where,
                    const CompareOptions& options) {
  const sim::GroupBy group_by = GroupingNamed(options.by);
  const auto [first, second] = ChooseTwo(timelines, options.predicted, options.measured, where);
  Compared compared;
  compared.by = options.by;
  // Numbers of ops mean the same in a prediction and a run of its plan, and nowhere else.
  if (first->origin == Origin::kPredicted && second->origin == Origin::kMeasured) {
    compared.ops = sim::Compare(sim::Predicted<const Timeline*>{first},
                                sim::Measured<const Timeline*>{second});
  }
  if (!compared.ops || compared.ops->of_other_plans > 0) {
    compared.ops.reset();
    compared.programs = sim::ComparePrograms(*first, *second);
  } else {
    compared.groups = sim::Summarize(*compared.ops, group_by);
  }
  compared.first = std::move(timelines[static_cast<size_t>(first - timelines.data())]);
  compared.second = std::move(timelines[static_cast<size_t>(second - timelines.data())]);
  return compared;
}

Json RecordOf(const Compared& compared) {
  return compared.programs ? ProgramsRecord(compared) : OpsRecord(compared);
}

void AddCompare(CLI::App& app) {
  auto command = std::make_shared<CompareCommand>();
  CLI::App* sub =
      app.add_subcommand("compare", "Compare two timelines: predictions, recordings, or one each");
  sub->description(
      R"(Compares two timelines. A prediction and a run of the same plan are compared op by op.
Other pairs (two predictions, two recordings, another program) are compared kind by kind, a step at
a time; the kind that differs most is named.

Examples:
  stallcast predict )" STALLCAST_SAMPLE R"( --method freekv --timeline predicted.kvt
  stallcast compare predicted.kvt measured.kvt
  stallcast compare predicted.kvt measured.kvt --by role --max-step-error 3%
  stallcast compare predicted.kvt measured.kvt --exposed --format csv
  stallcast compare predicted.kvt measured.kvt --typical-layer
  stallcast compare predicted.kvt kineto.json.gz --step-range ProfilerStep

The timelines may be in two files, in either order, or both in one.

Exposed is the time of a step in which the compute lane computes nothing while an op of a role runs
on another lane, on a host thread (calls do not count), or moves bytes on the compute lane itself.
Each of several roles at once counts it. `predict` charges the same time by cause instead.)");
  sub->add_option("a", command->a,
                  "File with a timeline: .kvt, or what `export` wrote of one (not .csv)")
      ->required()
      ->type_name("A");
  sub->add_option("b", command->b, "File with the other one, unless A holds both")->type_name("B");
  command->options.AddTo(*sub);
  sub->add_flag("--exposed", command->exposed,
                "Print the exposed time a step by role, predicted and measured, and nothing else")
      ->group("Comparison");
  sub->add_flag("--typical-layer", command->typical_layer,
                "Print the ops of the most frequent kind of layer in their order, and nothing else")
      ->excludes("--exposed")
      ->group("Comparison");
  sub->add_option("--max-step-error", command->max_step_error,
                  "Exit 1 if the median step time error is above this, as 3%")
      ->type_name("SHARE")
      ->group("Comparison");
  AddFormat(*sub, command->format);
  AddWide(*sub, command->wide);
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
