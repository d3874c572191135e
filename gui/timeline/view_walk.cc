// SPDX-License-Identifier: GPL-3.0-or-later
// From op to op: along a track, to the twin, the cause, the worst residual, the next that is found.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "gui/timeline/view_impl.h"
#include "gui/timeline/words.h"

namespace stallcast::gui {

namespace {

// Of a host row: whether its op has a row on a stream in the same step.
bool HasRun(const TimelineModel& model, int64_t row) {
  const traces::Timeline& t = model.timeline();
  const int64_t op = t.op[static_cast<size_t>(row)];
  if (op < 0) return false;
  return std::ranges::any_of(model.ops().RowsOf(op), [&](uint32_t other) {
    return !model.IsCall(other) && t.step[other] == t.step[static_cast<size_t>(row)];
  });
}

}  // namespace

void TimelineView::Impl::NextOp() { OpOnTrack(1); }
void TimelineView::Impl::PreviousOp() { OpOnTrack(-1); }

// Along the track, skipping what the filter does not choose. Without a selection, the first op on
// the screen.
void TimelineView::Impl::OpOnTrack(int direction) {
  if (!pair_) return;
  if (!selected_) {
    EnsureScene();
    for (const BarShape& bar : scene_.frame.bars) {
      if (bar.kind == BarShape::Kind::kOp && bar.last > bar.first && !bar.dimmed) {
        Select(OpRef{bar.side, bar.first}, true);
        return;
      }
    }
    Say(tr("No op is on the screen"));
    return;
  }
  const TimelineModel& model = *pair_->model(selected_->side);
  const ModelTrack& track = model.tracks()[static_cast<size_t>(model.TrackOf(selected_->row))];
  const FilterMask& mask = masks_[static_cast<size_t>(selected_->side)];
  int64_t row = selected_->row + direction;
  const auto within = [&] { return row >= track.first_row && row < track.first_row + track.rows; };
  while (within() && !mask.Matches(row)) row += direction;
  if (!within()) {
    Say(direction > 0 ? tr("This is the last op of the track")
                      : tr("This is the first op of the track"));
    return;
  }
  Select(OpRef{selected_->side, row}, true);
}

void TimelineView::Impl::GoToTwin() {
  if (!selected_) {
    Say(tr("Select an op first"));
    return;
  }
  const auto twin = pair_->Twin(*selected_);
  if (twin) {
    Select(twin, true);
  } else {
    Say(pair_->both() ? tr("This op has no twin on the other side") : tr("There is one side only"));
  }
}

void TimelineView::Impl::GoToCause() {
  if (!selected_) {
    Say(tr("Select an op first"));
    return;
  }
  const TimelineModel& model = *pair_->model(selected_->side);
  const std::vector<Wait> waits = WaitsInto(model, selected_->row);
  if (waits.empty()) {
    Say(tr("This op waited for no other"));
    return;
  }
  const auto last = std::max_element(waits.begin(), waits.end(), [&](const Wait& a, const Wait& b) {
    return model.End(a.from) < model.End(b.from);
  });
  Select(OpRef{selected_->side, last->from}, true);
}

// Ordered by how much time a row's residual is worth; after the selected one, if it is one of them.
void TimelineView::Impl::WorstResidual() {
  if (!pair_ || !pair_->both()) {
    Say(tr("Residuals need a predicted and a measured side"));
    return;
  }
  const TimelineModel& model = *pair_->model(Side::kMeasured);
  const AxisMap& map = alignment_.measured;
  const Picoseconds begin = map.FromAxis(state_.visible.begin);
  const Picoseconds end = map.FromAxis(state_.visible.end);
  const auto key = [&](int64_t row) {
    const double residual = pair_->Residual({Side::kMeasured, row});
    const double duration =
        static_cast<double>(model.timeline().duration[static_cast<size_t>(row)].count());
    return std::pair(std::isfinite(residual) ? std::abs(residual) * duration : -1.0, -row);
  };
  std::optional<std::pair<double, int64_t>> below;
  if (selected_) {
    const auto here = selected_->side == Side::kMeasured ? selected_ : pair_->Twin(*selected_);
    if (here) below = key(here->row);
  }
  const FilterMask& mask = masks_[static_cast<size_t>(Side::kMeasured)];
  std::optional<std::pair<double, int64_t>> best;
  for (size_t k = 0; k < model.tracks().size(); ++k) {
    const Track track = model.Ops(static_cast<int32_t>(k));
    const int64_t last = track.Before(end);
    for (int64_t i = track.Before(begin); i < last; ++i) {
      const auto candidate = key(track.first_row() + i);
      if (candidate.first <= 0 || (below && candidate >= *below)) continue;
      if (best && candidate <= *best) continue;
      // An op is one stop, whatever rows it has.
      const int64_t row = track.first_row() + i;
      if (model.SpanOf(row).first_row != row || (model.IsCall(row) && HasRun(model, row))) continue;
      if (mask.Matches(track.first_row() + i)) best = candidate;
    }
  }
  if (!best) {
    Say(below ? tr("No visible op has a smaller residual") : tr("No visible op has a residual"));
    return;
  }
  Select(OpRef{Side::kMeasured, -best->second}, true);
}

void TimelineView::Impl::NextMatch() { Match(1); }
void TimelineView::Impl::PreviousMatch() { Match(-1); }

TimelineView::Impl::MatchPlace TimelineView::Impl::PlaceOf(OpRef op) const {
  const AxisMap& map = op.side == Side::kPredicted ? alignment_.predicted : alignment_.measured;
  return {map.ToAxis(pair_->model(op.side)->Start(op.row)), static_cast<int>(op.side), op.row};
}

// The op nearest after (before) a place, of those that the filter chooses on either side.
std::optional<OpRef> TimelineView::Impl::NearestMatch(MatchPlace from, int direction) const {
  const SceneInput input = Input();
  std::optional<OpRef> found;
  for (Side side : kSides) {
    const TimelineModel* model = pair_->model(side).get();
    if (model == nullptr) continue;
    const FilterMask& mask = masks_[static_cast<size_t>(side)];
    for (size_t k = 0; k < model->tracks().size(); ++k) {
      const Track track = model->Ops(static_cast<int32_t>(k));
      int64_t i = track.Before(input.map(side).FromAxis(std::get<0>(from)));
      // Rows that start together may be on either side of `from`.
      while (direction < 0 && i < track.size() && PlaceOf({side, track.first_row() + i}) < from) {
        ++i;
      }
      if (direction < 0) --i;
      for (; i >= 0 && i < track.size(); i += direction) {
        const OpRef op{side, track.first_row() + i};
        if (direction > 0 ? PlaceOf(op) <= from : PlaceOf(op) >= from) continue;
        if (!mask.Matches(op.row)) continue;
        const bool nearer = !found || (direction > 0 ? PlaceOf(op) < PlaceOf(*found)
                                                     : PlaceOf(op) > PlaceOf(*found));
        if (nearer) found = op;
        break;
      }
    }
  }
  return found;
}

// From the selected op, or else from the edge of the view; past the last comes the first.
void TimelineView::Impl::Match(int direction) {
  if (!pair_) return;
  if (masks_[0].all() && masks_[1].all()) {
    Say(tr("Nothing is searched for: %1 opens the search").arg(QStringLiteral("Ctrl+F")));
    return;
  }
  const AxisRange whole = alignment_.whole, seen = state_.visible;
  const bool on = direction > 0;
  const MatchPlace edge(on ? seen.begin : seen.end, -1, -1);
  const MatchPlace start(on ? whole.begin - Picoseconds{1} : whole.end + Picoseconds{1}, -1, -1);
  const auto next = NearestMatch(selected_ ? PlaceOf(*selected_) : edge, direction);
  const auto found = next ? next : NearestMatch(start, direction);
  if (!found) {
    Say(tr("No op is found"));
  } else if (found == selected_) {
    Say(tr("No other op is found"));
  } else {
    Select(found, true);
    if (!next) Say(on ? tr("From the start") : tr("From the end"));
  }
}

// Which match is selected, of how many.
void TimelineView::Impl::ShowFound() {
  const int64_t all = masks_[0].total() + masks_[1].total();
  QString text;
  if (pair_ && !state_.filter.isEmpty()) {
    text = tr("%1 found").arg(CountText(all));
    if (selected_ && masks_[static_cast<size_t>(selected_->side)].Matches(selected_->row)) {
      const MatchPlace here = PlaceOf(*selected_);
      int64_t place = 1;
      const SceneInput input = Input();
      for (Side side : kSides) {
        const TimelineModel* model = pair_->model(side).get();
        for (size_t k = 0; model != nullptr && k < model->tracks().size(); ++k) {
          const Track track = model->Ops(static_cast<int32_t>(k));
          int64_t before = track.Before(input.map(side).FromAxis(std::get<0>(here)));
          while (before < track.size() && PlaceOf({side, track.first_row() + before}) < here) {
            ++before;
          }
          place += masks_[static_cast<size_t>(side)].Count(track.first_row(),
                                                           track.first_row() + before);
        }
      }
      text = tr("%1 of %2").arg(CountText(place), CountText(all));
    }
  }
  found_->setText(text);
  found_->setVisible(!text.isEmpty());
  PlaceSearch();
}

}  // namespace stallcast::gui
