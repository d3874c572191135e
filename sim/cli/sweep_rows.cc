#include "sim/cli/sweep_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "sim/sweep.h"

namespace stallcast::cli {
namespace {

constexpr std::array kWorkload = {"trace", "model", "context", "batch", "tensor_parallel"};
constexpr std::array kTexts = {"method", "model", "machine", "host"};
constexpr std::array kNumbers = {"tensor_parallel", "context", "batch", "steps", "as_run"};

// A method's parameter, as CSV calls it where a column of all methods has its name.
std::string NameOfParameter(const std::string& name) {
  const bool taken = std::find(kTexts.begin(), kTexts.end(), name) != kTexts.end() ||
                     std::find(kNumbers.begin(), kNumbers.end(), name) != kNumbers.end();
  return taken ? "params." + name : name;
}

// What was asked for of each point, by name, the method first.
std::vector<AskedColumn> AskedColumns(const Points& points) {
  std::vector<AskedColumn> columns;
  const auto set = [&](const std::string& name, bool of_method, size_t point,
                       const std::string& value) {
    auto at = std::find_if(columns.begin(), columns.end(),
                           [&](const AskedColumn& c) { return c.name == name; });
    if (at == columns.end()) {
      at = columns.insert(at, {name, of_method, TextColumn(points.size())});
    }
    at->values.Set(point, value);
  };
  for (size_t i = 0; i < points.size(); ++i) {
    for (const char* name : kTexts) {
      set(name, false, i, points.Text(i, name));
    }
    for (const char* name : kNumbers) {
      // A failed point has 0 for what it would have taken from the trace.
      const double value = points.Number(i, name);
      const bool taken = Failed(points, i) && value == 0;
      set(name, false, i, std::isnan(value) || taken ? "" : fmt::format("{:.0f}", value));
    }
    set("trace", false, i, TraceOf(points.Text(i, "trace_file"), points.Text(i, "trace")));
    for (const auto& [name, value] : sim::StoredPairs(points.Text(i, "params"))) {
      set(NameOfParameter(name), true, i, value);
    }
    for (const auto& [name, value] : sim::StoredPairs(points.Text(i, "overrides"))) {
      set(name, false, i, value);
    }
  }
  return columns;
}

// Whether points differ in it: in any way, or for a parameter points of one method. What a failed
// point does not say is no difference.
bool Varies(const AskedColumn& column, const TextColumn& methods, const Points& points) {
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

// Writes "any" in a column where all its values give the same outcome, and keeps the first row.
void Fold(const Points& points, SweepRows& rows) {
  for (AskedColumn& column : rows.varying) {
    if (&column == &rows.varying.front()) continue;
    std::map<std::string, std::vector<size_t>> groups;
    for (const size_t i : rows.order) groups[Key(rows.varying, i, &column)].push_back(i);
    std::set<size_t> folded;
    for (const auto& [key, group] : groups) {
      const bool same = std::all_of(group.begin(), group.end(), [&](size_t i) {
        return points.Outcome(i) == points.Outcome(group.front());
      });
      if (group.size() < 2 || !same) continue;
      column.values.Set(group.front(), "any");
      folded.insert(group.begin() + 1, group.end());
    }
    std::erase_if(rows.order, [&](size_t i) { return folded.contains(i); });
  }
}

}  // namespace

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
  const TextColumn methods = asked.front().values;
  std::vector<AskedColumn> workload;
  for (AskedColumn& column : asked) {
    const bool shown = &column == &asked.front() || Varies(column, methods, points);
    const bool of_workload =
        std::find(kWorkload.begin(), kWorkload.end(), column.name) != kWorkload.end();
    if (of_workload && shown) workload.push_back(column);
    (shown ? rows.varying : rows.constant).push_back(std::move(column));
  }

  WorkloadBests bests(required);
  for (size_t i = 0; i < points.size(); ++i) {
    bests.Add(points.Workload(i), FiguresOf(points, i), Failed(points, i));
  }
  rows.best.assign(points.size(), false);
  for (const size_t i : bests.Find()) rows.best[i] = true;

  rows.order.resize(points.size());
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
    const auto value = [&](size_t i) { return points.Number(i, order.field().name); };
    return order.Before(value(a), value(b));
  });
  Fold(points, rows);
  return rows;
}

void WorkloadFronts::Add(const std::string& workload, const sim::Figures& f, bool failed) {
  const size_t point = points_++;
  if (failed || !f.fits) return;
  Members& members = by_workload_[workload];
  members.points.push_back(point);
  members.coordinates.push_back({f.step_ms, f.gpu_bytes, -f.attention_mass});
  if (members.points.size() < members.most) return;
  members.Prune();
  members.most = 2 * members.points.size() + kMostBeaten;
}

void WorkloadFronts::Members::Prune() {
  const std::vector<bool> front = sim::ParetoFront(coordinates);
  size_t kept = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!front[i]) continue;
    points[kept] = points[i];
    std::swap(coordinates[kept++], coordinates[i]);
  }
  points.resize(kept);
  coordinates.resize(kept);
}

std::vector<bool> WorkloadFronts::Find() {
  std::vector<bool> front(points_);
  for (auto& [name, members] : by_workload_) {
    members.Prune();
    for (const size_t point : members.points) front[point] = true;
  }
  return front;
}

void WorkloadBests::Add(const std::string& workload, const sim::Figures& figures, bool failed) {
  const size_t point = points_++;
  if (failed || !required_.Met(figures)) return;
  const auto [best, first] = by_workload_.try_emplace(workload, Best{point, figures.step_ms});
  if (!first && figures.step_ms < best->second.step_ms) best->second = {point, figures.step_ms};
}

std::set<size_t> WorkloadBests::Find() const {
  std::set<size_t> found;
  for (const auto& [name, best] : by_workload_) found.insert(best.point);
  return found;
}

}  // namespace stallcast::cli
