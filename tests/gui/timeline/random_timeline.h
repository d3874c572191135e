// SPDX-License-Identifier: GPL-3.0-or-later
// Timelines of every shape: overlaps, ops of no length, gaps of all sizes, steps, waits.
#pragma once

#include <algorithm>
#include <random>
#include <string>

#include "gui/timeline/timeline_model.h"
#include "traces/timeline.h"

namespace stallcast::gui {

/// An empty timeline with a host lane, a compute stream, a copy engine and another stream.
inline traces::Timeline EmptyTimeline(
    traces::Timeline::Origin origin = traces::Timeline::Origin::kPredicted) {
  traces::Timeline t;
  t.origin = origin;
  t.title = "test";
  t.lanes = {{"host", traces::LaneKind::kHost, false},
             {"compute", traces::LaneKind::kStream, true},
             {"copy", traces::LaneKind::kCopyEngine, false},
             {"side", traces::LaneKind::kStream, false}};
  t.names = {"gemm", "copy", "call gemm", "select"};
  return t;
}

struct Row {
  uint16_t lane = 1;
  int64_t op = -1;
  int32_t step = -1;
  traces::Role role = traces::Role::kProjection;
  uint32_t name = 0;
  int64_t start = 0, duration = 0, bytes = 0;
};

inline void Add(traces::Timeline& t, const Row& row) {
  t.lane.push_back(row.lane);
  t.op.push_back(row.op);
  t.step.push_back(row.step);
  t.layer.push_back(static_cast<int16_t>(row.op < 0 ? -1 : row.op % 4));
  t.role.push_back(row.role);
  t.name.push_back(row.name);
  t.start.emplace_back(row.start);
  t.duration.emplace_back(row.duration);
  t.bytes.push_back(row.bytes);
}

/// `rows` rows on four lanes with ids from 0, in a shuffled order; `steps` of about equal length.
inline traces::Timeline RandomTimeline(
    uint32_t seed, int64_t rows, int32_t steps = 3,
    traces::Timeline::Origin origin = traces::Timeline::Origin::kPredicted) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) {
    return std::uniform_int_distribution<int64_t>(0, n - 1)(random);
  };
  // Lengths from nothing to long, each order of magnitude as likely.
  const auto length = [&] {
    if (below(8) == 0) return int64_t{0};
    int64_t most = 10;
    for (int64_t k = below(6); k > 0; --k) most *= 10;
    return below(most);
  };
  traces::Timeline t = EmptyTimeline(origin);
  std::vector<Row> all;
  int64_t ends[4] = {};
  for (int64_t i = 0; i < rows; ++i) {
    Row row;
    row.lane = static_cast<uint16_t>(below(4));
    int64_t& end = ends[row.lane];
    // Mostly after the op before it, sometimes over it.
    const int64_t back = below(5) == 0 ? length() : 0;
    row.start = std::max<int64_t>(0, end - back) + (below(2) == 0 ? 0 : length());
    row.duration = length();
    end = std::max(end, row.start + row.duration);
    row.op = below(20) == 0 ? -1 : i / 2;
    row.step = static_cast<int32_t>(i * steps / rows);
    row.role = static_cast<traces::Role>(below(traces::kRoles));
    row.name = static_cast<uint32_t>(below(4));
    row.bytes = below(3) == 0 ? below(1 << 20) : 0;
    all.push_back(row);
  }
  std::shuffle(all.begin(), all.end(), random);
  for (const Row& row : all) Add(t, row);
  for (int64_t i = 0; i < rows / 4; ++i) {
    const int64_t a = below(std::max<int64_t>(1, rows / 2)),
                  b = below(std::max<int64_t>(1, rows / 2));
    t.flows.push_back({std::min(a, b), std::max(a, b)});
  }
  return t;
}

}  // namespace stallcast::gui
