// SPDX-License-Identifier: GPL-3.0-or-later
// The state of the view: its sides, what is seen of them, what is selected.
#include "gui/timeline/view_impl.h"

#include <QUndoStack>
#include <algorithm>
#include <cmath>

#include "gui/timeline/words.h"
#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

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
  found_ = new QLabel(view);
  found_->setObjectName(QStringLiteral("found"));
  found_->hide();
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
  measure_from_.reset();
  hover_ = {};
  selected_ = keep;
  FilterOps();
  ShowFound();
  std::optional<OpDetails> details;
  if (selected_) details = Describe(*pair_, *selected_);
  Q_EMIT view_->OpSelected(details);
  Q_EMIT view_->OpHovered(std::nullopt);
  Q_EMIT view_->RangeChanged(state_.visible);
}

void TimelineView::Impl::SetGhost(Model ghost, const QString& name) {
  ghost_ = std::move(ghost);
  ghost_name_ = name;
  SetHover({});  // may be of the ghost before
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
    FilterOps();
    if (!searching()) search_->setText(state_.filter);
    ShowSearch();
    if (!state_.filter.isEmpty()) {
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
  search_->setFocus();
  search_->selectAll();
  ShowSearch();
}

void TimelineView::Impl::FilterOps() {
  const Filter filter(state_.filter.toStdString());
  for (Side side : kSides) {
    masks_[static_cast<size_t>(side)] = pair_ ? FilterMask(filter, *pair_, side) : FilterMask();
  }
}

// The line is there while it is written in, and while a filter is set: it says why ops are pale.
void TimelineView::Impl::ShowSearch() {
  search_->setVisible(!state_.filter.isEmpty() || searching());
  ShowFound();
  Invalidate();
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
                                   : tr("There is no step %1").arg(step));
}

void TimelineView::Impl::ShowTypicalStep() {
  if (alignment_.stretches.size() < 2) return;
  std::vector<const Alignment::Stretch*> by_length;
  for (const Alignment::Stretch& stretch : alignment_.stretches) by_length.push_back(&stretch);
  std::ranges::stable_sort(by_length, {}, [](const auto* s) { return s->axis.length(); });
  const Alignment::Stretch& usual = *by_length[by_length.size() / 2];
  const AxisRange range = TwoLayers(usual.step).value_or(usual.axis);
  const Picoseconds margin = range.length() / 40;
  undo_.clear();
  state_.visible = Fit({range.begin - margin, range.end + margin});
  last_step_ = CurrentStep();
  Q_EMIT view_->RangeChanged(state_.visible);
  Q_EMIT view_->StepChanged(last_step_);
  Invalidate();
}

// Two layers from the middle of a step, by the compute lane's ops; nothing where these are wide
// enough for labels in a view of the whole step, or know no layers.
std::optional<AxisRange> TimelineView::Impl::TwoLayers(int32_t step) const {
  constexpr int kLegible = 24;  // columns an op, in logical pixels
  const Side side = pair_->model(Side::kPredicted) ? Side::kPredicted : Side::kMeasured;
  const TimelineModel& model = *pair_->model(side);
  const TimelineModel::Step* span = model.FindStep(step);
  if (span == nullptr) return std::nullopt;
  const traces::Timeline& t = model.timeline();
  struct Layer {
    int16_t layer;
    Picoseconds begin, end;
  };
  std::vector<Layer> layers;
  int64_t ops = 0;
  for (size_t k = 0; k < model.tracks().size(); ++k) {
    if (!t.lanes[static_cast<size_t>(model.tracks()[k].lane)].compute) continue;
    const Track track = model.Ops(static_cast<int32_t>(k));
    for (int64_t i = track.Before(span->begin); i < track.Before(span->end); ++i) {
      const int16_t layer = t.layer[static_cast<size_t>(track.first_row() + i)];
      ++ops;
      if (layer < 0) continue;
      if (layers.empty() || layers.back().layer != layer) {
        layers.push_back({layer, track.start(i), track.end(i)});
      }
      layers.back().end = track.end(i);
    }
    break;
  }
  if (layers.size() < 3 || ops * kLegible < view_->width()) return std::nullopt;
  const size_t middle = layers.size() / 2;
  const AxisMap& map = side == Side::kPredicted ? alignment_.predicted : alignment_.measured;
  return AxisRange{map.ToAxis(layers[middle - 1].begin), map.EndToAxis(layers[middle].end)};
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
    ShowFound();
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

// Down the screen, or up. Two sides are one column with the axis in between: what one of them has
// moved away from it comes back first, then the other moves away. The axis stays where it is.
void TimelineView::Impl::ScrollLanes(int by) {
  EnsureScene();
  const auto& limit = layout_.scroll_limit;
  if (!pair_) return;
  if (limit[0] == 0 && limit[1] == 0) {
    Say(tr("All lanes are in view"));
    return;
  }
  if (pair_->both()) {
    int &back = scroll_[by > 0 ? 0 : 1], &away = scroll_[by > 0 ? 1 : 0];
    const int returned = std::min(std::abs(by), back);
    back -= returned;
    away = std::min(away + std::abs(by) - returned, limit[by > 0 ? 1 : 0]);
  } else {
    const size_t side = pair_->model(Side::kPredicted) ? 0 : 1;
    scroll_[side] = std::clamp(scroll_[side] + by, 0, limit[side]);
  }
  Invalidate();
}

// Of the side with less room, of those that do not show all of their lanes; but for a row.
int TimelineView::Impl::PageHeight() {
  EnsureScene();
  int height = 0;
  for (size_t s = 0; s < 2; ++s) {
    if (layout_.scroll_limit[s] == 0) continue;
    const int room = layout_.region[s].height();
    height = height == 0 ? room : std::min(height, room);
  }
  return std::max(height - layout_.row_height, layout_.row_height);
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

}  // namespace stallcast::gui
