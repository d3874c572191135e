// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/timeline_view.h"

#include <QAction>
#include <QApplication>
#include <QElapsedTimer>
#include <QEvent>
#include <QMouseEvent>
#include <QPaintEvent>
#include <QPainter>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>

#include "gui/timeline/legend.h"
#include "gui/timeline/view_impl.h"
#include "gui/timeline/words.h"
#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

// Logical pixels.
constexpr int kDragDistance = 4, kSnapDistance = 8, kSearchHeight = 32;
constexpr int kLeastHeader = 106, kMostHeader = 200;
constexpr int kSearchDelayMilliseconds = 150;
// Nothing is smaller than a picosecond; a column shows at least this many.
constexpr int64_t kLeastPerColumn = 10;

}  // namespace

TimelineView::Impl::Impl(TimelineView* view) : view_(view) {
  search_ = new QLineEdit(view);
  search_->setObjectName(QStringLiteral("search"));
  search_->setPlaceholderText(
      tr("Words, role:recall, lane:copy, step:3-5, layer:0, dur>10us, residual>5%"));
  search_->setClearButtonEnabled(true);
  search_->setAccessibleName(tr("Search and filter"));
  search_->hide();
  search_delay_.setSingleShot(true);
  search_delay_.setInterval(kSearchDelayMilliseconds);
  QObject::connect(search_, &QLineEdit::textEdited, view, [this] { search_delay_.start(); });
  QObject::connect(&search_delay_, &QTimer::timeout, view, [this] { SetFilter(search_->text()); });
  QObject::connect(search_, &QLineEdit::returnPressed, view, [this] {
    search_delay_.stop();
    const bool changed = search_->text() != state_.filter;
    if (!SetFilter(search_->text())) return;
    if (changed) Select(std::nullopt, false);
    if (!search_->text().isEmpty()) Match(1);
  });
  MakeCommands();
}

double TimelineView::Impl::scale() const { return view_->devicePixelRatioF(); }

QPoint TimelineView::Impl::DevicePoint(const QPointF& logical) const {
  return {static_cast<int>(std::floor(logical.x() * scale())),
          static_cast<int>(std::floor(logical.y() * scale()))};
}

void TimelineView::Impl::Invalidate() {
  scene_valid_ = false;
  view_->update();
}

// --- Sides

void TimelineView::Impl::SetPair(std::shared_ptr<const TimelinePair> next) {
  const bool first = !pair_ || alignment_.whole.length().count() == 0;
  // The selected op is looked up again by what it is, if its side is replaced.
  std::optional<OpRef> keep;
  if (selected_ && pair_ && next) {
    const Model& before = pair_->model(selected_->side);
    const Model& after = next->model(selected_->side);
    const auto row = static_cast<size_t>(selected_->row);
    if (before == after) {
      keep = selected_;
    } else if (after && before->timeline().op[row] >= 0) {
      for (uint32_t r : after->ops().RowsOf(before->timeline().op[row])) {
        const bool same = after->timeline().step[r] == before->timeline().step[row] &&
                          after->IsCall(r) == before->IsCall(selected_->row);
        if (same && !keep) keep = OpRef{selected_->side, r};
      }
    }
  }
  pair_ = std::move(next);
  Realign();
  if (first) {
    undo_.clear();
    state_.visible = Fit(alignment_.whole);
  }
  ClearArea();
  measure_.reset();
  hover_ = {};
  selected_ = keep;
  if (!state_.filter.isEmpty()) {
    const Filter filter(state_.filter.toStdString());
    for (Side side : kSides) {
      masks_[static_cast<size_t>(side)] = FilterMask(filter, *pair_, side);
    }
  }
  std::optional<OpDetails> details;
  if (selected_) details = Describe(*pair_, *selected_);
  Q_EMIT view_->OpSelected(details);
  Q_EMIT view_->OpHovered(std::nullopt);
  Q_EMIT view_->RangeChanged(state_.visible);
}

void TimelineView::Impl::SetGhost(Model former) {
  ghost_ = std::move(former);
  Realign();
  Q_EMIT view_->RangeChanged(state_.visible);
}

