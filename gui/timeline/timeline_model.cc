// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/timeline_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include "sim/predict.h"
#include "traces/common/error.h"
#include "traces/common/parallel.h"
#include "traces/reorder.h"
#include "traces/step_spans.h"

namespace stallcast::gui {
namespace {

using traces::Timeline;

// The axis adds the lengths of up to three timelines.
constexpr Picoseconds kLongest{int64_t{1} << 60};
constexpr int64_t kMostRows = int64_t{1} << 31;

void Check(const Timeline& t) {
  const auto refuse = [&](const std::string& what) {
    throw Error("this timeline cannot be drawn: " + what, t.title,
                "convert or record it again, or cut it");
  };
  const std::string fault = FirstFault(t);
  if (!fault.empty()) refuse(fault);
  if (t.rows() >= kMostRows) refuse(fmt::format("{} rows", t.rows()));
  for (size_t row = 0; row < t.start.size(); ++row) {
    if (std::chrono::abs(t.start[row]) > kLongest / 2 || t.duration[row] > kLongest / 2) {
      refuse(fmt::format("row {} is more than 6 days from time 0", row));
    }
  }
}

// Rows by lane and start. Of those that start together, what takes no time comes first (it fits
// before the others), then the longest (a range before what is inside it).
std::vector<uint32_t> OrderByLane(const Timeline& t, std::vector<ModelLane>& lanes) {
  for (uint16_t lane : t.lane) ++lanes[lane].rows;
  int64_t first = 0;
  for (ModelLane& lane : lanes) {
    lane.first_row = first;
    first += lane.rows;
  }
  std::vector<uint32_t> order(t.start.size());
  std::vector<int64_t> next(lanes.size());
  for (size_t l = 0; l < lanes.size(); ++l) next[l] = lanes[l].first_row;
  for (size_t row = 0; row < order.size(); ++row) {
    order[static_cast<size_t>(next[t.lane[row]]++)] = static_cast<uint32_t>(row);
  }
  const auto before = [&t](uint32_t a, uint32_t b) {
    const auto key = [&t](uint32_t row) {
      const Picoseconds d = t.duration[row];
      return std::tuple(t.start[row], d.count() != 0, -d, row);
    };
    return key(a) < key(b);
  };
  ParallelFor(std::ssize(lanes), [&](int, int64_t l) {
    const auto begin = order.begin() + lanes[static_cast<size_t>(l)].first_row;
    const auto end = begin + lanes[static_cast<size_t>(l)].rows;
    if (!std::is_sorted(begin, end, before)) std::sort(begin, end, before);
  });
  return order;
}

// The lowest track free at each row's start; sorts the lane's rows by track. Returns rows a track.
std::vector<int64_t> AssignTracks(const Timeline& t, std::span<uint32_t> order) {
  bool overlap = false;
  for (size_t i = 1; i < order.size() && !overlap; ++i) {
    overlap = t.start[order[i - 1]] + t.duration[order[i - 1]] > t.start[order[i]];
  }
  if (!overlap) return {std::ssize(order)};

  using Busy = std::pair<Picoseconds, uint32_t>;
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> free;
  std::vector<int64_t> rows;
  std::vector<uint32_t> track(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const Picoseconds start = t.start[order[i]];
    while (!busy.empty() && busy.top().first <= start) {
      free.push(busy.top().second);
      busy.pop();
    }
    if (free.empty()) {
      free.push(static_cast<uint32_t>(rows.size()));
      rows.push_back(0);
    }
    track[i] = free.top();
    free.pop();
    ++rows[track[i]];
    busy.emplace(start + t.duration[order[i]], track[i]);
  }
  std::vector<size_t> next(rows.size(), 0);
  for (size_t k = 1; k < rows.size(); ++k) {
    next[k] = next[k - 1] + static_cast<size_t>(rows[k - 1]);
  }
  std::vector<uint32_t> sorted(order.size());
  for (size_t i = 0; i < order.size(); ++i) sorted[next[track[i]]++] = order[i];
  std::copy(sorted.begin(), sorted.end(), order.begin());
  return rows;
}

template <class T>
std::span<const T> Part(const std::vector<T>& column, int64_t first, int64_t count) {
  return std::span<const T>(column).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

template <class T>
int64_t BytesOf(const std::vector<T>& column) {
  return static_cast<int64_t>(column.capacity() * sizeof(T));
}

}  // namespace

std::shared_ptr<const TimelineModel> TimelineModel::Build(Timeline timeline,
                                                          const std::stop_token& stop) {
  const auto stop_if_asked = [&] {
    if (stop.stop_requested()) throw sim::Cancelled();
  };
  stop_if_asked();
  Check(timeline);
  std::shared_ptr<TimelineModel> model(new TimelineModel);
  const auto owned = std::make_shared<Timeline>(std::move(timeline));
  model->timeline_ = owned;
  Timeline& t = *owned;
  model->lanes_.resize(t.lanes.size());

  std::vector<uint32_t> order = OrderByLane(t, model->lanes_);
  stop_if_asked();
  std::vector<std::vector<int64_t>> tracks(t.lanes.size());
  ParallelFor(std::ssize(tracks), [&](int, int64_t i) {
    const ModelLane& lane = model->lanes_[static_cast<size_t>(i)];
    if (lane.rows == 0) return;
    tracks[static_cast<size_t>(i)] =
        AssignTracks(t, std::span(order).subspan(static_cast<size_t>(lane.first_row),
                                                 static_cast<size_t>(lane.rows)));
  });
  stop_if_asked();
  if (!std::is_sorted(order.begin(), order.end())) traces::Reorder(t, order);
  order = {};

  for (size_t l = 0; l < tracks.size(); ++l) {
    ModelLane& lane = model->lanes_[l];
    lane.first_track = static_cast<int32_t>(model->tracks_.size());
    lane.tracks = static_cast<int32_t>(tracks[l].size());
    int64_t first = lane.first_row;
    for (int64_t rows : tracks[l]) {
      model->tracks_.push_back({static_cast<int32_t>(l), first, rows});
      first += rows;
    }
  }
  stop_if_asked();
  model->indices_.resize(model->tracks_.size());
  ParallelFor(std::ssize(model->tracks_), [&](int, int64_t i) {
    const ModelTrack& track = model->tracks_[static_cast<size_t>(i)];
    model->indices_[static_cast<size_t>(i)] = Track::Index(
        Part(t.start, track.first_row, track.rows), Part(t.duration, track.first_row, track.rows),
        Part(t.role, track.first_row, track.rows));
  });
  if (t.rows() > 0) {
    model->begin_ = *std::min_element(t.start.begin(), t.start.end());
    model->end_ = model->begin_;
    for (const ModelTrack& track : model->tracks_) {
      model->end_ = std::max(model->end_, model->End(track.first_row + track.rows - 1));
    }
  }

  stop_if_asked();
  model->ops_ = OpIndex(t, t.flows);
  t.flows = {};
  stop_if_asked();
  model->FindSteps();
  model->FindTraffic();
  model->FindAllExposures();
  return model;
}

std::shared_ptr<const TimelineModel> TimelineModel::WithWaits(
    const TimelineModel& model, std::span<const traces::TimelineFlow> waits) {
  std::shared_ptr<TimelineModel> changed(new TimelineModel(model));
  changed->ops_ = OpIndex(*model.timeline_, waits);
  changed->FindAllExposures();
  return changed;
}

void TimelineModel::FindAllExposures() {
  const Timeline& t = *timeline_;
  Exposures found;
  for (size_t l = 0; l < t.lanes.size(); ++l) {
    ModelLane& lane = lanes_[l];
    lane.first_exposure = std::ssize(found.start);
    if (t.lanes[l].compute && lane.rows > 0) {
      for (const Exposure& e : FindExposures(*this, static_cast<int32_t>(l))) {
        found.start.push_back(e.start);
        found.duration.push_back(e.duration);
        found.role.push_back(e.role);
        found.cause.push_back(static_cast<int32_t>(e.cause));
      }
    }
    lane.exposures = std::ssize(found.start) - lane.first_exposure;
  }
  found.start.shrink_to_fit();
  found.duration.shrink_to_fit();
  found.role.shrink_to_fit();
  found.cause.shrink_to_fit();
  for (const ModelLane& lane : lanes_) {
    found.indices.emplace_back(Part(found.start, lane.first_exposure, lane.exposures),
                               Part(found.duration, lane.first_exposure, lane.exposures),
                               Part(found.role, lane.first_exposure, lane.exposures));
  }
  exposures_ = std::move(found);
}

void TimelineModel::FindTraffic() {
  traffic_.resize(tracks_.size());
  std::array<double, kWays.size()> most{};
  for (size_t k = 0; k < tracks_.size(); ++k) {
    const ModelTrack& at = tracks_[k];
    if (timeline_->lanes[static_cast<size_t>(at.lane)].kind == traces::LaneKind::kHost) continue;
    traffic_[k] =
        Traffic(Ops(static_cast<int32_t>(k)), Part(timeline_->bytes, at.first_row, at.rows));
    for (const Way way : kWays) {
      if (traffic_[k].total(way) <= most[static_cast<size_t>(way)]) continue;
      most[static_cast<size_t>(way)] = traffic_[k].total(way);
      traffic_lanes_[static_cast<size_t>(way)] = at.lane;
    }
  }
}

double TimelineModel::TrafficBefore(Way way, Picoseconds time) const {
  double sum = 0;
  for (size_t k = 0; k < traffic_.size(); ++k) {
    if (traffic_[k].total(way) == 0) continue;
    sum += traffic_[k].Before(way, time, Ops(static_cast<int32_t>(k)),
                              Part(timeline_->bytes, tracks_[k].first_row, tracks_[k].rows));
  }
  return sum;
}

void TimelineModel::FindSteps() {
  for (const auto& [step, span] : traces::StepSpans(*timeline_)) {
    steps_.push_back({step, span.start, span.end});
  }
}

const TimelineModel::Step* TimelineModel::FindStep(int32_t number) const {
  const auto at = std::lower_bound(steps_.begin(), steps_.end(), number,
                                   [](const Step& s, int32_t n) { return s.step < n; });
  return at != steps_.end() && at->step == number ? &*at : nullptr;
}

int32_t TimelineModel::TrackOf(int64_t row) const {
  const auto after =
      std::upper_bound(tracks_.begin(), tracks_.end(), row,
                       [](int64_t r, const ModelTrack& track) { return r < track.first_row; });
  return static_cast<int32_t>(after - tracks_.begin()) - 1;
}

Track TimelineModel::Ops(int32_t track) const {
  const ModelTrack& at = tracks_[static_cast<size_t>(track)];
  return Track(Part(timeline_->start, at.first_row, at.rows),
               Part(timeline_->duration, at.first_row, at.rows),
               Part(timeline_->role, at.first_row, at.rows), &indices_[static_cast<size_t>(track)],
               at.first_row);
}

Track TimelineModel::ExposureTrack(int32_t lane) const {
  const ModelLane& at = lanes_[static_cast<size_t>(lane)];
  return Track(Part(exposures_.start, at.first_exposure, at.exposures),
               Part(exposures_.duration, at.first_exposure, at.exposures),
               Part(exposures_.role, at.first_exposure, at.exposures),
               &exposures_.indices[static_cast<size_t>(lane)], at.first_exposure);
}

Exposure TimelineModel::exposure(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  return {exposures_.start[i], exposures_.duration[i], exposures_.role[i], exposures_.cause[i]};
}

std::span<const uint32_t> TimelineModel::RowsLike(int64_t row) const {
  const auto i = static_cast<size_t>(row);
  if (timeline_->op[i] < 0) return {};
  const std::span<const uint32_t> rows = ops_.RowsOf(timeline_->op[i]);
  const auto key = [this](int64_t r) {
    return std::pair(timeline_->step[static_cast<size_t>(r)], IsCall(r));
  };
  const auto first =
      std::partition_point(rows.begin(), rows.end(), [&](uint32_t r) { return key(r) < key(row); });
  const auto last =
      std::partition_point(first, rows.end(), [&](uint32_t r) { return key(r) == key(row); });
  return {first, last};
}

TimelineModel::Span TimelineModel::SpanOf(int64_t row) const {
  Span span{Start(row), End(row), row};
  for (uint32_t r : RowsLike(row)) {
    if (std::pair(Start(r), int64_t{r}) < std::pair(span.start, span.first_row)) {
      span = {Start(r), span.end, r};
    }
    span.end = std::max(span.end, End(r));
  }
  return span;
}

Picoseconds TimelineModel::IdleBefore(int64_t row) const {
  const Picoseconds start = Start(row);
  const ModelLane& lane = lanes_[timeline_->lane[static_cast<size_t>(row)]];
  Picoseconds last{-kLongest};
  for (int32_t k = lane.first_track; k < lane.first_track + lane.tracks; ++k) {
    // In its own track the row before it; in another, any row that began before it.
    const Track track = Ops(k);
    const int64_t here = row - track.first_row();
    const bool own = here >= 0 && here < track.size();
    const int64_t before = own ? here : track.Before(start);
    if (before > 0) last = std::max(last, track.end(before - 1));
  }
  return last == -kLongest ? Picoseconds{0} : std::max(Picoseconds{0}, start - last);
}

int64_t TimelineModel::MemoryBytes() const {
  const Timeline& t = *timeline_;
  int64_t bytes = BytesOf(t.lane) + BytesOf(t.op) + BytesOf(t.step) + BytesOf(t.layer) +
                  BytesOf(t.role) + BytesOf(t.name) + BytesOf(t.start) + BytesOf(t.duration) +
                  BytesOf(t.bytes) + BytesOf(t.graph_node) + BytesOf(lanes_) + BytesOf(tracks_) +
                  ops_.MemoryBytes() + BytesOf(exposures_.start) + BytesOf(exposures_.duration) +
                  BytesOf(exposures_.role) + BytesOf(exposures_.cause) + BytesOf(steps_);
  for (const Track::Index& index : indices_) bytes += index.MemoryBytes();
  for (const Traffic& link : traffic_) bytes += link.MemoryBytes();
  for (const Track::Index& index : exposures_.indices) bytes += index.MemoryBytes();
  return bytes;
}

}  // namespace stallcast::gui
