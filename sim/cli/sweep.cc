// stallcast sweep
#include "sim/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "sim/cli/commands.h"
#include "sim/cli/output.h"
#include "sim/cli/output_file.h"
#include "sim/cli/run_options.h"
#include "sim/names.h"
#include "traces/common/error.h"

namespace stallcast::cli {
namespace {

struct SweepCommand {
  std::string trace, out, show;
  std::vector<std::string> grid;
  RunOptions run;
  bool again = false, pareto = false;
  Format format = Format::kTable;

  void Run() const;
  void Sweep() const;
};

using Value = sim::ResultStore::Value;

double NumberOf(const Value& value) {
  const double* number = std::get_if<double>(&value);
  return number ? *number : std::numeric_limits<double>::quiet_NaN();
}

std::string TextOf(const Value& value) {
  const std::string* text = std::get_if<std::string>(&value);
  return text ? *text : std::string();
}

Json JsonOf(const Value& value) {
  if (const auto* number = std::get_if<double>(&value)) {
    // Counts are stored as numbers too: show 8192, not 8192.0.
    if (*number == std::floor(*number) && std::abs(*number) < 1e15) {
      return static_cast<int64_t>(*number);
    }
    return *number;
  }
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return nullptr;
}

// Rows of step time, GPU memory and lost attention mass, of points that fit.
std::vector<bool> Front(const sim::ResultStore::Rows& points) {
  const size_t step = points.Column("step_mean_ms"), gpu = points.Column("gpu_bytes"),
               mass = points.Column("attention_mass"), fits = points.Column("fits");
  std::vector<std::vector<double>> coordinates;
  for (const auto& row : points.rows) {
    const double kept = NumberOf(row[fits]) > 0 ? NumberOf(row[mass]) : std::nan("");
    coordinates.push_back({NumberOf(row[step]), NumberOf(row[gpu]), -kept});
  }
  return sim::ParetoFront(coordinates);
}

// "a=1 b=2" as pairs.
std::vector<std::pair<std::string, std::string>> Assignments(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string item = text.substr(at, end - at);
    const size_t equals = item.find('=');
    if (equals != std::string::npos)
      pairs.emplace_back(item.substr(0, equals), item.substr(equals + 1));
    at = end + 1;
  }
  return pairs;
}

struct Column {
  std::string name;
  std::vector<std::string> values;  // a point each; empty where its method has no such parameter
};

// What was asked for of each point, by name, as far as it differs between points: in any way, or
// for a parameter between points of one method.
std::vector<Column> Varying(const sim::ResultStore::Rows& points) {
  std::vector<Column> columns;
  const auto cell = [&](const std::string& name, size_t row) -> std::string& {
    auto at = std::find_if(columns.begin(), columns.end(),
                           [&](const Column& c) { return c.name == name; });
    if (at == columns.end()) {
      at = columns.insert(at, {name, std::vector<std::string>(points.rows.size())});
    }
    return at->values[row];
  };
  const std::vector<std::string> fixed = {"method",  "model", "tensor_parallel", "machine",
                                          "context", "batch", "steps",           "graph"};
  for (size_t i = 0; i < points.rows.size(); ++i) {
    for (const std::string& name : fixed) {
      const Value& value = points.rows[i][points.Column(name)];
      cell(name, i) = std::holds_alternative<double>(value) ? fmt::format("{:.0f}", NumberOf(value))
                                                            : TextOf(value);
    }
    for (const char* column : {"params", "overrides"}) {
      for (const auto& [name, value] : Assignments(TextOf(points.rows[i][points.Column(column)]))) {
        cell(name, i) = value;
      }
    }
  }
  const std::vector<std::string> methods = columns.front().values;
  std::vector<Column> varying = {columns.front()};
  for (size_t c = 1; c < columns.size(); ++c) {
    std::map<std::string, std::set<std::string>> values;
    for (size_t i = 0; i < methods.size(); ++i) {
      values[c < fixed.size() ? "" : methods[i]].insert(columns[c].values[i]);
    }
    if (std::any_of(values.begin(), values.end(),
                    [](const auto& v) { return v.second.size() > 1; })) {
      varying.push_back(std::move(columns[c]));
    }
  }
  return varying;
}

// 2 before 10, "25GB/s" before "100GB/s", and text by letters.
bool Before(const std::string& a, const std::string& b) {
  double x = 0, y = 0;
  const auto of_a = std::from_chars(a.data(), a.data() + a.size(), x);
  const auto of_b = std::from_chars(b.data(), b.data() + b.size(), y);
  if (of_a.ec == std::errc() && of_b.ec == std::errc() && x != y) return x < y;
  return a < b;
}

// Row numbers, ordered by the columns from left to right.
std::vector<size_t> Order(const std::vector<Column>& columns) {
  std::vector<size_t> order(columns.front().values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    for (const Column& column : columns) {
      if (column.values[a] != column.values[b]) return Before(column.values[a], column.values[b]);
    }
    return false;
  });
  return order;
}

