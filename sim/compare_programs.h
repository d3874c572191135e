// Two timelines of any programs: what a step of each is made of, and where they part.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "sim/timeline_summary.h"
#include "traces/timeline.h"

namespace stallcast::sim {

/// Two timelines whose ops have nothing in common but what they do: predictions of two methods, two
/// recordings, a prediction and a program of others. Op numbers mean nothing between them.
struct ProgramComparison {
  struct Kind {
    KindTotals a, b;
    int64_t matched = 0;             ///< ops on both sides
    int64_t only_a = 0, only_b = 0;  ///< those left
  };
  TimelineSummary a, b;
  std::map<std::string, Kind> kinds;  ///< by KindOfRow()
  int64_t steps = 0;                  ///< compared: the first of each side, one by one
  bool by_layer = false;              ///< both sides know the layers of their ops
  /// The kind whose exposed time differs most, or empty; and by how much it is longer in `b`.
  std::string cause;
  Picoseconds cause_longer{0};
};

/// Matches work (IsWork()) of the i-th steps by layer, kind and order. Error: a side without a
/// step.
ProgramComparison ComparePrograms(const traces::Timeline& a, const traces::Timeline& b);

}  // namespace stallcast::sim
