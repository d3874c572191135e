// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/exposure.h"

#include <algorithm>

#include "gui/timeline/timeline_model.h"
#include "traces/common/parallel.h"

namespace stallcast::gui {
namespace {

using traces::MovesData;
using traces::Role;

// A gap of the compute lane, [from, to), before `row`; or a transfer on it, when `row` is -1.
struct Gap {
  Picoseconds from{0}, to{0};
  int64_t row = -1, transfer = -1;
};

// A chain of causes that goes on without going back in time is a circle.
constexpr int kMostIdle = 64;

// What ended before a row could start.
struct Cause {
  enum class Kind : uint8_t { kNone, kWait, kCall, kLane } kind = Kind::kNone;
  int64_t row = -1;
  Picoseconds end{0};
};

class Walk {
 public:
  Walk(const TimelineModel& model, int32_t lane) : model_(model), lane_(lane) {
    for (size_t k = 0; k < model.tracks().size(); ++k) {
      const auto track = static_cast<int32_t>(k);
      const auto roles = model.Ops(track).roles();
      if (std::any_of(roles.begin(), roles.end(), MovesData)) transfers_.push_back(track);
    }
  }

  // Appends, latest first.
  void Charge(const Gap& gap, std::vector<Exposure>& found) const {
    Picoseconds at = gap.to;
    const size_t first = found.size();
    const auto until = [&](Picoseconds time, Role role, int64_t cause) {
      const Picoseconds stop = std::max(time, gap.from);
      if (stop >= at) return;
      // The host's calls one after the other are one wait: for the host.
      if (found.size() > first && found.back().role == role &&
          (found.back().cause == cause || role == Role::kHost)) {
        found.back().start = stop;
        found.back().duration += at - stop;
      } else {
        found.push_back({stop, at - stop, role, cause});
      }
      at = stop;
    };
    int64_t row = gap.row, last = -1;
    if (!HasCauses(row)) {
      last = LastElsewhere(gap);
      until(gap.from, last < 0 ? Role::kOther : RoleOf(last), last);
    }
    Picoseconds before = at;
    for (int idle = 0; at > gap.from && idle < kMostIdle; ++idle) {
      if (at < before) idle = 0;
      before = at;
      const Cause cause = CauseOf(row);
      if (cause.kind == Cause::Kind::kNone) break;
      last = cause.row;
      switch (cause.kind) {
        case Cause::Kind::kWait:
          until(cause.end, model_.IsCall(row) ? Role::kSync : RoleOf(cause.row), cause.row);
          break;
        case Cause::Kind::kCall:
        case Cause::Kind::kLane:
        case Cause::Kind::kNone:
          until(cause.end, Role::kHost, cause.row);
          break;
      }
      until(BeginOfWork(cause.row), RoleOf(cause.row), cause.row);
      row = cause.row;
    }
    until(gap.from, Role::kHost, last);
  }

 private:
  // Whether the timeline would tell what the row waited for, had it waited.
  bool HasCauses(int64_t row) const {
    if (model_.ops().flows() > 0) return true;
    const auto i = static_cast<size_t>(row);
    const auto rows = model_.ops().RowsOf(model_.timeline().op[i]);
    return std::any_of(rows.begin(), rows.end(), [&](uint32_t r) { return model_.IsCall(r); });
  }

  Role RoleOf(int64_t row) const { return model_.timeline().role[static_cast<size_t>(row)]; }

  // Host work begins when what it waited for has ended.
  Picoseconds BeginOfWork(int64_t row) const {
    Picoseconds begin = model_.Start(row);
    if (!model_.IsCall(row)) return begin;
    const Cause wait = WaitOf(row);
    return wait.kind == Cause::Kind::kNone ? begin : std::clamp(wait.end, begin, model_.End(row));
  }

  // Of the ops that the row's op waited for, the one that ended last. A call does not wait: its op
  // does.
  Cause WaitOf(int64_t row) const {
    Cause latest;
    const int64_t op = model_.timeline().op[static_cast<size_t>(row)];
    if (op < 0 || (model_.IsCall(row) && HasRun(row))) return latest;
    for (uint32_t slot : model_.ops().WaitsOf(op)) {
      for (uint32_t r : model_.ops().RowsOf(model_.ops().OpOf(slot))) {
        if (HasRun(r) && model_.IsCall(r)) continue;
        if (model_.End(r) > model_.End(row)) continue;  // of another step's run of the op
        if (latest.kind == Cause::Kind::kNone || model_.End(r) > latest.end) {
          latest = {Cause::Kind::kWait, r, model_.End(r)};
        }
      }
    }
    return latest;
  }

  bool HasRun(int64_t row) const {
    const size_t i = static_cast<size_t>(row);
    const auto rows = model_.ops().RowsOf(model_.timeline().op[i]);
    return std::any_of(rows.begin(), rows.end(), [&](uint32_t r) {
      return !model_.IsCall(r) && model_.timeline().step[r] == model_.timeline().step[i];
    });
  }

