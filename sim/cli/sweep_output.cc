#include "sim/cli/sweep_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "sim/cli/prediction_record.h"
#include "sim/sweep.h"

namespace stallcast::cli {
namespace {

using Points = sim::ResultStore::Rows;

constexpr double kMega = 1e6;
constexpr double kGibi = 1024.0 * 1024 * 1024;

bool Failed(const Points& points, size_t row) {
  return TextOf(points.At(row, "status")) == "failed";
}

// Rows of step time, GPU memory and lost attention mass, of points that fit.
std::vector<bool> Front(const Points& points) {
  const size_t step = points.Column("step_mean_ms"), gpu = points.Column("gpu_bytes"),
               mass = points.Column("attention_mass"), fits = points.Column("fits");
  std::vector<std::vector<double>> coordinates;
  for (const auto& row : points.rows) {
    const double kept = NumberOf(row[fits]) > 0 ? NumberOf(row[mass]) : std::nan("");
    coordinates.push_back({NumberOf(row[step]), NumberOf(row[gpu]), -kept});
  }
  return sim::ParetoFront(coordinates);
}

struct Column {
  std::string name;
  bool of_method = false;           // a parameter, which other methods may not have
  std::vector<std::string> values;  // a point each; empty where it has none
};

// What was asked for of each point, by name, the method first.
std::vector<Column> AskedColumns(const Points& points) {
  std::vector<Column> columns;
  const auto cell = [&](const std::string& name, bool of_method, size_t row) -> std::string& {
    auto at = std::find_if(columns.begin(), columns.end(),
                           [&](const Column& c) { return c.name == name; });
    if (at == columns.end()) {
      at = columns.insert(at, {name, of_method, std::vector<std::string>(points.rows.size())});
    }
    return at->values[row];
  };
  for (size_t i = 0; i < points.rows.size(); ++i) {
    for (const char* name : {"method", "model", "machine"}) {
      cell(name, false, i) = TextOf(points.At(i, name));
    }
    for (const char* name : {"tensor_parallel", "context", "batch", "steps", "graph"}) {
      // A failed point has 0 for what it would have taken from the trace.
      const double value = NumberOf(points.At(i, name));
      const bool taken = Failed(points, i) && value == 0;
      cell(name, false, i) = std::isnan(value) || taken ? "" : fmt::format("{:.0f}", value);
    }
    const std::string file = TextOf(points.At(i, "trace_file"));
    cell("trace", false, i) = file.empty() ? TextOf(points.At(i, "trace")) : file;
    for (const auto& [name, value] : sim::StoredPairs(points.At(i, "params"))) {
      cell(name, true, i) = value;
    }
    for (const auto& [name, value] : sim::StoredPairs(points.At(i, "overrides"))) {
      cell(name, false, i) = value;
    }
  }
  return columns;
}

// Whether points differ in it: in any way, or for a parameter points of one method. What a failed
// point does not say is no difference.
bool Varies(const Column& column, const std::vector<std::string>& methods, const Points& points) {
  std::map<std::string, std::set<std::string>> values;
  for (size_t i = 0; i < methods.size(); ++i) {
    if (column.values[i].empty() && Failed(points, i)) continue;
    values[column.of_method ? methods[i] : ""].insert(column.values[i]);
  }
  return std::any_of(values.begin(), values.end(),
                     [](const auto& of_method) { return of_method.second.size() > 1; });
}

// "model x, machine y, context 32000": what is the same for all points, but for parameters.
std::string Heading(const std::vector<Column>& constant) {
  std::string text;
  for (const Column& column : constant) {
    const auto known = std::find_if(column.values.begin(), column.values.end(),
                                    [](const std::string& value) { return !value.empty(); });
    if (column.of_method || known == column.values.end()) continue;
    if ((column.name == "tensor_parallel" && *known == "1") ||
        (column.name == "graph" && *known == "0")) {
      continue;
    }
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", column.name, *known);
  }
  return text + "\n";
}

// Each note once; of those that differ in numbers alone the first stands for all. What was
// overridden is a column.
std::string Notes(const Points& points) {
  struct Kind {
    std::string first;
    std::set<std::string> all;
  };
  std::vector<std::pair<std::string, Kind>> kinds;
  for (size_t i = 0; i < points.rows.size(); ++i) {
    for (const std::string& note : sim::StoredTexts(points.At(i, "notes"))) {
      if (note.starts_with("overridden: ")) continue;
      std::string words = note;
      std::erase_if(words, [](unsigned char c) { return std::isdigit(c) || c == '.'; });
      auto at = std::find_if(kinds.begin(), kinds.end(),
                             [&](const auto& kind) { return kind.first == words; });
      if (at == kinds.end()) at = kinds.insert(at, {words, {note, {}}});
      at->second.all.insert(note);
    }
  }
  std::string text;
  for (const auto& [words, kind] : kinds) {
    text += "- " + kind.first;
    if (kind.all.size() > 1) {
      text += fmt::format(" (and {} with other numbers)", kind.all.size() - 1);
    }
    text += '\n';
  }
  return text;
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

// Why a point has no place among the others, or nothing.
std::string Reason(const Points& points, size_t row) {
  const auto number = [&](const char* name) { return NumberOf(points.At(row, name)); };
  if (Failed(points, row)) return "failed";
  if (number("fits") != 0) return "";
  const bool gpu = number("gpu_bytes") > number("gpu_limit_bytes");
  const bool host = number("host_bytes") > number("host_limit_bytes");
  return fmt::format("does not fit{}{}{}", gpu || host ? " the " : "", gpu ? "GPU" : "",
                     host ? (gpu ? " and host" : "host") : "");
}

// Each reason once, with the number of points that have it.
std::string Failures(const Points& points) {
  std::map<std::string, int64_t> reasons;
  for (size_t i = 0; i < points.rows.size(); ++i) {
    if (Failed(points, i)) ++reasons[TextOf(points.At(i, "message"))];
  }
  std::string text;
  for (const auto& [reason, number] : reasons) {
    text += fmt::format("- failed ({}): {}\n", number, reason);
  }
  return text;
}

// Points of different builds may differ by more than what was asked for.
std::string Builds(const Points& points) {
  std::set<std::string> programs;
  for (size_t i = 0; i < points.rows.size(); ++i) {
    programs.insert(TextOf(points.At(i, "program")));
  }
  if (programs.size() < 2) return "";
  return fmt::format("- predicted by {} builds of stallcast: sweep again for all by one\n",
                     programs.size());
}

std::string ShowTable(const Points& points, const std::vector<bool>& front) {
  std::vector<Column> varying, constant;
  const std::vector<Column> asked = AskedColumns(points);
  const std::vector<std::string>& methods = asked.front().values;
  for (const Column& column : asked) {
    const bool shown = &column == &asked.front() || Varies(column, methods, points);
    (shown ? varying : constant).push_back(column);
  }
  bool sampled = false;
  for (size_t i = 0; i < points.rows.size(); ++i) {
    sampled |= !std::isnan(NumberOf(points.At(i, "sampled_p50_ms")));
  }
  std::vector<TextTable::Column> columns;
  if (!front.empty()) columns.push_back({"", "", true});
  for (const Column& column : varying) columns.push_back({column.name, "", true});
  columns.insert(columns.end(), {{"mean", "ms"}, {"P50", "ms"}, {"P95", "ms"}});
  if (sampled) {
    columns.insert(columns.end(), {{"sampled", "P10 ms"}, {"", "P50 ms"}, {"", "P90 ms"}});
  }
  columns.insert(columns.end(), {{"tokens", "/s"},
                                 {"exposed", "ms"},
                                 {"recall", "MB"},
                                 {"hits", "%"},
                                 {"mass", ""},
                                 {"GPU", "GiB"},
                                 {"host", "GiB"},
                                 {"ceiling", "ms"},
                                 {"above", "%"},
                                 {"", "", true}});
  TextTable table(columns);
  for (const size_t i : Order(varying)) {
    const auto number = [&](const char* name) { return NumberOf(points.At(i, name)); };
    std::vector<std::string> cells;
    if (!front.empty()) cells.emplace_back(front[i] ? "*" : "");
    for (const Column& column : varying) cells.push_back(column.values[i]);
    for (const char* time : {"step_mean_ms", "step_p50_ms", "step_p95_ms"}) {
      cells.push_back(Fixed(number(time), 2));
    }
    if (sampled) {
      for (const char* time : {"sampled_p10_ms", "sampled_p50_ms", "sampled_p90_ms"}) {
        cells.push_back(Fixed(number(time), 2));
      }
    }
    cells.push_back(Short(number("tokens_per_second")));
    cells.push_back(Fixed(number("exposed_ms"), 2));
    cells.push_back(Short(number("recall_bytes") / kMega));
    cells.push_back(Percent(number("hit_rate"), 0));
    cells.push_back(Fixed(number("attention_mass"), 3));
    cells.push_back(Fixed(number("gpu_bytes") / kGibi, 1));
    cells.push_back(Fixed(number("host_bytes") / kGibi, 1));
    cells.push_back(Fixed(number("ceiling_ms"), 2));
    cells.push_back(Percent(number("above_ceiling"), 0));
    cells.push_back(Reason(points, i));
    table.Add(std::move(cells));
  }
  const std::string notes = Builds(points) + Notes(points) + Failures(points);
  return Heading(constant) + "\n" + table.Render() +
         (front.empty()
              ? ""
              : "\n* no other point has less step time, less GPU memory and more mass\n") +
         (notes.empty() ? "" : "\n" + notes);
}

}  // namespace

void ShowSweep(const std::string& path, bool pareto, Format format) {
  sim::ResultStore store(path, /*create=*/false);
  const Points points = store.Read();
  const std::vector<bool> front = pareto ? Front(points) : std::vector<bool>{};
  if (format == Format::kTable) {
    return Print(points.rows.empty() ? "no points\n" : ShowTable(points, front));
  }
  Json rows = Json::array();
  for (size_t i = 0; i < points.rows.size(); ++i) {
    Json row;
    if (pareto) row["pareto"] = static_cast<bool>(front[i]);
    for (const char* name : {"point", "status", "message", "finished"}) {
      row[name] = TextOf(points.At(i, name));
    }
    row.update(RecordOf(points, i));
    rows.push_back(std::move(row));
  }
  PrintRecords(rows, format);
}

}  // namespace stallcast::cli
