// SPDX-License-Identifier: GPL-3.0-or-later
// A timeline made ready to be drawn: immutable, so that workers build it and views share it.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "gui/timeline/exposure.h"
#include "gui/timeline/op_index.h"
#include "gui/timeline/track.h"
#include "gui/timeline/traffic.h"
#include "traces/timeline.h"

namespace stallcast::gui {

/// A lane, and where its rows are. Ops of a lane that overlap in time go to tracks of their own; no
/// row is left out.
struct ModelLane {
  int32_t first_track = 0, tracks = 0;        ///< no tracks: the lane has no rows
  int64_t first_row = 0, rows = 0;            ///< of all its tracks
  int64_t first_exposure = 0, exposures = 0;  ///< compute lanes only
};

struct ModelTrack {
  int32_t lane = 0;
  int64_t first_row = 0, rows = 0;
};

class TimelineModel {
 public:
  /// Takes the timeline over. Throws Error when columns are faulty (traces::FirstFault), or beyond
  /// what can be drawn: 2^31 rows, 13 days. Throws sim::Cancelled soon after `stop` was requested.
  static std::shared_ptr<const TimelineModel> Build(traces::Timeline timeline,
                                                    const std::stop_token& stop = {});
  /// The same rows with these waits instead of their own, and what the compute lanes were exposed
  /// to by them (for a recording of a plan whose prediction has them). Columns are shared.
  static std::shared_ptr<const TimelineModel> WithWaits(
      const TimelineModel& model, std::span<const traces::TimelineFlow> waits);

  /// Rows are ordered by lane, track and start; the flows have moved to ops().
  const traces::Timeline& timeline() const { return *timeline_; }
  int64_t rows() const { return timeline_->rows(); }
  Picoseconds begin() const { return begin_; }  ///< first start; 0 without rows
  Picoseconds end() const { return end_; }      ///< last end
  Picoseconds Start(int64_t row) const { return timeline_->start[static_cast<size_t>(row)]; }
  Picoseconds End(int64_t row) const {
    return Start(row) + timeline_->duration[static_cast<size_t>(row)];
  }
  const std::string& NameOf(int64_t row) const {
    return timeline_->names[timeline_->name[static_cast<size_t>(row)]];
  }
  /// A row of a host lane: the call of an op, or the host's own work.
  bool IsCall(int64_t row) const {
    return timeline_->lanes[timeline_->lane[static_cast<size_t>(row)]].kind ==
           traces::LaneKind::kHost;
  }

  /// By the timeline's lane numbers.
  const std::vector<ModelLane>& lanes() const { return lanes_; }
  const std::vector<ModelTrack>& tracks() const { return tracks_; }
  int32_t TrackOf(int64_t row) const;
  Track Ops(int32_t track) const;

  /// What a compute lane waited for, ascending; its first_row() is the lane's first_exposure.
  Track ExposureTrack(int32_t lane) const;
  Exposure exposure(int64_t index) const;

  /// What all tracks but the host's moved before a time, and in all; the lane that moved most of
  /// it, -1: none moves anything.
  double TrafficBefore(Way way, Picoseconds time) const;
  int32_t TrafficLane(Way way) const { return traffic_lanes_[static_cast<size_t>(way)]; }

  const OpIndex& ops() const { return ops_; }
  /// Rows of the same op, step and kind (run or call), ascending; empty for a row without op id.
  std::span<const uint32_t> RowsLike(int64_t row) const;
  /// First start and last end of those rows.
  struct Span {
    Picoseconds start{0}, end{0};
    int64_t first_row = 0;  ///< that starts first
  };
  Span SpanOf(int64_t row) const;
  /// Idle time of the row's lane just before it.
  Picoseconds IdleBefore(int64_t row) const;

  /// traces::StepSpans, ascending in number and time.
  struct Step {
    int32_t step = 0;
    Picoseconds begin{0}, end{0};
  };
  const std::vector<Step>& steps() const { return steps_; }
  const Step* FindStep(int32_t number) const;  ///< null: there is none

  /// Of everything that the model holds.
  int64_t MemoryBytes() const;

 private:
  TimelineModel() = default;
  void FindSteps();
  void FindTraffic();
  void FindAllExposures();

  std::shared_ptr<const traces::Timeline> timeline_;
  Picoseconds begin_{0}, end_{0};
  std::vector<ModelLane> lanes_;
  std::vector<ModelTrack> tracks_;
  std::vector<Track::Index> indices_;  // by track
  std::vector<Traffic> traffic_;       // by track
  std::array<int32_t, kWays.size()> traffic_lanes_{-1, -1, -1};
  OpIndex ops_;
  struct Exposures {
    std::vector<Picoseconds> start, duration;
    std::vector<traces::Role> role;
    std::vector<int32_t> cause;
    std::vector<Track::Index> indices;  // by lane
  } exposures_;
  std::vector<Step> steps_;
};

}  // namespace stallcast::gui