// Lays the sides out again and keeps the step in the middle of the screen where it is.
void TimelineView::Impl::Realign() {
  const Alignment before = std::move(alignment_);
  alignment_ =
      pair_ ? Align(pair_->model(Side::kPredicted).get(), pair_->model(Side::kMeasured).get(),
                    ghost_.get(), state_.align_by.toStdString())
            : Alignment{};
  const AxisRange seen = state_.visible;
  if (before.whole.length().count() > 0 && seen == before.whole) {
    state_.visible = alignment_.whole;
  } else if (const auto* middle = before.At(seen.begin + seen.length() / 2)) {
    for (const Alignment::Stretch& stretch : alignment_.stretches) {
      if (stretch.step != middle->step) continue;
      const Picoseconds begin = stretch.axis.begin + (seen.begin - middle->axis.begin);
      state_.visible = {begin, begin + seen.length()};
    }
  }
  state_.visible = Fit(state_.visible);
  minimap_valid_ = false;
  Invalidate();
}

// --- View state

AxisRange TimelineView::Impl::Fit(AxisRange range) const {
  const AxisRange whole = alignment_.whole;
  const Picoseconds least(kLeastPerColumn *
                          std::max<int64_t>(1, std::lround(view_->width() * scale())));
  Picoseconds length = std::clamp(range.length(), least, std::max(least, whole.length()));
  Picoseconds begin = range.begin;
  if (length > range.length()) begin -= (length - range.length()) / 2;
  begin = std::clamp(begin, whole.begin, std::max(whole.begin, whole.end - length));
  return {begin, begin + length};
}

void TimelineView::Impl::ChangeTo(ViewState next, const QString& text, Change kind) {
  next.visible = Fit(next.visible);
  if (next == state_) return;
  undo_.push(new ViewCommand(text, static_cast<int>(kind), state_, next,
                             [this](const ViewState& state) { Apply(state); }));
}

void TimelineView::Impl::Apply(const ViewState& next) {
  const ViewState before = std::exchange(state_, next);
  if (state_.align_by != before.align_by) {
    state_.visible = before.visible;
    Realign();
  }
  if (state_.filter != before.filter) {
    const Filter filter(state_.filter.toStdString());
    for (Side side : kSides) {
      masks_[static_cast<size_t>(side)] = pair_ ? FilterMask(filter, *pair_, side) : FilterMask();
    }
    if (!search_->hasFocus()) search_->setText(state_.filter);
    if (!filter.empty()) {
      Say(tr("%1 predicted and %2 measured ops found")
              .arg(CountText(masks_[0].total()), CountText(masks_[1].total())));
    }
    Q_EMIT view_->FilterChanged(state_.filter);
  }
  if (state_.color != before.color) Q_EMIT view_->ColorByChanged(state_.color);
  if (state_.visible != before.visible) {
    UpdateArea();
    Q_EMIT view_->RangeChanged(state_.visible);
    const int step = CurrentStep();
    if (step != last_step_) {
      last_step_ = step;
      Q_EMIT view_->StepChanged(step);
    }
  }
  Invalidate();
}

void TimelineView::Impl::ShowRange(AxisRange range, const QString& text, Change kind) {
  ViewState next = state_;
  next.visible = range;
  ChangeTo(next, text, kind);
}

void TimelineView::Impl::Zoom(double factor, Picoseconds about) {
  const AxisRange v = state_.visible;
  const auto scaled = [factor](Picoseconds t) {
    return Picoseconds(static_cast<int64_t>(std::llround(static_cast<double>(t.count()) * factor)));
  };
  const Picoseconds longest = std::max(alignment_.whole.length(), Picoseconds{1});
  if (factor > 1 &&
      static_cast<double>(v.length().count()) * factor > static_cast<double>(longest.count())) {
    ShowRange(alignment_.whole, tr("zoom"), Change::kZoom);
    return;
  }
  const Picoseconds begin = about - scaled(about - v.begin);
  AxisRange range{begin, begin + scaled(v.length())};
  // At the closest zoom the place under the cursor stays too.
  const AxisRange fitting = Fit(range);
  if (fitting.length() == v.length()) range = v;
  ShowRange(range, tr("zoom"), Change::kZoom);
}

void TimelineView::Impl::Pan(double share) {
  const AxisRange v = state_.visible;
  const Picoseconds by(static_cast<int64_t>(static_cast<double>(v.length().count()) * share));
  ShowRange({v.begin + by, v.end + by}, tr("pan"), Change::kPan);
}