std::string ShowTable(const sim::ResultStore::Rows& points, const std::vector<bool>& front) {
  const std::vector<Column> varying = Varying(points);
  std::vector<TextTable::Column> columns;
  if (!front.empty()) columns.push_back({"", "", true});
  for (const Column& column : varying) columns.push_back({column.name, "", true});
  columns.insert(columns.end(), {{"step P50", "ms"},
                                 {"tokens", "/s"},
                                 {"exposed", "ms"},
                                 {"recall", "MB/step"},
                                 {"hits", "%"},
                                 {"mass", ""},
                                 {"GPU", "GiB"},
                                 {"above", "%"},
                                 {"", "", true}});
  TextTable table(columns);
  for (const size_t i : Order(varying)) {
    const auto& row = points.rows[i];
    const auto number = [&](const char* name) { return NumberOf(row[points.Column(name)]); };
    std::vector<std::string> cells;
    if (!front.empty()) cells.emplace_back(front[i] ? "*" : "");
    for (const Column& column : varying) cells.push_back(column.values[i]);
    cells.push_back(Fixed(number("step_p50_ms"), 2));
    cells.push_back(Short(number("tokens_per_second")));
    cells.push_back(Fixed(number("exposed_ms"), 2));
    cells.push_back(Short(number("recall_bytes") / 1e6));
    cells.push_back(Percent(number("hit_rate"), 0));
    cells.push_back(Fixed(number("attention_mass"), 3));
    cells.push_back(Fixed(number("gpu_bytes") / (1024.0 * 1024 * 1024), 1));
    cells.push_back(Percent(number("above_ceiling"), 0));
    const bool failed = TextOf(row[points.Column("status")]) == "failed";
    cells.push_back(failed                ? "failed: " + TextOf(row[points.Column("message")])
                    : number("fits") == 0 ? "does not fit"
                                          : "");
    table.Add(std::move(cells));
  }
  return table.Render() +
         (front.empty() ? ""
                        : "\n* no other point has less step time, less GPU memory and more mass\n");
}

void Show(const std::string& path, bool pareto, Format format) {
  sim::ResultStore store(path, /*create=*/false);
  const sim::ResultStore::Rows points = store.Read();
  const std::vector<bool> front = pareto ? Front(points) : std::vector<bool>{};
  if (format == Format::kTable) {
    return Print(points.rows.empty() ? "no points\n" : ShowTable(points, front));
  }
  Json rows = Json::array();
  for (size_t i = 0; i < points.rows.size(); ++i) {
    Json row;
    if (pareto) row["pareto"] = static_cast<bool>(front[i]);
    for (size_t c = 0; c < points.columns.size(); ++c) {
      row[points.columns[c]] = JsonOf(points.rows[i][c]);
    }
    rows.push_back(std::move(row));
  }
  PrintRecords(rows, format);
}

