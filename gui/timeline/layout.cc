// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/layout.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace stallcast::gui {
namespace {

using traces::LaneKind;

// Logical pixels.
constexpr int kMinimapRow = 13, kMinimapMargin = 4;
constexpr int kRuler = 40, kCaption = 22, kLaneGap = 7, kMargin = 8;
constexpr int kLeastRow = 18, kMostRow = 36, kRowSeam = 1;
// Heights of rows, as shares of that of a lane's first track.
constexpr double kOtherTrack = 0.8, kExposedRow = 0.8, kGhostRow = 0.45, kFoldedRow = 0.8,
                 kRateRow = 0.7;

int Rank(LaneKind kind, bool compute) {
  if (compute) return 0;
  switch (kind) {
    case LaneKind::kStream:
      return 1;
    case LaneKind::kCopyEngine:
      return 2;
    case LaneKind::kHost:
      return 3;
    case LaneKind::kOther:
      break;
  }
  return 4;
}

// What a side shows of a lane, before anything is placed.
struct Wanted {
  LaneBox lane;
  int rank = 0;
  double units = 0;  // rows' heights, in first rows
};

double Units(const LaneRow& row, bool first) {
  switch (row.kind) {
    case LaneRow::Kind::kOps:
      return first ? 1 : kOtherTrack;
    case LaneRow::Kind::kExposed:
      return kExposedRow;
    case LaneRow::Kind::kGhost:
      return kGhostRow;
    case LaneRow::Kind::kTraffic:
      return kRateRow;
  }
  return 1;
}

std::vector<Wanted> WantedOf(const LayoutInput& input, Side side) {
  std::vector<Wanted> wanted;
  const TimelineModel* model = input.pair ? input.pair->model(side).get() : nullptr;
  if (model == nullptr) return wanted;
  const auto& names = model->timeline().lanes;
  for (size_t l = 0; l < names.size(); ++l) {
    const ModelLane& lane = model->lanes()[l];
    if (lane.rows == 0 || input.hidden.contains({side, names[l].name})) continue;
    Wanted w;
    w.lane.side = side;
    w.lane.lane = static_cast<int32_t>(l);
    w.lane.pinned = input.pins.contains({side, names[l].name});
    w.lane.folded = input.folded.contains({side, names[l].name});
    w.rank = Rank(names[l].kind, names[l].compute);
    if (w.lane.folded) {
      w.lane.rows.push_back(
          {.kind = LaneRow::Kind::kOps, .track = lane.first_track, .tracks = lane.tracks});
      w.units = kFoldedRow;
      wanted.push_back(std::move(w));
      continue;
    }
    if (lane.exposures > 0) w.lane.rows.push_back({.kind = LaneRow::Kind::kExposed});
    for (int32_t k = 0; k < lane.tracks; ++k) {
      w.lane.rows.push_back(
          {.kind = LaneRow::Kind::kOps, .track = lane.first_track + k, .tracks = 1});
    }
    if (side == Side::kPredicted && input.ghost != nullptr) {
      const auto& ghosts = input.ghost->timeline().lanes;
      for (size_t g = 0; g < ghosts.size(); ++g) {
        const ModelLane& ghost = input.ghost->lanes()[g];
        if (ghosts[g].name != names[l].name || ghost.rows == 0) continue;
        w.lane.rows.push_back({.kind = LaneRow::Kind::kGhost, .track = ghost.first_track});
        break;
      }
    }
    for (const Way way : kWays) {
      if (model->TrafficLane(way) != static_cast<int32_t>(l)) continue;
      w.lane.rows.push_back({.kind = LaneRow::Kind::kTraffic, .way = way});
    }
    for (const LaneRow& row : w.lane.rows) w.units += Units(row, row.track == lane.first_track);
    wanted.push_back(std::move(w));
  }
  std::stable_sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) {
    return std::tuple(!a.lane.pinned, a.rank) < std::tuple(!b.lane.pinned, b.rank);
  });
  return wanted;
}