bool TimelineView::Impl::SetFilter(const QString& words) {
  try {
    const Filter filter(words.toStdString());
  } catch (const Error& error) {
    Say(Text(error.problem() + ": " + error.remedy()));
    search_->setStyleSheet(QStringLiteral("QLineEdit { border: 2px solid #c0392b; }"));
    search_->setToolTip(Text(error.problem() + ": " + error.remedy()));
    return false;
  }
  search_->setStyleSheet({});
  search_->setToolTip({});
  ViewState next = state_;
  next.filter = words;
  ChangeTo(next, words.isEmpty() ? tr("clear filter") : tr("filter"), Change::kFilter);
  return true;
}

void TimelineView::Impl::TogglePin(const LaneKey& key) {
  ViewState next = state_;
  const bool pinned = next.pins.erase(key) > 0;
  if (!pinned) next.pins.insert(key);
  ChangeTo(next, pinned ? tr("unpin lane") : tr("pin lane"));
}

void TimelineView::Impl::ToggleFold(const LaneKey& key) {
  ViewState next = state_;
  const bool folded = next.folded.erase(key) > 0;
  if (!folded) next.folded.insert(key);
  ChangeTo(next, folded ? tr("unfold lane") : tr("fold lane"));
}

LaneKey TimelineView::Impl::KeyOf(Side side, int32_t lane) const {
  return {side, pair_->model(side)->timeline().lanes[static_cast<size_t>(lane)].name};
}

void TimelineView::Impl::OpenSearch() {
  search_->setText(state_.filter);
  search_->show();
  PlaceSearch();
  search_->setFocus();
  search_->selectAll();
  Invalidate();
}

void TimelineView::Impl::PlaceSearch() {
  search_->setGeometry(4, 3, std::max(40, view_->width() - 8), kSearchHeight - 6);
}

// --- Steps and selection

int32_t TimelineView::Impl::CurrentStep() const {
  const Alignment::Stretch* at = alignment_.At(state_.visible.begin + state_.visible.length() / 2);
  return at == nullptr ? -1 : at->step;
}

void TimelineView::Impl::GoStep(int direction) {
  const auto& stretches = alignment_.stretches;
  const Alignment::Stretch* at = alignment_.At(state_.visible.begin + state_.visible.length() / 2);
  if (stretches.empty()) {
    Say(tr("This timeline has no steps"));
    return;
  }
  auto index = at == nullptr ? (direction > 0 ? -1 : 0) : at - stretches.data();
  // From a view of many steps, the first press shows the one in the middle.
  const bool within = at != nullptr && state_.visible.length() <= 2 * at->axis.length();
  if (within) index += direction;
  index = std::clamp<std::ptrdiff_t>(index, 0, std::ssize(stretches) - 1);
  ShowStep(stretches[static_cast<size_t>(index)].step);
}

void TimelineView::Impl::ShowStep(int32_t step) {
  for (const Alignment::Stretch& stretch : alignment_.stretches) {
    if (stretch.step != step) continue;
    const Picoseconds margin = stretch.axis.length() / 40;
    ShowRange({stretch.axis.begin - margin, stretch.axis.end + margin}, tr("step %1").arg(step),
              Change::kPan);
    return;
  }
  Say(alignment_.stretches.empty() ? tr("This timeline has no steps")
                                   : tr("There is no step %1 on both sides").arg(step));
}

void TimelineView::Impl::Select(std::optional<OpRef> op, bool scroll) {
  if (op && (!pair_ || !pair_->model(op->side) || op->row < 0 ||
             op->row >= pair_->model(op->side)->rows())) {
    op.reset();
  }
  const bool changed = op != selected_;
  selected_ = op;
  if (op && scroll) Reveal(*op);
  if (changed) {
    std::optional<OpDetails> details;
    if (op) details = Describe(*pair_, *op);
    Q_EMIT view_->OpSelected(details);
  }
  view_->update();
}

// Brings an op onto the screen: sideways when it is outside, closer when it is too narrow to see.
void TimelineView::Impl::Reveal(OpRef op) {
  const SceneInput input = Input();
  const TimelineModel& model = *pair_->model(op.side);
  const Picoseconds begin = input.map(op.side).ToAxis(model.Start(op.row));
  const Picoseconds end = input.map(op.side).EndToAxis(model.End(op.row));
  const AxisRange v = state_.visible;
  constexpr int kLeastColumns = 6;
  Picoseconds length = v.length();
  const Picoseconds wide = std::max(end - begin, Picoseconds{1});
  if (wide * layout_.chart_width() / kLeastColumns < length) {
    length = std::max(wide * 40, Picoseconds{kLeastPerColumn});
  }
  if (wide > length) length = wide * 5 / 4;
  const bool inside = begin >= v.begin && end <= v.end && length == v.length();
  if (!inside) {
    const Picoseconds middle = begin + (end - begin) / 2;
    ShowRange({middle - length / 2, middle + length / 2}, tr("go to op"), Change::kPan);
  }
  ScrollTo(op);
}

