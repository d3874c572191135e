// stallcast compare
#include "sim/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "sim/cli/commands.h"
#include "sim/cli/import_file.h"
#include "sim/cli/output.h"
#include "sim/usual_layer.h"
#include "traces/common/error.h"
#include "traces/common/quantity.h"

namespace stallcast::cli {
namespace {

using traces::Timeline;
using Origin = Timeline::Origin;

constexpr size_t kMostUnmatchedShown = 10;

struct CompareCommand {
  std::string a, b, by = "kind", max_step_error;
  bool exposed = false, down_layer = false;  // that table alone
  int predicted = 0, measured = 0;  // 1, 2, ... among the files' timelines; 0: the only one
  ImportFlags flags;
  Format format = Format::kTable;

  void Run() const;

 private:
  void PrintAlone(const std::string& table, const Json& rows) const;
  void PrintAll(const sim::Comparison& comparison, const std::vector<sim::ResidualSummary>& groups,
                const Timeline& p, const Timeline& m) const;
};

// The timeline of an origin, by number or the only one there is. There is at least one.
const Timeline& Choose(const std::vector<Timeline>& timelines, Origin origin, int number,
                       const std::string& where) {
  const std::string option = fmt::format("--{}", Name(origin));
  if (number > std::ssize(timelines)) {
    throw UsageError(fmt::format("there is no timeline {}", number), option,
                     fmt::format("choose 1 to {}", timelines.size()));
  }
  if (number > 0) {
    const Timeline& chosen = timelines[static_cast<size_t>(number) - 1];
    if (chosen.origin == origin) return chosen;
    throw UsageError(
        fmt::format("timeline {} is {}, not {}", number, Name(chosen.origin), Name(origin)), option,
        "`stallcast info` lists them");
  }
  const auto of_origin = [&](const Timeline& t) { return t.origin == origin; };
  const auto count = std::count_if(timelines.begin(), timelines.end(), of_origin);
  if (count > 1) {
    throw UsageError(fmt::format("{} {} timelines", count, Name(origin)), where,
                     fmt::format("choose one with {} N, counted over the files", option));
  }
  return *std::find_if(timelines.begin(), timelines.end(), of_origin);
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

std::string ExposedTable(const std::optional<sim::ExposedPair>& exposed) {
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
  return table.Render();
}

Json LayerRows(const sim::UsualLayer& layer) {
  Json rows = Json::array();
  for (const sim::UsualLayer::Place& place : layer.places) {
    rows.push_back({{"op", place.op},
                    {"layers", layer.layers},
                    {"begin_predicted_us", Seconds(place.begin.predicted.value) * 1e6},
                    {"begin_measured_us", Seconds(place.begin.measured.value) * 1e6},
                    {"idle_before_predicted_us", Seconds(place.idle.predicted.value) * 1e6},
                    {"idle_before_measured_us", Seconds(place.idle.measured.value) * 1e6},
                    {"duration_predicted_us", Seconds(place.duration.predicted.value) * 1e6},
                    {"duration_measured_us", Seconds(place.duration.measured.value) * 1e6},
                    {"later_us", Seconds(place.later()) * 1e6}});
  }
  return rows;
}

std::string LayerTable(const sim::UsualLayer& layer) {
  if (layer.places.empty()) return "no op that is on both sides has a layer\n";
  const auto us = [](Picoseconds time) { return Fixed(Seconds(time) * 1e6, 2); };
  TextTable table({{"op", "", true},
                   {"begins", "predicted us"},
                   {"", "measured us"},
                   {"idle before", "predicted us"},
                   {"", "measured us"},
                   {"takes", "predicted us"},
                   {"", "measured us"},
                   {"ends later", "us"}});
  for (const sim::UsualLayer::Place& place : layer.places) {
    table.Add({place.op, us(place.begin.predicted.value), us(place.begin.measured.value),
               us(place.idle.predicted.value), us(place.idle.measured.value),
               us(place.duration.predicted.value), us(place.duration.measured.value),
               us(place.later())});
  }
  std::string text =
      fmt::format(
          "{} of {} layers have these ops in this order: means, from the begin of the first\n\n",
          Count(layer.layers), Count(layer.of)) +
      table.Render();
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

std::string Unmatched(std::string_view side, const std::map<std::string, int64_t>& counts) {
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
  return text + (rows.empty() ? "\n" : ")\n");
}

std::string TableText(const sim::Comparison& c, const std::vector<sim::ResidualSummary>& groups,
                      const std::string& by, const Timeline& predicted, const Timeline& measured) {
  std::string text =
      fmt::format("predicted: {}\nmeasured:  {}\n\n", predicted.title, measured.title);
  text += fmt::format("{} ops matched over {} steps\n", Count(std::ssize(c.ops)), c.steps.size());
  if (c.of_other_plans > 0) {
    text += fmt::format(
        "{} of them have another role or layer on the other side: these are runs of different "
        "plans; compare a prediction with a run of the same method, model and batch\n",
        Count(c.of_other_plans));
  }
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
                   {"relative", "median %"},
                   {"", "P90 %"},
                   {"", "worst %"},
                   {"worst at", "step:op"},
                   {"idle before", "predicted ms"},
                   {"", "measured ms"}});
  for (const sim::ResidualSummary& g : groups) {
    table.Add({g.group, Count(g.ops), Fixed(Milliseconds(g.total.predicted.value), 3),
               Fixed(Milliseconds(g.total.measured.value), 3), Percent(g.total.relative()),
               Short(Seconds(g.median) * 1e6), Short(Seconds(g.p90) * 1e6),
               Short(Seconds(g.worst) * 1e6), Percent(g.median_relative), Percent(g.p90_relative),
               Percent(g.worst_relative), fmt::format("{}:{}", g.worst_step, g.worst_op),
               Fixed(Milliseconds(g.idle.predicted.value), 3),
               Fixed(Milliseconds(g.idle.measured.value), 3)});
  }
  return text + "\n" + table.Render() + "\n" + ExposedTable(c.exposed) + "\n" +
         Unmatched("predicted", c.only_predicted.value) +
         Unmatched("measured", c.only_measured.value);
}

void CompareCommand::PrintAlone(const std::string& table, const Json& rows) const {
  Print(format == Format::kTable ? table
        : format == Format::kCsv ? ToCsv(rows)
                                 : ToJsonText(rows) + "\n");
}

void CompareCommand::PrintAll(const sim::Comparison& comparison,
                              const std::vector<sim::ResidualSummary>& groups, const Timeline& p,
                              const Timeline& m) const {
  switch (format) {
    case Format::kTable:
      Print(TableText(comparison, groups, by, p, m));
      break;
    case Format::kCsv:
      Print(ToCsv(GroupRows(groups)));
      break;
    case Format::kJson: {
      Json steps = Json::array();
      for (const sim::StepTime& s : comparison.steps) {
        steps.push_back({{"step", s.step},
                         {"predicted_ms", Milliseconds(s.time.predicted.value)},
                         {"measured_ms", Milliseconds(s.time.measured.value)},
                         {"relative", s.time.relative()}});
      }
      Print(ToJsonText({{"predicted", p.title},
                        {"measured", m.title},
                        {"matched_ops", comparison.ops.size()},
                        {"matched_ops_of_other_plans", comparison.of_other_plans},
                        {"median_step_error", comparison.median_step_error},
                        {"worst_step_error", comparison.worst_step_error},
                        {"worst_step", comparison.worst_step},
                        {"by", by},
                        {"groups", GroupRows(groups)},
                        {"steps", steps},
                        {"exposed", ExposedRows(comparison.exposed)},
                        {"only_predicted", UnmatchedRows(comparison.only_predicted.value)},
                        {"only_measured", UnmatchedRows(comparison.only_measured.value)}}) +
            "\n");
      break;
    }
  }
}

void CompareCommand::Run() const {
  static const std::map<std::string, sim::GroupBy> kGroups = {{"kind", sim::GroupBy::kName},
                                                              {"role", sim::GroupBy::kRole},
                                                              {"layer", sim::GroupBy::kLayer}};
  const auto group_by = kGroups.find(by);
  if (group_by == kGroups.end()) {
    throw UsageError("unknown grouping '" + by + "'", "--by", "choose kind, role or layer");
  }
  double limit = -1;
  if (!max_step_error.empty()) {
    limit = ParseQuantity(max_step_error, Dimension::kNumber, "--max-step-error");
  }

  std::vector<Timeline> timelines;
  for (const std::string& path : {a, b}) {
    if (path.empty()) continue;
    traces::Trace file = ImportTimelines(path, flags);
    std::move(file.timelines.begin(), file.timelines.end(), std::back_inserter(timelines));
  }
  const std::string where = b.empty() ? a : a + " and " + b;
  for (const Origin origin : {Origin::kPredicted, Origin::kMeasured}) {
    if (std::none_of(timelines.begin(), timelines.end(),
                     [&](const Timeline& t) { return t.origin == origin; })) {
      throw Error(fmt::format("no {} timeline", Name(origin)), where,
                  "give a prediction (stallcast predict --timeline x.kvt) and a measured run");
    }
  }
  const Timeline& p = Choose(timelines, Origin::kPredicted, predicted, where);
  const Timeline& m = Choose(timelines, Origin::kMeasured, measured, where);
  const sim::Comparison comparison =
      sim::Compare(sim::Predicted<const Timeline*>{&p}, sim::Measured<const Timeline*>{&m});
  if (down_layer) {
    const sim::UsualLayer layer = sim::FindUsualLayer(comparison);
    PrintAlone(LayerTable(layer), LayerRows(layer));
  } else if (exposed) {
    PrintAlone(ExposedTable(comparison.exposed), ExposedRows(comparison.exposed));
  } else {
    PrintAll(comparison, sim::Summarize(comparison, group_by->second), p, m);
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

void AddCompare(CLI::App& app) {
  auto command = std::make_shared<CompareCommand>();
  CLI::App* sub =
      app.add_subcommand("compare", "Compare a prediction with a measured run, op by op");
  sub->description(R"(Compares a predicted timeline with a measured one, op by op.

Examples:
  stallcast predict )" STALLCAST_SAMPLE R"( --method freekv --timeline predicted.kvt
  stallcast compare predicted.kvt measured.kvt
  stallcast compare predicted.kvt measured.kvt --by role --max-step-error 3%
  stallcast compare predicted.kvt measured.kvt --exposed --format csv
  stallcast compare predicted.kvt measured.kvt --down-layer

The timelines may be in two files, in either order, or both in one.

Exposed is the time of a step in which the compute lane computes nothing while an op of a role runs
on another lane, on a host thread (calls do not count), or moves bytes on the compute lane itself.
Each of several roles at once counts it. `predict` charges the same time by cause instead.)");
  sub->add_option("a", command->a,
                  "File with a timeline: .kvt, or what `export` wrote of one (not .csv)")
      ->required()
      ->type_name("A");
  sub->add_option("b", command->b, "File with the other one, unless A holds both")->type_name("B");
  sub->add_option("--by", command->by, "Group residuals by kind, role or layer")
      ->capture_default_str()
      ->type_name("WHAT")
      ->group("Comparison");
  sub->add_flag("--exposed", command->exposed,
                "Print the exposed time a step by role, predicted and measured, and nothing else")
      ->group("Comparison");
  sub->add_flag("--down-layer", command->down_layer,
                "Print the ops of the commonest layer one after the other, and nothing else")
      ->excludes("--exposed")
      ->group("Comparison");
  sub->add_option("--max-step-error", command->max_step_error,
                  "Exit 1 if the median step time error is above this, as 3%")
      ->type_name("SHARE")
      ->group("Comparison");
  const auto number = CLI::Range(1, 1'000'000);
  sub->add_option("--predicted", command->predicted,
                  "Which timeline is the prediction, counted over the files")
      ->type_name("N")
      ->check(number)
      ->group("Comparison");
  sub->add_option("--measured", command->measured, "Which is the measured one")
      ->type_name("N")
      ->check(number)
      ->group("Comparison");
  AddFormat(*sub, command->format);
  AddImportFlags(*sub, command->flags);
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
