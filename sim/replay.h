// A recording of any program run again: as it was, or with the machine or the program changed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/timeline_summary.h"
#include "traces/timeline.h"

namespace stallcast::hardware {
struct Profile;
}

namespace stallcast::sim {

/// What a change may do to a recording; each has a row in ReplayVerbs().
enum class ReplayVerb : uint8_t {
  kSet,
  kScale,
  kRemove,
  kMove,
  kBatch,
  kZeroCopy,
  kSplit,
  kGraph,
  kUnwait,
  kReplace,
};
struct ReplayVerbInfo {
  ReplayVerb verb;
  std::string_view name;
  std::string_view arguments;  ///< "FILTER FACTOR"
  std::string_view help;
};
std::span<const ReplayVerbInfo> ReplayVerbs();
/// What `set` takes: "link.h2d", with help.
std::span<const std::pair<std::string_view, std::string_view>> ReplaySettings();

/// Terms of a filter: "kind", with help.
std::span<const std::pair<std::string_view, std::string_view>> ReplayFields();

/// One change, as "scale kind=offload 0.5" or "set link.h2d 2x". A FILTER is `all`, or terms of
/// ReplayFields() joined by commas that all must hold. Texts are alternatives joined by |: kind=,
/// role=, name= and lane=. The last two fit by a part of the name, or in quotes by all of it. The
/// other terms are a number or a range, 3-7 or 3-.
struct ReplayChange {
  ReplayVerb verb = ReplayVerb::kSet;
  std::string filter;    ///< of kSet: the setting
  std::string argument;  ///< as written
  double value = 0;      ///< of it, where it is a number; kReplace: s a step, below 0: not known
  std::string text;      ///< all of it
  std::string note;      ///< what the value is from; kReplace only
};
/// Usage Error: no such verb, setting, field or value.
ReplayChange ParseReplayChange(std::string_view text);

/// What the machine model knows of how copies meet. Rates are relative to one direction alone.
struct ReplayMachine {
  std::string name = "no machine";
  double both_h2d = 1, both_d2h = 1;  ///< while the other direction runs too
  double zero_copy = 1;               ///< of a gather that reads the host's memory
  Picoseconds graph_gap{-1};          ///< between kernels of a CUDA graph; below 0: as on a stream
};
ReplayMachine MakeReplayMachine(const hardware::Profile& profile);
/// The shipped machine that a recording names, or h200 where it names none.
std::string MachineOfRecording(std::string_view recorded);

/// Where no row has a step, the recording as a whole becomes one; false: there are steps.
bool TakeAsOneStep(traces::Timeline* recording);

struct Replayed {
  traces::Timeline timeline;  ///< the recording's lanes and rows at their new times
  TimelineSummary summary;    ///< of it
  std::map<std::string, Picoseconds> critical;  ///< a step: the critical path by kind
  /// A step: kernels of the busiest stream, or copies of either direction, one after the other at
  /// full rate, whichever is longest.
  Picoseconds ceiling{0};
  int64_t changed = 0;  ///< ops that the last change matched
};

/// Ops of one name on one lane.
struct ReplayTop {
  std::string name, lane, kind;
  double ops = 0;          ///< a step
  Picoseconds busy{0};     ///< a step
  Picoseconds exposed{0};  ///< a step, while no compute lane computes
  Picoseconds gain{0};     ///< what a step (median) loses without them
};

/// The plan of a recording. Host threads, streams and copy engines are lanes; kernels, copies,
/// calls and the host's own time between calls are ops. An op of a stream begins when the op before
/// it on the stream has ended, its call has been made and what it waits for has ended; host threads
/// go from call to call, and block in synchronisations and copies that are blocking. Waits come
/// from synchronisation records and flows; where these do not name the op, it is inferred, see
/// notes(). Times between an op's begin and what let it begin are those recorded, so that without
/// changes everything happens when it did. Copies of a direction follow one another on its engine;
/// while the other direction runs too they are as slow as the machine's link says, from a rate
/// alone that gives the recorded time. Collectives of several GPUs end behind the last one's begin.
class Replay {
 public:
  /// Error: the timeline has no work on a GPU, or no step.
  Replay(const traces::Timeline& recording, const ReplayMachine& machine);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// Applies the changes in turn. Error: a change matches nothing. Throws Cancelled soon after
  /// `stop` was requested, as Top() does.
  Replayed Run(std::span<const ReplayChange> changes = {}, const std::stop_token& stop = {}) const;
  /// The `count` groups with the largest exposed time, ties by time busy. `unchanged` is what Run()
  /// without changes gives.
  std::vector<ReplayTop> Top(size_t count, const Replayed& unchanged,
                             const std::stop_token& stop = {}) const;
  /// What was inferred or assumed, and what cannot be replayed with its share of the time.
  const std::vector<std::string>& notes() const;

 private:
  struct Plan;
  std::unique_ptr<const Plan> plan_;
};

}  // namespace stallcast::sim
