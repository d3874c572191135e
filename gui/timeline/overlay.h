// SPDX-License-Identifier: GPL-3.0-or-later
// What lies over the scene: highlights, waits, the selected area, measures, cards.
#pragma once

#include <optional>
#include <vector>

#include "gui/timeline/frame.h"
#include "gui/timeline/op_details.h"
#include "gui/timeline/scene.h"

namespace stallcast::gui {

/// What is at a place of the picture.
struct Hit {
  enum class Kind : uint8_t { kNone, kOp, kMerged, kExposed, kGhost };
  Kind kind = Kind::kNone;
  Side side = Side::kPredicted;
  int64_t first = 0, last = 0;  ///< rows of the side's model, of its exposures, or of the ghost
  bool operator==(const Hit&) const = default;
};
/// Of ops that share a column, the group; of a wide one, itself.
Hit HitAt(const Frame& frame, int x, int y);

/// Where an op's row is drawn, at least one column wide; nothing when it is scrolled or panned
/// away.
std::optional<Box> BoxOf(const SceneInput& scene, OpRef op);

struct OverlayInput {
  const SceneInput* scene = nullptr;
  const Frame* base = nullptr;
  Hit hover;
  int cursor_x = -1, cursor_y = -1;  ///< -1: not over the view
  std::optional<OpRef> selected;
  std::optional<Box> area;  ///< being dragged or selected, in pixels
  std::optional<AreaSums> sums;
  struct Measure {
    Picoseconds from{0}, to{0};  ///< on the axis
  };
  std::optional<Measure> measure;
  bool all_waits = false;
};

Frame DrawOverlay(const OverlayInput& input);

}  // namespace stallcast::gui