// Places a side's lanes from the axis outwards; `direction` is -1 upwards, 1 downwards.
void Place(std::vector<Wanted>& wanted, const LayoutInput& input, Layout& layout, Side side,
           int axis, int direction, int gap, int seam) {
  const Box& region = layout.region[static_cast<size_t>(side)];
  const int row_height = layout.row_height;
  const int scroll = input.scroll[static_cast<size_t>(side)];
  const auto between = [&](int a, int b, int x0, int x1) {
    return direction > 0 ? Box{x0, axis + a, x1, axis + b} : Box{x0, axis - b, x1, axis - a};
  };
  int distance = gap;  // from the axis, without scrolling
  int fixed = 0;       // what the pinned lanes take
  for (Wanted& w : wanted) {
    const int shift = w.lane.pinned ? 0 : scroll;
    const int begin = distance;
    bool first_ops = true;
    const Box window =
        w.lane.pinned ? region : Intersection(region, between(fixed, 1 << 24, 0, input.width));
    for (LaneRow& row : w.lane.rows) {
      const bool ops = row.kind == LaneRow::Kind::kOps;
      const double units = w.lane.folded ? kFoldedRow : Units(row, ops && first_ops);
      const int height = std::max(4, static_cast<int>(std::lround(units * row_height)));
      if (&row != &w.lane.rows.front()) distance += seam;
      first_ops = first_ops && !ops;
      row.box =
          between(distance - shift, distance - shift + height, layout.chart_x0, layout.chart_x1);
      row.shown = Intersection(row.box, window);
      distance += height;
    }
    w.lane.header = between(begin - shift, distance - shift, 0, layout.chart_x0);
    w.lane.shown_header = Intersection(w.lane.header, window);
    for (const LaneRow& row : w.lane.rows) {
      if (row.kind != LaneRow::Kind::kOps) continue;
      const int width =
          std::min(layout.chart_x0, static_cast<int>(std::lround(kFoldMark * input.scale)));
      if (row.shown == row.box) w.lane.fold_mark = {0, row.box.y0, width, row.box.y1};
      break;
    }
    distance += gap;
    if (w.lane.pinned) fixed = distance;
    layout.lanes.push_back(std::move(w.lane));
  }
  layout.scroll_limit[static_cast<size_t>(side)] = std::max(0, distance - region.height());
}

}  // namespace