void TimelineView::Impl::ScrollTo(OpRef op) {
  EnsureScene();
  const LaneRow* row = layout_.RowOf(op.side, pair_->model(op.side)->TrackOf(op.row));
  if (row == nullptr || row->shown == row->box) return;
  const auto s = static_cast<size_t>(op.side);
  const Box& region = layout_.region[s];
  const bool upwards = op.side == Side::kPredicted && pair_->both();
  const int to_middle = (row->box.y0 + row->box.y1) / 2 - (region.y0 + region.y1) / 2;
  scroll_[s] =
      std::clamp(scroll_[s] + (upwards ? -to_middle : to_middle), 0, layout_.scroll_limit[s]);
  Invalidate();
}

void TimelineView::Impl::SetHover(Hit hit) {
  if (hit == hover_) return;
  hover_ = hit;
  if (hit.kind == Hit::Kind::kOp) {
    Q_EMIT view_->OpHovered(Describe(*pair_, {hit.side, hit.first}));
  } else {
    Q_EMIT view_->OpHovered(std::nullopt);
  }
}

void TimelineView::Impl::ClearArea() {
  const bool had = sums_.has_value();
  area_box_.reset();
  area_tracks_ = {};
  sums_.reset();
  if (had) Q_EMIT view_->AreaSelected(std::nullopt);
}

// The area was dragged: what it touches is summed, and it sticks to time and lanes from now on.
void TimelineView::Impl::FinishArea() {
  const Box box = *area_box_;
  AreaTracks tracks;
  for (const LaneBox& lane : layout_.lanes) {
    for (const LaneRow& row : lane.rows) {
      if (row.kind == LaneRow::Kind::kOps && row.shown.Overlaps(box)) {
        auto& touched = tracks[static_cast<size_t>(lane.side)];
        for (int32_t k = 0; k < row.tracks; ++k) touched.push_back(row.track + k);
      }
    }
  }
  if (tracks[0].empty() && tracks[1].empty()) {
    ClearArea();
    return;
  }
  area_tracks_ = tracks;
  const AxisRange range{AxisAt(box.x0, state_.visible, layout_),
                        AxisAt(box.x1, state_.visible, layout_)};
  sums_ = SumArea(*pair_, alignment_, range, tracks);
  UpdateArea();
  Q_EMIT view_->AreaSelected(sums_);
}

void TimelineView::Impl::UpdateArea() {
  if (!sums_) return;
  Box box{ColumnOf(sums_->range.begin, state_.visible, layout_), 1 << 24,
          ColumnOf(sums_->range.end, state_.visible, layout_), 0};
  for (Side side : kSides) {
    for (int32_t track : area_tracks_[static_cast<size_t>(side)]) {
      const LaneRow* row = layout_.RowOf(side, track);
      if (row == nullptr || row->shown.empty()) continue;
      box.y0 = std::min(box.y0, row->shown.y0);
      box.y1 = std::max(box.y1, row->shown.y1);
    }
  }
  area_box_ = box;
}

// --- Pictures

SceneInput TimelineView::Impl::Input() const {
  SceneInput input;
  input.pair = pair_.get();
  input.ghost = ghost_.get();
  input.alignment = &alignment_;
  input.visible = state_.visible;
  input.layout = &layout_;
  input.scale = scale();
  input.color = state_.color;
  for (size_t s = 0; s < 2; ++s) input.masks[s] = masks_[s].all() ? nullptr : &masks_[s];
  input.measure = fonts_.get();
  return input;
}

