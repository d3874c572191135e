// Timelines as sets of rows, to compare what went through a file with what went in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "traces/timeline.h"

namespace stallcast::traces {

struct RowText {
  std::string lane, name;
  int64_t op, step, layer, start_ps, duration_ps, bytes;
  Role role;
  auto operator<=>(const RowText&) const = default;
};

inline void PrintTo(const RowText& row, std::ostream* out) {
  *out << row.lane << " '" << row.name << "' op " << row.op << " step " << row.step << " layer "
       << row.layer << " at " << row.start_ps << " for " << row.duration_ps << ", " << row.bytes
       << " bytes, " << Name(row.role);
}

inline int64_t RoundedToNs(int64_t ps) { return (ps / 1000 + (ps % 1000 >= 500 ? 1 : 0)) * 1000; }

/// Sorted; times from the first start, rounded to whole nanoseconds where `nanoseconds` says so.
inline std::vector<RowText> RowsOf(const Timeline& t, bool nanoseconds = false) {
  const int64_t first = t.start.empty() ? 0 : std::ranges::min(t.start).count();
  std::vector<RowText> rows;
  for (size_t i = 0; i < t.start.size(); ++i) {
    int64_t start = t.start[i].count() - first;
    int64_t end = start + t.duration[i].count();
    if (nanoseconds) {
      start = RoundedToNs(start);
      end = RoundedToNs(end);
    }
    rows.push_back({t.lanes[t.lane[i]].name, t.names[t.name[i]], t.op[i], t.step[i], t.layer[i],
                    start, end - start, t.bytes[i], t.role[i]});
  }
  std::ranges::sort(rows);
  return rows;
}

/// The flows that an export holds, each from the earlier op: between different ops that have rows.
inline std::vector<std::pair<int64_t, int64_t>> FlowsOf(const Timeline& t) {
  std::vector<std::pair<int64_t, int64_t>> flows;
  for (const TimelineFlow& flow : t.flows) {
    const bool known =
        std::ranges::count(t.op, flow.from_op) > 0 && std::ranges::count(t.op, flow.to_op) > 0;
    if (known && flow.from_op != flow.to_op) flows.push_back(std::minmax(flow.from_op, flow.to_op));
  }
  std::ranges::sort(flows);
  return flows;
}

}  // namespace stallcast::traces