Layout Arrange(const LayoutInput& input) {
  const auto px = [&](double logical) {
    return static_cast<int>(std::lround(logical * input.scale));
  };
  Layout layout;
  layout.scroll = input.scroll;
  const int width = input.width, height = input.height;
  layout.chart_x0 = std::min(input.header_width, width / 2);
  layout.chart_x1 = std::max(layout.chart_x0 + 1, width - px(kMargin));

  std::array<std::vector<Wanted>, 2> wanted;
  std::array<double, 2> units{};
  std::array<int, 2> gaps{};
  int sides = 0;
  for (Side side : kSides) {
    const auto s = static_cast<size_t>(side);
    wanted[s] = WantedOf(input, side);
    sides += !wanted[s].empty();
    for (const Wanted& w : wanted[s]) units[s] += w.units;
    if (wanted[s].empty()) continue;
    gaps[s] = px(kLaneGap) * (static_cast<int>(wanted[s].size()) + 1);
    for (const Wanted& w : wanted[s]) {
      // Rows round to whole pixels, each by half a pixel at most.
      const auto rows = static_cast<int>(w.lane.rows.size());
      gaps[s] += rows + (rows - 1) * px(kRowSeam);
    }
  }

  const int minimap = px(2 * kMinimapMargin + kMinimapRow * std::max(1, sides));
  layout.minimap = {layout.chart_x0, input.top, layout.chart_x1,
                    std::min(height, input.top + minimap)};
  layout.legend = {0, std::max(0, height - input.legend_height), width, height};
  const int top = layout.minimap.y1, bottom = std::max(top, layout.legend.y0);
  const int room = bottom - top - px(kRuler) - sides * px(kCaption);

  const double all_units = units[0] + units[1];
  const int for_rows = room - gaps[0] - gaps[1];
  layout.row_height = px(kLeastRow);
  if (all_units > 0) {
    const int fitting = static_cast<int>(for_rows / all_units);
    layout.row_height = std::clamp(fitting, px(kLeastRow), px(kMostRow));
  }
  layout.comfortable_height = layout.minimap.y1 + px(kRuler) + sides * px(kCaption) + gaps[0] +
                              gaps[1] + static_cast<int>(std::ceil(all_units * px(kMostRow))) +
                              input.legend_height;
  std::array<int, 2> need{};
  for (size_t s = 0; s < 2; ++s) {
    need[s] = static_cast<int>(std::ceil(units[s] * layout.row_height)) + gaps[s];
  }
  std::array<int, 2> share = need;
  const int spare = room - need[0] - need[1];
  if (sides == 2) {
    if (spare >= 0) {
      share = {need[0] + spare / 2, need[1] + spare - spare / 2};
    } else {
      // The smaller side keeps what it needs, up to half.
      const size_t small = need[0] <= need[1] ? 0 : 1;
      share[small] = std::min(need[small], room / 2);
      share[1 - small] = room - share[small];
    }
  } else {
    share[wanted[0].empty() ? 1 : 0] = room;
  }
  for (int& s : share) s = std::max(0, s);

  // One side alone hangs below the ruler; two are mirrored about it.
  int y = top;
  const auto take = [&](int amount, bool chart_only) {
    const Box box{chart_only ? layout.chart_x0 : 0, y, chart_only ? layout.chart_x1 : width,
                  std::min(bottom, y + amount)};
    y = box.y1;
    return box;
  };
  if (sides == 2) {
    layout.caption[0] = take(px(kCaption), false);
    layout.region[0] = take(share[0], false);
    layout.ruler = take(px(kRuler), false);
    layout.region[1] = take(share[1], false);
    layout.caption[1] = take(px(kCaption), false);
    Place(wanted[0], input, layout, Side::kPredicted, layout.region[0].y1, -1, px(kLaneGap),
          px(kRowSeam));
    Place(wanted[1], input, layout, Side::kMeasured, layout.region[1].y0, 1, px(kLaneGap),
          px(kRowSeam));
  } else if (sides == 1) {
    const Side side = wanted[0].empty() ? Side::kMeasured : Side::kPredicted;
    const auto s = static_cast<size_t>(side);
    layout.caption[s] = take(px(kCaption), false);
    layout.ruler = take(px(kRuler), false);
    layout.region[s] = take(share[s], false);
    Place(wanted[s], input, layout, side, layout.region[s].y0, 1, px(kLaneGap), px(kRowSeam));
  } else {
    layout.ruler = take(px(kRuler), false);
  }
  return layout;
}

const LaneBox* Layout::LaneAt(int x, int y) const {
  for (const LaneBox& lane : lanes) {
    Box box = lane.shown_header;
    box.x1 = chart_x1;
    if (box.Contains(x, y)) return &lane;
  }
  return nullptr;
}

const LaneRow* Layout::RowAt(int x, int y) const {
  for (const LaneBox& lane : lanes) {
    for (const LaneRow& row : lane.rows) {
      if (row.shown.Contains(x, y)) return &row;
    }
  }
  return nullptr;
}

const LaneRow* Layout::RowOf(Side side, int32_t track) const {
  for (const LaneBox& lane : lanes) {
    if (lane.side != side) continue;
    for (const LaneRow& row : lane.rows) {
      const bool ops = row.kind == LaneRow::Kind::kOps;
      if (ops && track >= row.track && track < row.track + row.tracks) return &row;
    }
  }
  return nullptr;
}

}  // namespace stallcast::gui
