#include "sim/cli/sweep_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "sim/cli/prediction_record.h"
#include "sim/sweep.h"

namespace stallcast::cli {
namespace {

constexpr std::array kWorkload = {"trace", "model", "context", "batch", "tensor_parallel"};

// What was asked for of each point, by name, the method first.
std::vector<AskedColumn> AskedColumns(const Points& points) {
  std::vector<AskedColumn> columns;
  const auto cell = [&](const std::string& name, bool of_method, size_t row) -> std::string& {
    auto at = std::find_if(columns.begin(), columns.end(),
                           [&](const AskedColumn& c) { return c.name == name; });
    if (at == columns.end()) {
      at = columns.insert(at, {name, of_method, std::vector<std::string>(points.rows.size())});
    }
    return at->values[row];
  };
  for (size_t i = 0; i < points.rows.size(); ++i) {
    for (const char* name : {"method", "model", "machine", "host"}) {
      cell(name, false, i) = TextOf(points.At(i, name));
    }
    for (const char* name : {"tensor_parallel", "context", "batch", "steps", "as_run"}) {
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
bool Varies(const AskedColumn& column, const std::vector<std::string>& methods,
            const Points& points) {
  std::map<std::string, std::set<std::string>> values;
  for (size_t i = 0; i < methods.size(); ++i) {
    if (column.values[i].empty() && Failed(points, i)) continue;
    values[column.of_method ? methods[i] : ""].insert(column.values[i]);
  }
  return std::any_of(values.begin(), values.end(),
                     [](const auto& of_method) { return of_method.second.size() > 1; });
}

std::string Key(const std::vector<AskedColumn>& columns, size_t row,
                const AskedColumn* without = nullptr) {
  std::string key;
  for (const AskedColumn& column : columns) {
    if (&column != without) key += column.values[row] + '\n';
  }
  return key;
}

// What came out of a point, as exactly as it is stored.
std::string Outcome(const Points& points, size_t row) {
  if (Failed(points, row)) return "failed: " + TextOf(points.At(row, "message"));
  std::string text;
  for (const sim::PredictionField& field : sim::PredictionFields()) {
    text += fmt::format("{},", NumberOf(points.At(row, field.name)));
  }
  return text;
}

// Writes "any" in a column where all its values give the same outcome, and keeps the first row.
void Fold(const Points& points, SweepRows& rows) {
  std::vector<std::string> outcomes;
  for (size_t i = 0; i < points.rows.size(); ++i) outcomes.push_back(Outcome(points, i));
  for (AskedColumn& column : rows.varying) {
    if (&column == &rows.varying.front()) continue;
    std::map<std::string, std::vector<size_t>> groups;
    for (const size_t i : rows.order) groups[Key(rows.varying, i, &column)].push_back(i);
    std::set<size_t> folded;
    for (const auto& [key, group] : groups) {
      const bool same = std::all_of(group.begin(), group.end(), [&](size_t i) {
        return outcomes[i] == outcomes[group.front()];
      });
      if (group.size() < 2 || !same) continue;
      column.values[group.front()] = "any";
      folded.insert(group.begin() + 1, group.end());
    }
    std::erase_if(rows.order, [&](size_t i) { return folded.contains(i); });
  }
}

}  // namespace

bool Failed(const Points& points, size_t row) {
  return TextOf(points.At(row, "status")) == "failed";
}

sim::Figures FiguresOf(const Points& points, size_t row) {
  const auto number = [&](const char* name) { return NumberOf(points.At(row, name)); };
  return {!Failed(points, row) && number("fits") > 0, number("step_mean_ms"),
          number("attention_mass"), number("gpu_bytes")};
}

bool BeforeInOrder(const std::string& a, const std::string& b) {
  double x = 0, y = 0;
  const auto of_a = std::from_chars(a.data(), a.data() + a.size(), x);
  const auto of_b = std::from_chars(b.data(), b.data() + b.size(), y);
  if (of_a.ec == std::errc() && of_b.ec == std::errc() && x != y) return x < y;
  return a < b;
}

SweepRows RowsOf(const Points& points, const sim::Requirements& required, const SortOrder& order) {
  SweepRows rows;
  std::vector<AskedColumn> asked = AskedColumns(points);
  const std::vector<std::string> methods = asked.front().values;
  std::vector<AskedColumn> workload;
  for (const AskedColumn& column : asked) {
    const bool shown = &column == &asked.front() || Varies(column, methods, points);
    (shown ? rows.varying : rows.constant).push_back(column);
    const bool of_workload =
        std::find(kWorkload.begin(), kWorkload.end(), column.name) != kWorkload.end();
    if (of_workload && shown) workload.push_back(column);
  }
  for (size_t i = 0; i < points.rows.size(); ++i) rows.workloads.push_back(Key(workload, i));

  rows.best.assign(points.rows.size(), false);
  std::map<std::string, std::vector<size_t>> by_workload;
  for (size_t i = 0; i < points.rows.size(); ++i) by_workload[rows.workloads[i]].push_back(i);
  for (const auto& [name, members] : by_workload) {
    std::vector<sim::Figures> figures;
    for (const size_t i : members) figures.push_back(FiguresOf(points, i));
    const size_t best = sim::FastestThatMeets(figures, required);
    if (best < members.size()) rows.best[members[best]] = true;
  }

  rows.order.resize(points.rows.size());
  std::iota(rows.order.begin(), rows.order.end(), size_t{0});
  std::stable_sort(rows.order.begin(), rows.order.end(), [&](size_t a, size_t b) {
    for (const AskedColumn& column : workload) {
      if (column.values[a] != column.values[b]) {
        return BeforeInOrder(column.values[a], column.values[b]);
      }
    }
    const auto place = [&](size_t i) {
      return Failed(points, i) ? 2 : FiguresOf(points, i).fits ? 0 : 1;
    };
    if (place(a) != place(b)) return place(a) < place(b);
    const auto value = [&](size_t i) { return NumberOf(points.At(i, order.field().name)); };
    return order.Before(value(a), value(b));
  });
  Fold(points, rows);
  return rows;
}

std::vector<bool> FrontByWorkload(const Points& points, const std::vector<std::string>& workloads) {
  std::map<std::string, std::vector<size_t>> by_workload;
  for (size_t i = 0; i < points.rows.size(); ++i) by_workload[workloads[i]].push_back(i);
  std::vector<bool> front(points.rows.size(), false);
  for (const auto& [name, members] : by_workload) {
    std::vector<std::vector<double>> coordinates;
    for (const size_t i : members) {
      const sim::Figures f = FiguresOf(points, i);
      coordinates.push_back({f.step_ms, f.gpu_bytes, f.fits ? -f.attention_mass : std::nan("")});
    }
    const std::vector<bool> of_workload = sim::ParetoFront(coordinates);
    for (size_t i = 0; i < members.size(); ++i) front[members[i]] = of_workload[i];
  }
  return front;
}

}  // namespace stallcast::cli
