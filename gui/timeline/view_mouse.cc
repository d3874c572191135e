// SPDX-License-Identifier: GPL-3.0-or-later
// What the mouse does to the view.
#include <QMouseEvent>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>

#include "gui/timeline/legend.h"
#include "gui/timeline/view_impl.h"
#include "gui/timeline/words.h"

namespace stallcast::gui {
namespace {

// Logical pixels.
constexpr int kDragDistance = 4, kSnapDistance = 8;

}  // namespace

void TimelineView::Impl::UpdateHover(QPoint at) {
  cursor_ = at;
  EnsureScene();
  HoverWhatIsUnderTheCursor();
  view_->update();
}

// The view moves under a cursor that stays, too: by key, undo, or a side that is replaced.
void TimelineView::Impl::HoverWhatIsUnderTheCursor() {
  if (drag_ != Drag::kNone || cursor_.x() < 0) return;
  SetHover(HitAt(scene_.frame, cursor_.x(), cursor_.y()));
}

// The axis time at a place, or that of an edge of an op near it on the same track.
Picoseconds TimelineView::Impl::SnappedAxis(QPoint at) const {
  const int reach = static_cast<int>(std::lround(kSnapDistance * scale()));
  const SceneInput input = Input();
  Picoseconds best = AxisAt(at.x(), state_.visible, layout_);
  int distance = reach + 1;
  for (const BarShape& bar : scene_.frame.bars) {
    if (bar.kind != BarShape::Kind::kOp || bar.merged || bar.last <= bar.first) continue;
    if (at.y() < bar.box.y0 || at.y() >= bar.box.y1) continue;
    const TimelineModel& model = *pair_->model(bar.side);
    const auto consider = [&](int x, Picoseconds axis) {
      if (std::abs(x - at.x()) < distance) {
        distance = std::abs(x - at.x());
        best = axis;
      }
    };
    consider(bar.box.x0, input.map(bar.side).ToAxis(model.Start(bar.first)));
    consider(bar.box.x1, input.map(bar.side).EndToAxis(model.End(bar.first)));
  }
  return best;
}

void TimelineView::Impl::Press(QMouseEvent* event) {
  EnsureScene();
  if (!pair_) return;
  pressed_ = DevicePoint(event->position());
  pressed_range_ = state_.visible;
  button_ = event->button();
  drag_ = Drag::kPressed;
  if (layout_.minimap.Contains(pressed_.x(), pressed_.y())) {
    drag_ = Drag::kMinimap;
    Move(event);
  }
}

void TimelineView::Impl::Move(QMouseEvent* event) {
  const QPoint at = DevicePoint(event->position());
  if (!pair_) return;
  if (drag_ == Drag::kNone) {
    UpdateHover(at);
    if (measure_from_) measure_ = OverlayInput::Measure{*measure_from_, SnappedAxis(at)};
    return;
  }
  cursor_ = at;
  if (drag_ == Drag::kPressed) {
    const int far = static_cast<int>(std::lround(kDragDistance * scale()));
    if ((at - pressed_).manhattanLength() < far) return;
    const bool pan = (event->modifiers() & Qt::ShiftModifier) != 0 || button_ == Qt::MiddleButton ||
                     layout_.ruler.Contains(pressed_.x(), pressed_.y());
    const bool over_chart = pressed_.x() >= layout_.chart_x0;
    if (pan) {
      drag_ = Drag::kPan;
      view_->setCursor(Qt::ClosedHandCursor);
    } else if (button_ == Qt::RightButton || measuring_) {
      drag_ = Drag::kMeasure;
    } else if (over_chart) {
      ClearArea();
      drag_ = Drag::kArea;
    } else {
      drag_ = Drag::kNone;
      return;
    }
  }
  switch (drag_) {
    case Drag::kArea:
      area_box_ = Box{std::max(layout_.chart_x0, std::min(at.x(), pressed_.x())),
                      std::min(at.y(), pressed_.y()),
                      std::min(layout_.chart_x1, std::max(at.x(), pressed_.x())),
                      std::max(at.y(), pressed_.y()) + 1};
      break;
    case Drag::kPan: {
      const Picoseconds by =
          AxisAt(pressed_.x(), pressed_range_, layout_) - AxisAt(at.x(), pressed_range_, layout_);
      ShowRange({pressed_range_.begin + by, pressed_range_.end + by}, tr("pan"), Change::kPan);
      break;
    }
    case Drag::kMeasure:
      measure_ = OverlayInput::Measure{SnappedAxis(pressed_), SnappedAxis(at)};
      break;
    case Drag::kMinimap: {
      const Picoseconds middle = AxisAt(at.x(), alignment_.whole, layout_);
      const Picoseconds half = state_.visible.length() / 2;
      ShowRange({middle - half, middle - half + state_.visible.length()}, tr("pan"), Change::kPan);
      break;
    }
    case Drag::kNone:
    case Drag::kPressed:
      break;
  }
  view_->update();
}

void TimelineView::Impl::Release(QMouseEvent* event) {
  const Drag drag = std::exchange(drag_, Drag::kNone);
  if (drag == Drag::kPan) view_->setCursor(measuring_ ? Qt::CrossCursor : Qt::ArrowCursor);
  if (drag == Drag::kArea && area_box_) FinishArea();
  if (drag == Drag::kPressed && button_ == Qt::RightButton) {
    ShowMenu(DevicePoint(event->position()), event->globalPosition().toPoint());
    return;
  }
  if (drag == Drag::kPressed && button_ == Qt::LeftButton) {
    measure_from_.reset();
    const QPoint at = DevicePoint(event->position());
    for (const LegendItem& item : scene_.legend) {
      if (!item.box.Contains(at.x(), at.y())) continue;
      const QString words = FilterOf(item.role);
      SetFilter(state_.filter == words ? QString() : words);
      return;
    }
    for (const LaneBox& lane : layout_.lanes) {
      if (!lane.fold_mark.Contains(at.x(), at.y())) continue;
      ToggleFold(KeyOf(lane.side, lane.lane));
      return;
    }
    const Hit hit = HitAt(scene_.frame, at.x(), at.y());
    if (hit.kind == Hit::Kind::kOp) {
      Select(OpRef{hit.side, hit.first}, false);
    } else if (hit.kind == Hit::Kind::kExposed && hit.last - hit.first == 1) {
      // What was waited for is what one wants to see.
      const Exposure exposure = pair_->model(hit.side)->exposure(hit.first);
      if (exposure.cause >= 0) Select(OpRef{hit.side, exposure.cause}, false);
    } else if (at.x() >= layout_.chart_x0 &&
               (hit.kind == Hit::Kind::kNone || hit.kind == Hit::Kind::kGhost)) {
      ClearArea();
      Select(std::nullopt, false);
    }
  }
  view_->update();
}

void TimelineView::Impl::DoubleClick(QMouseEvent* event) {
  if (!pair_ || event->button() != Qt::LeftButton) return;
  EnsureScene();
  const QPoint at = DevicePoint(event->position());
  const Hit hit = HitAt(scene_.frame, at.x(), at.y());
  if (at.x() < layout_.chart_x0) {
    const LaneBox* lane = layout_.LaneAt(at.x(), at.y());
    // The second click on a triangle is as the first.
    if (lane != nullptr && lane->fold_mark.Contains(at.x(), at.y())) {
      ToggleFold(KeyOf(lane->side, lane->lane));
    } else if (lane != nullptr) {
      TogglePin(KeyOf(lane->side, lane->lane));
    }
  } else if (hit.kind == Hit::Kind::kOp) {
    Select(OpRef{hit.side, hit.first}, false);
    ShowSelection();
  } else if (hit.kind == Hit::Kind::kMerged) {
    const TimelineModel& model = *pair_->model(hit.side);
    const SceneInput input = Input();
    ShowRange({input.map(hit.side).ToAxis(model.Start(hit.first)),
               input.map(hit.side).EndToAxis(model.End(hit.last - 1))},
              tr("zoom to ops"));
  } else if (layout_.ruler.Contains(at.x(), at.y())) {
    const Alignment::Stretch* stretch = alignment_.At(AxisAt(at.x(), state_.visible, layout_));
    if (stretch != nullptr) ShowStep(stretch->step);
  }
}

void TimelineView::Impl::Wheel(QWheelEvent* event) {
  if (!pair_) return;
  EnsureScene();
  const QPoint at = DevicePoint(event->position());
  const QPoint angle = event->angleDelta();
  const double notches = (angle.y() != 0 ? angle.y() : angle.x()) / 120.0;
  if ((event->modifiers() & Qt::ControlModifier) != 0) {
    const double x = std::clamp(at.x(), layout_.chart_x0, layout_.chart_x1);
    Zoom(std::pow(1.25, -notches), AxisAt(x, state_.visible, layout_));
  } else if ((event->modifiers() & Qt::ShiftModifier) != 0 || angle.y() == 0) {
    Pan(-0.1 * notches);
  } else {
    for (size_t s = 0; s < 2; ++s) {
      if (!layout_.region[s].Contains(at.x(), at.y()) || layout_.scroll_limit[s] == 0) continue;
      const bool upwards = s == 0 && pair_->both();
      const int by = static_cast<int>(std::lround(notches * 3 * layout_.row_height));
      scroll_[s] = std::clamp(scroll_[s] + (upwards ? by : -by), 0, layout_.scroll_limit[s]);
      Invalidate();
    }
  }
  UpdateHover(at);
}

void TimelineView::Impl::Leave() {
  cursor_ = {-1, -1};
  SetHover({});
  view_->update();
}

}  // namespace stallcast::gui
