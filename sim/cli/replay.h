// stallcast replay: its options, the replays, and their record.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "sim/cli/import_file.h"
#include "sim/cli/output.h"
#include "sim/cli/progress.h"
#include "sim/grid.h"
#include "sim/replay.h"
#include "traces/format/schema.pb.h"

namespace stallcast::cli {

struct ReplayOptions {
  std::string recording;
  std::string machine;  ///< whose link copies meet on; empty: the recording's
  std::vector<std::string> changes, sets;
  std::vector<std::string> grid;  ///< axes: a setting, or a word in changes, and its values
  int number = 0;                 ///< of the timeline in the file, from 1; 0: the only one
  int top = 0;                    ///< ops to list
  ImportFlags flags;

  /// Adds all but the recording.
  void AddTo(CLI::App& command);
};

struct ReplayRun {
  /// What the changes up to one of them give.
  struct Stage {
    std::string change;
    sim::Replayed replayed;
  };
  /// One way to set the axes of a grid.
  struct Point {
    std::vector<std::string> values;  ///< of the axes
    std::vector<sim::ReplayChange> changes;
    sim::Replayed replayed;  ///< without its timeline
  };
  std::string recording, title, machine;
  sim::TimelineSummary recorded;
  std::vector<Stage> stages;  ///< the first without changes, and no other of a grid
  std::vector<sim::Axis> axes;
  std::vector<Point> points;
  std::vector<sim::ReplayTop> tops;
  std::vector<std::string> notes;  ///< of the file and the replay
  traces::proto::TraceInfo info;   ///< of the file

  /// Of the step, replayed without changes: a share of the recorded one.
  double ReplayError() const;
  /// The timeline of the last stage, with its changes and all notes.
  traces::Timeline Last() const;
};

/// Wrong options: usage Errors. Errors as Import(), FindProfile() and sim::Replay throw them.
ReplayRun RunReplay(const ReplayOptions& options, Progress& progress);
/// As `--format json` prints it.
Json RecordOf(const ReplayRun& run);
/// The ops with the largest exposed time, as lists of objects and for people.
Json TopRows(const std::vector<sim::ReplayTop>& tops);
std::string TopText(const std::vector<sim::ReplayTop>& tops);

}  // namespace stallcast::cli