void TimelineView::Impl::EnsureScene() {
  if (fonts_ == nullptr || fonts_scale_ != scale()) {
    fonts_scale_ = scale();
    fonts_ = std::make_unique<Fonts>(view_->font(), fonts_scale_);
    scene_valid_ = false;
  }
  if (scene_valid_) return;
  scene_valid_ = true;
  LayoutInput layout;
  layout.pair = pair_.get();
  layout.ghost = ghost_.get();
  layout.pins = state_.pins;
  layout.folded = state_.folded;
  layout.scroll = scroll_;
  layout.width = static_cast<int>(std::lround(view_->width() * scale()));
  layout.height = static_cast<int>(std::lround(view_->height() * scale()));
  layout.scale = scale();
  layout.top = search_->isVisible() ? static_cast<int>(std::lround(kSearchHeight * scale())) : 0;
  int names = static_cast<int>(kLeastHeader * scale());
  for (Side side : kSides) {
    if (!pair_ || !pair_->model(side)) continue;
    const TimelineModel& model = *pair_->model(side);
    for (size_t l = 0; l < model.lanes().size(); ++l) {
      if (model.lanes()[l].rows == 0) continue;
      names =
          std::max(names, fonts_->Width(Text(model.timeline().lanes[l].name), TextStyle::kNormal) +
                              static_cast<int>((kFoldMark + 10) * scale()));
    }
  }
  layout.header_width = std::min(names, static_cast<int>(kMostHeader * scale()));
  if (pair_) {
    layout.legend_height =
        MakeLegend(*pair_, state_.color, layout.width, layout.scale, *fonts_).height;
  }
  layout_ = Arrange(layout);
  for (size_t s = 0; s < 2; ++s) {
    if (scroll_[s] <= layout_.scroll_limit[s]) continue;
    scroll_[s] = layout_.scroll_limit[s];
    layout.scroll = scroll_;
    layout_ = Arrange(layout);
  }
  const QSize size(layout.width, layout.height);
  if (base_.size() != size) base_ = QImage(size, QImage::Format_RGB32);
  if (!pair_ || alignment_.whole.length().count() == 0 || base_.isNull()) {
    scene_ = {};
    return;
  }
  if (!minimap_valid_ || minimap_width_ != layout_.chart_width()) {
    minimap_width_ = layout_.chart_width();
    minimap_ = MinimapBars(*pair_, alignment_, minimap_width_);
    minimap_valid_ = true;
  }
  // The least range depends on the width, which may have grown.
  state_.visible = Fit(state_.visible);
  scene_ = Draw(Input(), minimap_);
  const bool dark = view_->palette().color(QPalette::Window).lightness() < 128;
  FramePainter(dark ? Theme::Dark() : Theme::Light(), *fonts_, scale()).Paint(scene_.frame, base_);
  UpdateArea();
}

void TimelineView::Impl::Paint(QPaintEvent*) {
  QElapsedTimer timer;
  timer.start();
  EnsureScene();
  const bool dark = view_->palette().color(QPalette::Window).lightness() < 128;
  const Theme& theme = dark ? Theme::Dark() : Theme::Light();
  QPainter painter(view_);
  if (!pair_ || alignment_.whole.length().count() == 0) {
    painter.fillRect(view_->rect(), theme.window);
    painter.setPen(theme.muted);
    painter.drawText(view_->rect(), Qt::AlignCenter | Qt::TextWordWrap, tr("No timeline is open"));
    return;
  }
  base_.setDevicePixelRatio(1);
  painter.scale(1 / scale(), 1 / scale());
  painter.drawImage(0, 0, base_);
  const SceneInput scene = Input();
  OverlayInput overlay;
  overlay.scene = &scene;
  overlay.base = &scene_.frame;
  overlay.hover = drag_ == Drag::kNone ? hover_ : Hit{};
  overlay.cursor_x = cursor_.x();
  overlay.cursor_y = cursor_.y();
  overlay.selected = selected_;
  overlay.area = area_box_;
  overlay.sums = sums_;
  overlay.measure = measure_;
  overlay.all_waits = state_.all_waits;
  FramePainter(theme, *fonts_, scale()).PaintOver(DrawOverlay(overlay), painter);
  if (search_->isVisible()) {
    painter.fillRect(0, 0, base_.width(), static_cast<int>(kSearchHeight * scale()), theme.panel);
  }
  painter.end();
  Q_EMIT view_->Painted(timer.nsecsElapsed());
}

// --- Mouse

