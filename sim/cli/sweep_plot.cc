#include "sim/cli/sweep_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "sim/cli/svg_plot.h"
#include "traces/common/count.h"
#include "traces/common/error.h"
#include "traces/common/whole_file.h"

namespace stallcast::cli {
namespace {

// The number that a value is or begins with, and its unit.
struct Value {
  double number = 0;
  std::string unit;
};

std::optional<Value> ValueOf(const std::string& text) {
  if (const auto count = ParseCount(text)) return Value{static_cast<double>(*count), ""};
  Value value;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value.number);
  if (error != std::errc() || !std::isfinite(value.number)) return std::nullopt;
  value.unit.assign(rest, end);
  return value;
}

// How many numbers of one unit a column takes; 0 where it takes anything else.
size_t Numbers(const AskedColumn& column) {
  std::set<double> numbers;
  std::set<std::string> units;
  for (size_t i = 0; i < column.values.size(); ++i) {
    const std::string& text = column.values[i];
    if (text.empty() || text == "any") continue;
    const std::optional<Value> value = ValueOf(text);
    if (!value) return 0;
    numbers.insert(value->number);
    units.insert(value->unit);
  }
  return units.size() == 1 ? numbers.size() : 0;
}

}  // namespace

void PlotSweep(const Points& points, const sim::Requirements& required, const SortOrder& order,
               const std::string& path) {
  const SweepRows rows = RowsOf(points, required, order);
  const AskedColumn* x = nullptr;
  for (const AskedColumn& column : rows.varying) {
    if (Numbers(column) >= 2 && (!x || Numbers(column) > Numbers(*x))) x = &column;
  }
  if (!x) {
    throw Error("no axis of these points has several numbers", path,
                "sweep one, as -g budget=1K:8K:x2");
  }
  std::map<std::string, std::map<double, double>> lines;
  std::set<double> all;
  std::string unit;
  std::map<std::string, double> flat;  // of lines on which x has no effect
  for (const size_t i : rows.order) {
    const double y = points.Number(i, order.field().name);
    if (Failed(points, i) || !FiguresOf(points, i).fits || std::isnan(y)) continue;
    std::string name;
    for (const AskedColumn& column : rows.varying) {
      if (&column == x || column.values[i].empty()) continue;
      name += (name.empty() ? "" : ", ") + (column.name == "method" ? "" : column.name + " ") +
              column.values[i];
    }
    const std::optional<Value> value = ValueOf(x->values[i]);
    if (!value) {
      flat[name] = y;
      continue;
    }
    unit = value->unit;
    all.insert(value->number);
    lines[name][value->number] = y;
  }
  for (const auto& [name, y] : flat) {
    for (const double number : all) lines[name][number] = y;
  }
  LinePlot plot{.title = fmt::format("{} by {}", order.field().name, x->name),
                .x_label = x->name + (unit.empty() ? "" : " (" + unit + ")"),
                .y_label = order.field().name,
                .series = {}};
  for (const auto& [name, line] : lines) {
    plot.series.push_back({name, {line.begin(), line.end()}});
  }
  WriteWhole(path, [&](const std::filesystem::path& part) {
    std::ofstream file(part, std::ios::binary);
    file << SvgOf(plot);
    if (!file.flush()) throw Error("cannot be written", path, "give it room");
  });
}

}  // namespace stallcast::cli
