#include "sim/cli/sweep_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "sim/cli/notes.h"
#include "sim/cli/prediction_record.h"
#include "sim/cli/requirement_options.h"
#include "sim/cli/sweep_plot.h"
#include "sim/cli/sweep_rows.h"
#include "traces/common/error.h"

namespace stallcast::cli {
namespace {

constexpr double kMega = 1e6;
constexpr double kGibi = 1024.0 * 1024 * 1024;

// "model x, machine y, context 32000": what is the same for all points, but for parameters.
std::string Heading(const std::vector<AskedColumn>& constant) {
  std::string text;
  for (const AskedColumn& column : constant) {
    size_t known = 0;
    while (known < column.values.size() && column.values[known].empty()) ++known;
    if (column.of_method || known == column.values.size()) continue;
    const std::string& value = column.values[known];
    if ((column.name == "tensor_parallel" && value == "1") ||
        (column.name == "host" && value == plan::Name(plan::Host::kCpp)) ||
        (column.name == "as_run" && value == "0")) {
      continue;
    }
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", column.name, value);
  }
  return text;
}

// What was overridden is a column.
std::string Notes(sim::ResultStore& store, const Screen& screen) {
  NoteList notes;
  std::set<std::string> methods;
  store.ForEach([&](const sim::ResultStore::Rows& point) {
    const std::string method = TextOf(point.At(0, "method"));
    if (!Failed(point)) methods.insert(method);
    for (const std::string& note : sim::StoredTexts(point.At(0, "notes"))) {
      if (!note.starts_with("overridden: ")) notes.Add(note, method);
    }
  });
  return notes.Render(methods, screen);
}

// Why a point has no place among the others, or nothing.
std::string Reason(const Points& points, size_t row) {
  const auto number = [&](const char* name) { return points.Number(row, name); };
  if (Failed(points, row)) return "failed";
  if (number("fits") != 0) return "";
  const bool gpu = number("gpu_bytes") > number("gpu_limit_bytes");
  const bool host = number("host_bytes") > number("host_limit_bytes");
  return fmt::format("does not fit{}{}{}", gpu || host ? " the " : "", gpu ? "GPU" : "",
                     host ? (gpu ? " and host" : "host") : "");
}

// Each reason once, with the number of points that have it.
std::string Failures(const Points& points, const Screen& screen) {
  std::map<std::string, int64_t> reasons;
  for (size_t i = 0; i < points.size(); ++i) {
    if (Failed(points, i)) ++reasons[points.Text(i, "message")];
  }
  std::string text;
  for (const auto& [reason, number] : reasons) {
    text += Aside(fmt::format("- failed ({}): {}", number, reason), screen);
  }
  return text;
}

// Points of different builds may differ by more than what was asked for.
std::string Builds(const Points& points, const Screen& screen) {
  std::set<std::string> programs;
  for (size_t i = 0; i < points.size(); ++i) {
    programs.insert(points.Text(i, "program"));
  }
  if (programs.size() < 2) return "";
  return Aside(fmt::format("- predicted by {} builds of stallcast: sweep again for all by one",
                           programs.size()),
               screen);
}

// A column of results.
struct Result {
  TextTable::Column column;
  const char* field;
  std::string (*text)(double);
};

std::vector<Result> Results(bool sampled, bool band) {
  const auto time = [](double v) { return Fixed(v, 2); };
  const auto gibibytes = [](double v) { return Fixed(v / kGibi, 1); };
  const auto percent = [](double v) { return Percent(v, 0); };
  std::vector<Result> results = {
      {{.title = "mean", .unit = "ms", .help = "time of a step"}, "step_mean_ms", time},
      {{.title = "P50", .unit = "ms", .rank = 6}, "step_p50_ms", time},
      {{.title = "P95", .unit = "ms", .rank = 4}, "step_p95_ms", time}};
  if (band) {
    results.insert(results.begin() + 1,
                   {{{.title = "host", .unit = "least ms", .help = "of an unmeasured host"},
                     "host_least_ms",
                     time},
                    {{.title = "", .unit = "most ms"}, "host_most_ms", time}});
  }
  if (sampled) {
    results.insert(results.end(),
                   {{{.title = "sampled", .unit = "P10 ms", .rank = 3}, "sampled_p10_ms", time},
                    {{.title = "", .unit = "P50 ms", .rank = 3}, "sampled_p50_ms", time},
                    {{.title = "", .unit = "P90 ms", .rank = 3}, "sampled_p90_ms", time}});
  }
  results.insert(
      results.end(),
      {{{.title = "tokens", .unit = "/s", .rank = 1}, "tokens_per_second", Short},
       {{.title = "exposed", .unit = "ms", .rank = 2, .help = "GPU idle in a step"},
        "exposed_ms",
        time},
       {{.title = "recall", .unit = "MB", .rank = 5, .help = "moved to the GPU in a step"},
        "recall_bytes",
        [](double v) { return Short(v / kMega); }},
       {{.title = "hits", .unit = "%", .rank = 8, .help = "selected units that were on the GPU"},
        "hit_rate",
        percent},
       {{.title = "mass", .help = "share of the attention weight kept"},
        "attention_mass",
        [](double v) { return Fixed(v, 3); }},
       {{.title = "GPU", .unit = "GiB"}, "gpu_bytes", gibibytes},
       {{.title = "host", .unit = "GiB", .rank = 7}, "host_bytes", gibibytes},
       {{.title = "ceiling",
         .unit = "ms",
         .rank = 10,
         .help = "the least time that any schedule of the same work takes"},
        "ceiling_ms",
        time},
       {{.title = "over", .unit = "ceiling", .rank = 9, .help = "mean over the ceiling"},
        "above_ceiling",
        [](double v) { return std::isnan(v) ? std::string("-") : Fixed(1 + v, 2) + "x"; }}});
  return results;
}

std::string MarkLine(const SweepRows& rows, const Points& points, const SweepForm& form,
                     bool front) {
  std::string line;
  if (std::find(rows.best.begin(), rows.best.end(), true) != rows.best.end()) {
    std::set<std::string> workloads;
    for (size_t i = 0; i < points.size(); ++i) {
      if (!Failed(points, i)) workloads.insert(points.Workload(i));
    }
    line = fmt::format("* the fastest{} that fits with {}",
                       workloads.size() > 1 ? " of its workload" : "", form.required.Describe());
  } else {
    std::vector<sim::Figures> figures;
    for (size_t i = 0; i < points.size(); ++i) figures.push_back(FiguresOf(points, i));
    const size_t nearest = sim::Nearest(figures, form.required);
    std::string name;
    for (const AskedColumn& column : rows.varying) {
      if (column.values[nearest].empty()) continue;
      name += (name.empty() ? "" : ", ") + (column.name == "method" ? "" : column.name + " ") +
              column.values[nearest];
    }
    line = fmt::format("None fits with {}. The nearest is {}: {}", form.required.Describe(), name,
                       fmt::join(form.required.Missed(figures[nearest]), "; "));
  }
  line += " (--min-mass, --max-gpu, --max-step).";
  if (front)
    line += " + no other of its workload has less step time, less GPU memory and more mass.";
  return line;
}

std::string ShowTable(sim::ResultStore& store, const Points& points, const SweepForm& form) {
  const SweepRows rows = RowsOf(points, form.required, form.order);
  WorkloadFronts fronts;
  for (size_t i = 0; form.pareto && i < points.size(); ++i) {
    fronts.Add(points.Workload(i), FiguresOf(points, i), Failed(points, i));
  }
  const std::vector<bool> front = fronts.Find();
  bool sampled = false, band = false, reasons = false;
  for (size_t i = 0; i < points.size(); ++i) {
    sampled |= !std::isnan(points.Number(i, "sampled_p50_ms"));
    band |= !std::isnan(points.Number(i, "host_most_ms"));
    reasons |= !Reason(points, i).empty();
  }
  const std::vector<Result> results = Results(sampled, band);
  std::vector<TextTable::Column> columns = {{.title = "", .left = true}};
  for (const AskedColumn& column : rows.varying) {
    columns.push_back({.title = column.name, .left = true});
  }
  for (const Result& result : results) columns.push_back(result.column);
  if (reasons) columns.push_back({.title = "", .left = true});
  TextTable table(columns);
  size_t shown = 0;
  for (const size_t i : rows.order) {
    if (form.most_rows > 0 && shown == form.most_rows) break;
    ++shown;
    const std::string reason = Reason(points, i);
    std::vector<std::string> cells = {
        fmt::format("{}{}", rows.best[i] ? "*" : "", form.pareto && front[i] ? "+" : "")};
    for (const AskedColumn& column : rows.varying) cells.push_back(column.values[i]);
    for (const Result& result : results) {
      cells.push_back(result.text(points.Number(i, result.field)));
    }
    if (reasons) cells.push_back(reason);
    table.Add(std::move(cells), !reason.empty() ? Tone::kBad
                                : rows.best[i]  ? Tone::kStrong
                                                : Tone::kPlain);
  }
  std::string text =
      Wrap(Heading(rows.constant), form.screen.width, 2) + "\n\n" + table.Render(form.screen);
  if (shown < rows.order.size()) {
    text +=
        Aside(fmt::format("{} more rows: `stallcast sweep --show {}` prints all.",
                          Count(std::ssize(rows.order) - static_cast<int64_t>(shown)), form.file),
              form.screen);
  }
  return text + "\n" + Wrap(MarkLine(rows, points, form, form.pareto), form.screen.width, 2) +
         "\n" + Aside(table.Legend(form.screen), form.screen) + Builds(points, form.screen) +
         Notes(store, form.screen) + Failures(points, form.screen);
}

// The numbers that a table or a plot shows.
std::vector<std::string> Shown(const SweepForm& form) {
  std::vector<std::string> names = {form.order.field().name, "gpu_limit_bytes", "host_limit_bytes"};
  for (const Result& result : Results(/*sampled=*/true, /*band=*/true))
    names.emplace_back(result.field);
  return names;
}

}  // namespace

void SweepForm::AddRecordOptions(CLI::App& command) {
  AddRequirements(command, required);
  command
      .add_flag("--pareto", pareto,
                "Mark with + what no other of its workload beats in step time, GPU memory and "
                "attention mass")
      ->group("Output");
}

void ForEachRecord(
    const SweepForm& form,
    const std::function<void(const Json& record, const RecordWriter::Names& names)>& use) {
  sim::ResultStore store(form.file, /*create=*/false);
  // What is said of a point beside the others comes of the first time.
  WorkloadBests bests(form.required);
  WorkloadFronts fronts;
  RecordWriter::Names names = {{"params", {}}, {"overrides", {}}};
  store.ForEach([&](const sim::ResultStore::Rows& point) {
    const std::string workload = WorkloadOf(point);
    bests.Add(workload, FiguresOf(point), Failed(point));
    if (form.pareto) fronts.Add(workload, FiguresOf(point), Failed(point));
    for (auto& [key, known] : names) {
      for (const auto& [name, value] : sim::StoredPairs(point.At(0, key))) {
        if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
      }
    }
  });
  const std::set<size_t> best = bests.Find();
  const std::vector<bool> front = fronts.Find();
  size_t i = 0;
  store.ForEach([&](const sim::ResultStore::Rows& point) {
    Json row;
    if (form.pareto) row["pareto"] = static_cast<bool>(front[i]);
    for (const char* name : {"point", "status", "message", "finished"}) {
      row[name] = TextOf(point.At(0, name));
    }
    row.update(RecordOf(point, 0));
    row["good_enough"] = form.required.Met(FiguresOf(point));
    row["best"] = best.contains(i++);
    use(row, names);
  });
}

void ShowSweep(const SweepForm& form) {
  const bool table = form.format == Format::kTable;
  if (table || !form.plot.empty()) {
    sim::ResultStore store(form.file, /*create=*/false);
    if (store.Count() > kMostInTable) {
      throw UsageError(
          fmt::format("{} points are too many for a table or a plot", Count(store.Count())),
          form.file, "use --format csv or json, or SQL on the file's view `points`");
    }
    const Points points(store, Shown(form));
    if (!form.plot.empty()) PlotSweep(points, form.required, form.order, form.plot);
    if (table) return Print(points.size() == 0 ? "no points\n" : ShowTable(store, points, form));
  }
  std::optional<RecordWriter> writer;
  ForEachRecord(form, [&](const Json& record, const RecordWriter::Names& names) {
    if (!writer) writer.emplace(form.format, names);
    writer->Add(record);
  });
  if (!writer) writer.emplace(form.format, RecordWriter::Names());
  writer->Finish();
}

}  // namespace stallcast::cli
