#include "traces/convert/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <unordered_map>
#include <utility>

#include "traces/common/error.h"

namespace stallcast::traces {
namespace {

// Assigns levels to slices that come in order of start.
class Levels {
 public:
  uint32_t Place(Picoseconds start, Picoseconds duration) {
    while (!busy_.empty() && busy_.top().first <= start) {
      free_.push(busy_.top().second);
      busy_.pop();
    }
    uint32_t level = used_;
    if (free_.empty()) {
      ++used_;
    } else {
      level = free_.top();
      free_.pop();
    }
    busy_.emplace(start + duration, level);
    return level;
  }
  uint32_t used() const { return used_; }

 private:
  using Busy = std::pair<Picoseconds, uint32_t>;
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy_;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> free_;
  uint32_t used_ = 0;
};

// Of each op the row that stands for it: its last one that is not a host's, else its last.
std::unordered_map<int64_t, size_t> RowsOfOps(const Timeline& timeline) {
  const auto is_host = [&](size_t row) {
    return timeline.lanes[timeline.lane[row]].kind == LaneKind::kHost;
  };
  std::unordered_map<int64_t, size_t> row_of;
  for (size_t row = 0; row < timeline.op.size(); ++row) {
    const auto [place, fresh] = row_of.emplace(timeline.op[row], row);
    if (!fresh && (!is_host(row) || is_host(place->second))) place->second = row;
  }
  return row_of;
}

}  // namespace

void RequireNoFault(const Timeline& timeline) {
  if (std::string fault = FirstFault(timeline); !fault.empty()) {
    throw Error(fault, fmt::format("timeline '{}'", timeline.title), "correct its columns");
  }
}

std::vector<size_t> InOrder(const Timeline& timeline) {
  std::vector<size_t> rows(timeline.start.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  std::ranges::stable_sort(
      rows, {}, [&](size_t row) { return std::pair(timeline.start[row], timeline.duration[row]); });
  return rows;
}

Layout LayOut(const Timeline& timeline) {
  const std::vector<size_t> rows = InOrder(timeline);
  std::vector<Levels> levels(timeline.lanes.size());
  std::vector<uint32_t> level_of(rows.size());
  for (const size_t row : rows) {
    level_of[row] = levels[timeline.lane[row]].Place(timeline.start[row], timeline.duration[row]);
  }

  Layout layout;
  std::vector<size_t> first_track;
  for (size_t lane = 0; lane < timeline.lanes.size(); ++lane) {
    first_track.push_back(layout.tracks.size());
    for (uint32_t sub = 0; sub < std::max(1u, levels[lane].used()); ++sub) {
      layout.tracks.push_back({static_cast<uint16_t>(lane), sub});
    }
  }
  for (size_t row = 0; row < rows.size(); ++row) {
    layout.track_of_row.push_back(
        static_cast<uint32_t>(first_track[timeline.lane[row]] + level_of[row]));
  }
  return layout;
}

std::string TrackName(const Timeline& timeline, const Track& track) {
  const std::string& lane = timeline.lanes[track.lane].name;
  return track.sub == 0 ? lane : fmt::format("{} (overlap {})", lane, track.sub);
}

std::string GroupName(const Timeline& timeline) {
  return timeline.title.empty() ? std::string(Name(timeline.origin))
                                : fmt::format("{}: {}", Name(timeline.origin), timeline.title);
}

std::vector<RowFlow> FlowsBetweenRows(const Timeline& timeline) {
  const std::unordered_map<int64_t, size_t> row_of = RowsOfOps(timeline);
  std::vector<RowFlow> flows;
  for (const TimelineFlow& flow : timeline.flows) {
    const auto from = row_of.find(flow.from_op);
    const auto to = row_of.find(flow.to_op);
    if (from == row_of.end() || to == row_of.end() || from == to) continue;
    RowFlow rows{static_cast<int64_t>(from->second), static_cast<int64_t>(to->second)};
    if (timeline.start[to->second] < timeline.start[from->second]) std::swap(rows.from, rows.to);
    flows.push_back(rows);
  }
  return flows;
}

void DirectFlowsByEnds(Timeline* timeline) {
  if (timeline->flows.empty()) return;
  const std::unordered_map<int64_t, size_t> row_of = RowsOfOps(*timeline);
  const auto end = [&](size_t row) { return timeline->start[row] + timeline->duration[row]; };
  for (TimelineFlow& flow : timeline->flows) {
    const auto from = row_of.find(flow.from_op);
    const auto to = row_of.find(flow.to_op);
    if (from == row_of.end() || to == row_of.end()) continue;
    if (end(to->second) < end(from->second)) std::swap(flow.from_op, flow.to_op);
  }
}

Picoseconds FirstStart(const Timeline& timeline) {
  return timeline.start.empty() ? Picoseconds(0) : *std::ranges::min_element(timeline.start);
}

}  // namespace stallcast::traces
