// SPDX-License-Identifier: GPL-3.0-or-later
// Replays a recording whenever its changes change, beside the window.
#pragma once

#include <QObject>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gui/timeline/timeline_model.h"
#include "gui/whatif/latest_job.h"
#include "gui/whatif/replay_filters.h"
#include "gui/whatif/replay_request.h"
#include "sim/replay.h"
#include "traces/common/error.h"

namespace stallcast::gui {

/// What a replay gives of a step.
struct ReplayFigures {
  sim::TimelineSummary summary;
  std::map<std::string, Picoseconds> critical;
  Picoseconds ceiling{0};
};

/// A recording, and what it is when nothing is changed.
struct ReplayedRecording {
  std::shared_ptr<const TimelineModel> recording;
  sim::TimelineSummary recorded;
  ReplayFigures unchanged;
  std::shared_ptr<const TimelineModel> model;  ///< of the unchanged replay
  std::vector<std::string> notes;
  RecordingWords words;
  /// Of the step, replayed unchanged: a share of the recorded one.
  double ReplayError() const;
};

struct ReplayResult {
  /// What one of the applied changes does to the step, behind those before it.
  struct Effect {
    Picoseconds step{0};
    int64_t ops = 0;  ///< that it matches
  };
  ReplayRequest request;
  std::shared_ptr<const ReplayedRecording> of;
  ReplayFigures figures;
  std::shared_ptr<const TimelineModel> model;  ///< null: nothing is changed
  std::vector<Effect> effects;                 ///< by request.Applied()
  std::chrono::nanoseconds took{0};            ///< of the replay and its model
};
using SharedReplay = std::shared_ptr<const ReplayResult>;
using SharedTop = std::shared_ptr<const std::vector<sim::ReplayTop>>;

/// Signals come in the thread of this object. Of a request that was superseded none comes any more.
class ReplayWorker : public QObject {
  Q_OBJECT

 public:
  using Model = std::shared_ptr<const TimelineModel>;
  static constexpr size_t kTop = 10;               ///< ops that are ranked
  static constexpr int64_t kMostRows = 3'000'000;  ///< more take too long, and too much memory

  explicit ReplayWorker(QObject* parent = nullptr);
  ~ReplayWorker() override;

  /// The recording, and the machine that it names; null: none. Cancels what is under way.
  void SetRecording(const Model& recording, const std::string& machine = {});
  const Model& recording() const { return recording_; }

  /// Replays; then, unless superseded, ranks the recording's ops. Does nothing without a recording.
  void Run(const ReplayRequest& request);
  void Cancel();
  bool busy() const { return busy_; }

 Q_SIGNALS:
  void Replayed(stallcast::gui::SharedReplay result);
  /// The ops with the largest exposed time, and the gain without each: of the unchanged recording,
  /// and once for each.
  void Ranked(stallcast::gui::SharedTop top);
  /// What is asked for cannot be replayed.
  void Failed(const stallcast::Error& error);
  /// Nor can the recording, whatever is asked for.
  void NotReplayable(const stallcast::Error& error);
  void BusyChanged(bool busy);

 private:
  struct Opened;  // of the job's thread

  void Post(uint64_t ticket, std::function<void()> deliver);
  void SetBusy(bool busy);

  Model recording_;
  std::shared_ptr<Opened> opened_;
  uint64_t latest_ = 0;
  bool busy_ = false;
  LatestJob job_;  // last: stops before the rest goes
};

}  // namespace stallcast::gui