void TimelineView::Impl::UpdateHover(QPoint at) {
  cursor_ = at;
  EnsureScene();
  SetHover(HitAt(scene_.frame, at.x(), at.y()));
  view_->update();
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
  if (drag == Drag::kPressed && button_ == Qt::LeftButton) {
    const QPoint at = DevicePoint(event->position());
    for (const LegendItem& item : scene_.legend) {
      if (!item.box.Contains(at.x(), at.y())) continue;
      const QString words = QStringLiteral("role:") + Text(std::string(Name(item.role)));
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
    } else if (at.x() >= layout_.chart_x0 && hit.kind == Hit::Kind::kNone) {
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

// --- The widget

TimelineView::TimelineView(QWidget* parent) : QWidget(parent) {
  setFocusPolicy(Qt::StrongFocus);
  setMouseTracking(true);
  setAttribute(Qt::WA_OpaquePaintEvent);
  setAccessibleName(tr("Timeline"));
  impl_ = std::make_unique<Impl>(this);
}

TimelineView::~TimelineView() = default;

void TimelineView::SetSides(sim::Predicted<Model> predicted, sim::Measured<Model> measured) {
  SetPair(TimelinePair::Make(std::move(predicted), std::move(measured), pair().get()));
}

void TimelineView::SetPair(std::shared_ptr<const TimelinePair> pair) {
  impl_->SetPair(std::move(pair));
}

const std::shared_ptr<const TimelinePair>& TimelineView::pair() const { return impl_->pair_; }

void TimelineView::SetGhost(Model former) { impl_->SetGhost(std::move(former)); }

void TimelineView::AlignByRange(const QString& name) { impl_->AlignByRange(name); }

const Alignment& TimelineView::alignment() const { return impl_->alignment_; }
const QList<TimelineView::Menu>& TimelineView::Commands() const { return impl_->menus_; }
QUndoStack* TimelineView::undo_stack() { return &impl_->undo_; }
AxisRange TimelineView::visible() const { return impl_->state().visible; }
void TimelineView::ShowRange(AxisRange range) { impl_->ShowRange(range, tr("show range")); }
void TimelineView::ShowAll() { impl_->ShowAll(); }
void TimelineView::ShowStep(int32_t step) { impl_->ShowStep(step); }
int32_t TimelineView::CurrentStep() const { return impl_->CurrentStep(); }

void TimelineView::SetColorBy(ColorBy color) {
  if (color == ColorBy::kResidual && (!pair() || !pair()->both())) {
    Q_EMIT Message(tr("Residuals need a predicted and a measured side"));
    return;
  }
  ViewState next = impl_->state();
  next.color = color;
  impl_->ChangeTo(next, color == ColorBy::kRole ? tr("color by role") : tr("color by residual"));
}

ColorBy TimelineView::color_by() const { return impl_->state().color; }
bool TimelineView::SetFilter(const QString& words) { return impl_->SetFilter(words); }
QString TimelineView::filter() const { return impl_->state().filter; }
void TimelineView::Select(std::optional<OpRef> op) { impl_->Select(op, true); }
std::optional<OpRef> TimelineView::selected() const { return impl_->selected_; }
std::optional<AreaSums> TimelineView::area() const { return impl_->sums_; }

QJsonObject TimelineView::SaveState() const { return ToJson(impl_->state()); }

void TimelineView::RestoreState(const QJsonObject& state) {
  ViewState next = FromJson(state, impl_->state());
  try {
    const Filter filter(next.filter.toStdString());
  } catch (const Error&) {
    next.filter = impl_->state().filter;
  }
  impl_->ChangeTo(next, tr("restore view"));
}

QSize TimelineView::sizeHint() const { return {1200, 640}; }
QSize TimelineView::minimumSizeHint() const { return {320, 220}; }

void TimelineView::paintEvent(QPaintEvent* event) { impl_->Paint(event); }

void TimelineView::resizeEvent(QResizeEvent*) {
  impl_->PlaceSearch();
  impl_->Invalidate();
}

void TimelineView::changeEvent(QEvent* event) {
  const auto type = event->type();
  if (type == QEvent::PaletteChange || type == QEvent::FontChange || type == QEvent::StyleChange) {
    impl_->fonts_.reset();
    impl_->Invalidate();
  }
  QWidget::changeEvent(event);
}

void TimelineView::mousePressEvent(QMouseEvent* event) { impl_->Press(event); }
void TimelineView::mouseMoveEvent(QMouseEvent* event) { impl_->Move(event); }
void TimelineView::mouseReleaseEvent(QMouseEvent* event) { impl_->Release(event); }
void TimelineView::mouseDoubleClickEvent(QMouseEvent* event) { impl_->DoubleClick(event); }
void TimelineView::leaveEvent(QEvent*) { impl_->Leave(); }

void TimelineView::wheelEvent(QWheelEvent* event) {
  impl_->Wheel(event);
  event->accept();
}

}  // namespace stallcast::gui