void SweepCommand::Sweep() const {
  std::vector<sim::Axis> axes;
  for (const std::string& text : grid) axes.push_back(sim::ParseAxis(text));
  const auto has_axis = [&](std::string_view name) {
    return std::any_of(axes.begin(), axes.end(),
                       [&](const sim::Axis& a) { return a.name == name; });
  };
  // Several methods or machines named by option are an axis too.
  const std::vector<std::string> methods = run.Methods("freekv"), machines = run.Machines();
  if (methods.size() > 1 && !has_axis("method")) axes.push_back({"method", methods});
  if (machines.size() > 1 && !has_axis("machine")) axes.push_back({"machine", machines});
  // So are parameters: each point takes those that its method has.
  for (const auto& [name, value] : run.Params()) {
    if (!has_axis(name)) axes.push_back({name, {value}});
  }

  std::vector<std::string> inputs = run.Inputs();
  inputs.push_back(trace);
  for (const sim::Axis& axis : axes) {
    inputs.insert(inputs.end(), axis.values.begin(), axis.values.end());
  }
  RefuseToReplace(out, inputs);

  Progress progress;
  sim::Predictor predictor(trace, run.PredictorOptions(progress));
  sim::PredictRequest base = run.RequestFor(methods.front(), machines.front());
  base.params.clear();
  if (base.context == 0) base.context = predictor.info().prompt_tokens();
  for (sim::Axis& axis : axes) {
    if (axis.name == "method" && axis.values == std::vector<std::string>{"all"}) {
      axis.values = sim::MethodNames();
    }
  }
  const std::vector<sim::GridPoint> points = sim::ExpandGrid(base, axes);
  sim::ResultStore store(out, /*create=*/true);
  const auto total = std::ssize(points);
  const sim::SweepCounts counts =
      sim::Sweep(predictor, points, store, again, [&](int64_t finished) {
        progress.Update(fmt::format("{} points", total),
                        static_cast<double>(finished) / static_cast<double>(total));
      });
  progress.Clear();
  Print(
      fmt::format("{} points: {} predicted, {} failed, {} there already; "
                  "`stallcast sweep --show {}` prints them\n",
                  total, counts.done, counts.failed, counts.present, out));
}

void SweepCommand::Run() const {
  if (!show.empty()) {
    if (!trace.empty() || !out.empty() || !grid.empty()) {
      throw UsageError("--show only shows", "stallcast sweep", "run the sweep first, then show it");
    }
    return Show(show, pareto, format);
  }
  if (trace.empty() || out.empty()) {
    throw UsageError("a sweep needs a TRACE and --out FILE", "stallcast sweep",
                     "or give --show FILE; `stallcast sweep --help` has examples");
  }
  Sweep();
  if (pareto) Show(out, true, format);
}

}  // namespace

void AddSweep(CLI::App& app) {
  auto command = std::make_shared<SweepCommand>();
  CLI::App* sub = app.add_subcommand("sweep", "Predict a grid of runs over all cores, into a file");
  sub->description(R"(Predicts every point of a grid over all cores, into an SQLite file.

Examples:
  stallcast sweep )" STALLCAST_SAMPLE R"( --out results.sqlite --method freekv \
      -g budget=2048:8192:x2 -g link.h2d=25GB/s,50GB/s,100GB/s
  stallcast sweep )" STALLCAST_SAMPLE R"( --out results.sqlite --method all -g context=8K,32K,128K
  stallcast sweep --show results.sqlite --pareto

Stopped, it goes on where it was when called again. Points that fail are kept with the reason.)");
  constexpr const char* kGrid = "Grid";
  sub->add_option("trace", command->trace, "Trace to replay (.kvt)")->type_name("TRACE");
  sub->add_option("-g,--grid", command->grid,
                  "Axis: name=v1,v2 or name=low:high:step or name=low:high:xfactor; a name is a\n"
                  "method parameter, method, machine, model, context, batch, tp or a machine path")
      ->type_name("AXIS")
      ->allow_extra_args(false)
      ->group(kGrid);
  sub->add_option("-o,--out", command->out, "Results file (SQLite)")
      ->type_name("FILE")
      ->group(kGrid);
  sub->add_flag("--again", command->again, "Predict points anew that the file holds already")
      ->group(kGrid);
  command->run.AddTo(*sub);
  AddFormat(*sub, command->format);
  sub->add_option("--show", command->show, "Print the results of an earlier sweep")
      ->type_name("FILE")
      ->group("Output");
  sub->add_flag("--pareto", command->pareto,
                "Mark the Pareto front of step time, GPU memory and attention mass")
      ->group("Output");
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
