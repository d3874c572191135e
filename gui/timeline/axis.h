// SPDX-License-Identifier: GPL-3.0-or-later
// The common time axis. Each side keeps its own clock; both are laid out so that what is aligned (a
// decode step, a named range) begins in one place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "traces/common/units.h"

namespace stallcast::gui {

class TimelineModel;

/// A stretch of the axis, [begin, end), in axis time.
struct AxisRange {
  Picoseconds begin{0}, end{0};
  Picoseconds length() const { return end - begin; }
  bool operator==(const AxisRange&) const = default;
};

/// Takes a side's clock to the axis and back. Strictly ascending; between two anchors a difference
/// on the clock is the same difference on the axis, and what remains before the next anchor is
/// slack: axis that shows no time of this side.
class AxisMap {
 public:
  struct Anchor {
    Picoseconds clock{0}, axis{0};
    bool operator==(const Anchor&) const = default;
  };
  AxisMap() = default;
  /// Ascending in both; the axis advances at least as far as the clock from each to the next.
  explicit AxisMap(std::vector<Anchor> anchors) : anchors_(std::move(anchors)) {}

  Picoseconds ToAxis(Picoseconds clock) const;
  /// Of the end of something: at an anchor, the end of the time before it, not after the slack.
  Picoseconds EndToAxis(Picoseconds clock) const;
  /// Slack gives the clock at its end.
  Picoseconds FromAxis(Picoseconds axis) const;
  const std::vector<Anchor>& anchors() const { return anchors_; }

 private:
  std::vector<Anchor> anchors_;
};

/// Both sides (and the ghost of a former prediction) on one axis.
struct Alignment {
  enum class By : uint8_t { kBegin, kStep, kRange };
  struct Stretch {      ///< between an anchor and the next, or the end
    int32_t step = -1;  ///< number of the step, or of the occurrence of the range
    AxisRange axis;
    bool predicted = false, measured = false;  ///< which sides have it
  };
  By by = By::kBegin;
  AxisMap predicted, measured, ghost;
  AxisRange whole;
  std::vector<Stretch> stretches;  ///< ascending and adjacent; empty unless by step or range

  /// The stretch at this place, or null.
  const Stretch* At(Picoseconds axis) const;
};

/// Any model may be null. `range`: aligned by the rows of this name, the n-th with the n-th;
/// without such rows on every side, by step; without a step that both sides have, all begin
/// together. What one side alone has is a stretch of its own. The ghost begins with the sides where
/// it has what they have, and adds no stretch.
Alignment Align(const TimelineModel* predicted, const TimelineModel* measured,
                const TimelineModel* ghost, const std::string& range = "");

}  // namespace stallcast::gui
