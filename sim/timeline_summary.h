// What a timeline of any program shows: its steps, and what they are made of.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "traces/timeline.h"

namespace stallcast::sim {

/// What a row does, alike for plans and for programs of others: "recall", "offload", "sync",
/// "selection" and "index" by its role, "gemm", "attention", ... by its name (traces::KernelKind).
std::string KindOfRow(const traces::Timeline& timeline, int64_t row);

/// Whether a row is work that runs: on a stream or copy engine, or of a host thread itself as a
/// gather is. Ranges, waits and calls are not.
bool IsWork(const traces::Timeline& timeline, int64_t row);

/// Of one kind, mean over the steps.
struct KindTotals {
  double ops = 0;
  double bytes = 0;
  Picoseconds busy{0};     ///< durations added up
  Picoseconds exposed{0};  ///< while no compute lane computes, see ExposedBySteps()
  double Rate() const {    ///< bytes/s while it runs; 0: it moves none
    return busy.count() > 0 ? bytes / Seconds(busy) : 0;
  }
};

struct TimelineSummary {
  std::vector<std::pair<int32_t, Picoseconds>> steps;  ///< of traces::StepSpans
  Picoseconds step{0};                                 ///< their median
  std::map<std::string, KindTotals> kinds;             ///< by KindOfRow()
  std::map<std::string, KindTotals> copies;            ///< by name and lane; exposed is not told
  Picoseconds computing{0};                            ///< a step: of the compute lanes
  Picoseconds exposed{0};                              ///< the rest of it
  Picoseconds nothing{0};                              ///< of that, while nothing runs
  /// From a call that starts a kernel or copy to the next of its host thread: the median of a step,
  /// of these the median; 0: too few to tell.
  Picoseconds launch_interval{0};
  bool has_compute = false;
};
/// Without a step all but `has_compute` is empty.
TimelineSummary Summarize(const traces::Timeline& timeline);

}  // namespace stallcast::sim
