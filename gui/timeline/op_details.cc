// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/op_details.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

namespace stallcast::gui {
namespace {

// The row that stands for an op when something waits for it, or it waits: its run that ends last
// (starts first), in this step if it has one there; its call where it never runs.
int64_t Standing(const TimelineModel& model, int64_t op, int32_t step, bool last_end) {
  int64_t best = -1;
  const auto key = [&](int64_t row) {
    const bool here = model.timeline().step[static_cast<size_t>(row)] == step;
    const int64_t time = last_end ? model.End(row).count() : -model.Start(row).count();
    return std::tuple(!model.IsCall(row), here, time);
  };
  for (uint32_t row : model.ops().RowsOf(op)) {
    if (best < 0 || key(row) > key(best)) best = row;
  }
  return best;
}

template <class Others>
std::vector<Wait> WaitsOfKind(const TimelineModel& model, int64_t row, bool into, Others&& others) {
  const auto i = static_cast<size_t>(row);
  const int64_t op = model.timeline().op[i];
  const int32_t step = model.timeline().step[i];
  std::vector<Wait> waits;
  if (op < 0 || Standing(model, op, step, !into) < 0) return waits;
  for (uint32_t slot : others(op)) {
    const int64_t other = model.ops().OpOf(slot);
    const Wait wait =
        into ? Wait{Standing(model, other, step, true), Standing(model, op, step, false)}
             : Wait{Standing(model, op, step, true), Standing(model, other, step, false)};
    waits.push_back(wait);
  }
  return waits;
}

}  // namespace

std::vector<Wait> WaitsInto(const TimelineModel& model, int64_t row) {
  return WaitsOfKind(model, row, true, [&](int64_t op) { return model.ops().WaitsOf(op); });
}

std::vector<Wait> WaitsFrom(const TimelineModel& model, int64_t row) {
  return WaitsOfKind(model, row, false, [&](int64_t op) { return model.ops().WaitersOf(op); });
}

OpFacts FactsOf(const TimelineModel& model, OpRef ref) {
  const traces::Timeline& t = model.timeline();
  OpFacts facts;
  const TimelineModel::Span span = model.SpanOf(ref.row);
  facts.ref = {ref.side, span.first_row};
  const auto row = static_cast<size_t>(span.first_row);
  facts.rows = std::max<int64_t>(1, std::ssize(model.RowsLike(ref.row)));
  facts.name = model.NameOf(span.first_row);
  facts.lane = t.lanes[t.lane[row]].name;
  facts.role = t.role[row];
  facts.op = t.op[row];
  facts.step = t.step[row];
  facts.layer = t.layer[row];
  facts.start = span.start;
  const TimelineModel::Step* step = model.FindStep(facts.step);
  facts.start_in_step = span.start - (step ? step->begin : model.begin());
  facts.duration = span.end - span.start;
  facts.idle_before = model.IdleBefore(span.first_row);
  if (facts.op < 0) {
    facts.bytes = t.bytes[row];
  } else {
    for (uint32_t r : model.RowsLike(ref.row)) facts.bytes += t.bytes[r];
  }
  std::vector<Wait> waits = WaitsInto(model, ref.row);
  std::sort(waits.begin(), waits.end(),
            [&](const Wait& a, const Wait& b) { return model.End(a.from) > model.End(b.from); });
  for (const Wait& wait : waits) facts.waits.push_back(model.NameOf(wait.from));
  return facts;
}

std::optional<int64_t> SameOp(const TimelineModel& model, int64_t row, const TimelineModel& other) {
  const auto i = static_cast<size_t>(row);
  const int64_t op = model.timeline().op[i];
  if (op < 0) return std::nullopt;
  for (uint32_t same : other.ops().RowsOf(op)) {
    if (other.timeline().step[same] == model.timeline().step[i] &&
        other.IsCall(same) == model.IsCall(row) && other.NameOf(same) == model.NameOf(row)) {
      return same;
    }
  }
  return std::nullopt;
}

OpDetails Describe(const TimelinePair& pair, OpRef op) {
  OpDetails details;
  details.op = FactsOf(*pair.model(op.side), op);
  const std::optional<OpRef> twin = pair.Twin(op);
  if (!twin) return details;
  details.twin = FactsOf(*pair.model(twin->side), *twin);
  const bool predicted = op.side == Side::kPredicted;
  OpFacts& measured = predicted ? *details.twin : details.op;
  if (measured.bytes == 0 && pair.unlike() == 0) {
    measured.bytes = (predicted ? details.op : *details.twin).bytes;
    measured.planned_bytes = measured.bytes > 0;
  }
  const sim::TimePair pair_of{{predicted ? details.op.duration : details.twin->duration},
                              {predicted ? details.twin->duration : details.op.duration}};
  details.residual = pair_of.residual();
  details.relative_residual = pair_of.relative();
  return details;
}

AreaSums SumArea(const TimelinePair& pair, const Alignment& alignment, AxisRange range,
                 const AreaTracks& tracks) {
  AreaSums sums;
  sums.range = range;
  for (Side side : kSides) {
    const TimelineModel* model = pair.model(side).get();
    const std::vector<int32_t>& touched = tracks[static_cast<size_t>(side)];
    if (model == nullptr || touched.empty()) continue;
    const AxisMap& map = side == Side::kPredicted ? alignment.predicted : alignment.measured;
    const Picoseconds begin = map.FromAxis(range.begin), end = map.FromAxis(range.end);
    const traces::Timeline& t = model->timeline();
    AreaSums::Roles roles{};
    const auto inside = [&](const Track& track, auto&& visit) {
      int64_t row = track.Before(begin);
      if (row > 0 && track.end(row - 1) > begin) --row;
      for (; row < track.size() && track.start(row) < end; ++row) {
        visit(row, std::min(track.end(row), end) - std::max(track.start(row), begin));
      }
    };
    std::set<int32_t> lanes;
    for (int32_t k : touched) {
      const Track track = model->Ops(k);
      lanes.insert(model->tracks()[static_cast<size_t>(k)].lane);
      inside(track, [&](int64_t row, Picoseconds busy) {
        AreaSums::Role& role = roles[static_cast<size_t>(track.role(row))];
        role.busy += busy;
        ++role.ops;
        const int64_t bytes = t.bytes[static_cast<size_t>(track.first_row() + row)];
        // A file may hold any number here.
        if (track.start(row) >= begin && __builtin_add_overflow(role.bytes, bytes, &role.bytes)) {
          role.bytes = std::numeric_limits<int64_t>::max();
        }
      });
    }
    for (int32_t lane : lanes) {
      const Track track = model->ExposureTrack(lane);
      inside(track, [&](int64_t row, Picoseconds waiting) {
        roles[static_cast<size_t>(track.role(row))].exposed += waiting;
      });
    }
    (side == Side::kPredicted ? sums.predicted : sums.measured) = roles;
  }
  return sums;
}

}  // namespace stallcast::gui