  // The latest of what the row may have waited for. An op that goes on in another row waits for
  // what it did before, if for no other's copies.
  Cause CauseOf(int64_t row) const {
    const int64_t before = TransferBefore(row);
    if (GoesOn(row)) {
      const int64_t cause = before >= 0 ? before : row - 1;
      return {Cause::Kind::kWait, cause, model_.End(cause)};
    }
    Cause latest = WaitOf(row);
    const auto consider = [&](Cause::Kind kind, int64_t candidate) {
      // A run may start before its call has returned.
      const Picoseconds end = std::min(model_.End(candidate), model_.Start(row));
      // Copies follow one another without a gap: a call that goes on meanwhile did not hold one up.
      const bool follows = kind == Cause::Kind::kLane && end == latest.end;
      if (latest.kind == Cause::Kind::kNone || end > latest.end || follows) {
        latest = {kind, candidate, end};
      }
    };
    const auto i = static_cast<size_t>(row);
    const int64_t op = model_.timeline().op[i];
    if (op >= 0 && !model_.IsCall(row)) {
      for (uint32_t r : model_.ops().RowsOf(op)) {
        if (model_.IsCall(r) && model_.timeline().step[r] == model_.timeline().step[i]) {
          consider(Cause::Kind::kCall, r);
        }
      }
    }
    const ModelTrack& track = model_.tracks()[static_cast<size_t>(model_.TrackOf(row))];
    if (row > track.first_row) consider(Cause::Kind::kLane, row - 1);
    // A call that goes on while pieces are copied ends after the run has begun: what the engine did
    // until then held it up.
    if (before >= 0 && model_.End(before) >= latest.end) {
      latest = {Cause::Kind::kWait, before, model_.End(before)};
    }
    return latest;
  }

  // Whether the row before it on its lane is of the same run of its op.
  bool GoesOn(int64_t row) const {
    const ModelTrack& track = model_.tracks()[static_cast<size_t>(model_.TrackOf(row))];
    const auto i = static_cast<size_t>(row);
    const traces::Timeline& of = model_.timeline();
    return row > track.first_row && !model_.IsCall(row) && of.op[i] >= 0 &&
           of.op[i] == of.op[i - 1] && of.step[i] == of.step[i - 1];
  }

  // The transfer of another lane that ended in the moment in which this one began: they share a
  // copy engine.
  int64_t TransferBefore(int64_t row) const {
    if (!MovesData(RoleOf(row)) || model_.IsCall(row)) return -1;
    for (int32_t k : transfers_) {
      const ModelTrack& at = model_.tracks()[static_cast<size_t>(k)];
      if (at.lane == model_.timeline().lane[static_cast<size_t>(row)]) continue;
      const int64_t other = at.first_row + model_.Ops(k).Before(model_.Start(row)) - 1;
      if (other < at.first_row || !MovesData(RoleOf(other)) || model_.IsCall(other)) continue;
      if (model_.End(other) == model_.Start(row)) return other;
    }
    return -1;
  }

  // The row of another lane that ended last in the gap, or was still running at its end.
  int64_t LastElsewhere(const Gap& gap) const {
    int64_t last = -1;
    Picoseconds latest = gap.from;
    for (size_t k = 0; k < model_.tracks().size(); ++k) {
      const ModelTrack& at = model_.tracks()[k];
      if (at.lane == lane_) continue;
      const Track track = model_.Ops(static_cast<int32_t>(k));
      const int64_t before = track.Before(gap.to);
      if (before == 0) continue;
      const Picoseconds end = std::min(track.end(before - 1), gap.to);
      if (end > latest) {
        latest = end;
        last = track.first_row() + before - 1;
      }
    }
    return last;
  }

  const TimelineModel& model_;
  int32_t lane_;
  std::vector<int32_t> transfers_;  // tracks on which some row moves data
};

// Gaps between the lane's rows, over all its tracks, from the first row of any lane on; transfers.
std::vector<Gap> GapsOf(const TimelineModel& model, int32_t lane) {
  const ModelLane& at = model.lanes()[static_cast<size_t>(lane)];
  std::vector<int64_t> order;  // of rows by start, where there are several tracks
  if (at.tracks > 1) {
    order.resize(static_cast<size_t>(at.rows));
    for (int64_t i = 0; i < at.rows; ++i) order[static_cast<size_t>(i)] = at.first_row + i;
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return std::pair(model.Start(a), a) < std::pair(model.Start(b), b);
    });
  }
  std::vector<Gap> gaps;
  Picoseconds busy_until = model.begin();
  for (int64_t i = 0; i < at.rows; ++i) {
    const int64_t row = order.empty() ? at.first_row + i : order[static_cast<size_t>(i)];
    const Picoseconds start = model.Start(row), end = model.End(row);
    if (start > busy_until) gaps.push_back({busy_until, start, row, -1});
    if (MovesData(model.timeline().role[static_cast<size_t>(row)]) && end > busy_until) {
      gaps.push_back({std::max(start, busy_until), end, -1, row});
    }
    busy_until = std::max(busy_until, end);
  }
  return gaps;
}

}  // namespace

std::vector<Exposure> FindExposures(const TimelineModel& model, int32_t lane) {
  const std::vector<Gap> gaps = GapsOf(model, lane);
  const Walk walk(model, lane);
  constexpr int64_t kGapsAtOnce = 4096;
  std::vector<std::vector<Exposure>> parts((gaps.size() + kGapsAtOnce - 1) / kGapsAtOnce);
  ParallelFor(std::ssize(parts), [&](int, int64_t part) {
    std::vector<Exposure>& found = parts[static_cast<size_t>(part)];
    const int64_t last = std::min(std::ssize(gaps), (part + 1) * kGapsAtOnce);
    for (int64_t i = part * kGapsAtOnce; i < last; ++i) {
      const Gap& gap = gaps[static_cast<size_t>(i)];
      const auto first = std::ssize(found);
      if (gap.transfer >= 0) {
        const Role role = model.timeline().role[static_cast<size_t>(gap.transfer)];
        found.push_back({gap.from, gap.to - gap.from, role, gap.transfer});
      } else {
        walk.Charge(gap, found);
      }
      std::reverse(found.begin() + first, found.end());
    }
  });
  std::vector<Exposure> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace stallcast::gui
