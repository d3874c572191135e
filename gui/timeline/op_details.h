// SPDX-License-Identifier: GPL-3.0-or-later
// What is told of an op, of its twin, and of a selected area.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gui/timeline/axis.h"
#include "gui/timeline/timeline_pair.h"
#include "traces/timeline.h"

namespace stallcast::gui {

/// An op as one side has it: all its rows on streams, or its call on a host lane.
struct OpFacts {
  OpRef ref;  ///< its first row
  int64_t rows = 1;
  std::string name, lane;
  traces::Role role = traces::Role::kOther;
  int64_t op = -1;
  int32_t step = -1;
  int16_t layer = -1;
  Picoseconds start{0};          ///< on its side's clock
  Picoseconds start_in_step{0};  ///< from the step's begin; from the timeline's without steps
  Picoseconds duration{0};       ///< first start to last end
  Picoseconds idle_before{0};    ///< of its lane: a wait or a gap
  int64_t bytes = 0;
  bool planned_bytes = false;  ///< the recording has none: they are those of the predicted twin
  double rate() const {        ///< bytes per second; 0 where nothing moves
    return duration.count() > 0 ? static_cast<double>(bytes) / Seconds(duration) : 0;
  }
  std::vector<std::string> waits;  ///< what it waited for, by name; the last to end comes first
};

struct OpDetails {
  OpFacts op;
  std::optional<OpFacts> twin;  ///< of the other side
  /// Predicted minus measured duration, and as a share of the measured one; with a twin only.
  std::optional<Picoseconds> residual;
  double relative_residual = 0;
};

/// Sums over a stretch of the axis and the lanes touched, for each side.
struct AreaSums {
  AxisRange range;
  struct Role {
    Picoseconds busy{0};     ///< inside the area
    Picoseconds exposed{0};  ///< compute lane waiting for it, when that lane is in the area
    int64_t bytes = 0;       ///< of ops that start inside
    int64_t ops = 0;         ///< rows touched
  };
  using Roles = std::array<Role, traces::kRoles>;
  std::optional<Roles> predicted, measured;
};

OpDetails Describe(const TimelinePair& pair, OpRef op);
OpFacts FactsOf(const TimelineModel& model, OpRef ref);
/// The first row of the same op in another prediction: same step, id and name, a call as it is one.
std::optional<int64_t> SameOp(const TimelineModel& model, int64_t row, const TimelineModel& other);

/// The place of a wait's two ends: the row that ended last of what was waited for, and the row that
/// waited.
struct Wait {
  int64_t from = 0, to = 0;
};
/// What the row's op waited for / what waited for it, by its runs (its call, where it has no run).
std::vector<Wait> WaitsInto(const TimelineModel& model, int64_t row);
std::vector<Wait> WaitsFrom(const TimelineModel& model, int64_t row);

/// What an area touches: tracks of each side.
using AreaTracks = std::array<std::vector<int32_t>, 2>;
AreaSums SumArea(const TimelinePair& pair, const Alignment& alignment, AxisRange range,
                 const AreaTracks& tracks);

}  // namespace stallcast::gui
