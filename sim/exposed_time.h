// Exposed time by role as a timeline alone shows it, predicted or measured.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "traces/timeline.h"

namespace stallcast::sim {

/// Time of a step in which the compute lanes compute nothing.
struct ExposedTime {
  /// While an op of that role runs. Where several roles run at once each counts that time: together
  /// they may be more than `total`.
  std::array<Picoseconds, traces::kRoles> roles{};
  Picoseconds nothing{0};  ///< while no op of any role runs: launches, latencies, waiting
  Picoseconds total{0};
  Picoseconds role(traces::Role role) const { return roles[static_cast<size_t>(role)]; }
};

/// Exposed time of each step of traces::StepSpans. Nothing without traces::HasCompute().
///
/// An op runs from the first start to the last end of its rows of a step, whose number differs
/// between a prediction and a recording (a copy a piece, say). On a compute lane it computes unless
/// it moves data (MovesData). Rows of host threads count where their op has no other rows, as those
/// of a host gather: else they are calls. Calls and waits of the host (roles
/// host and sync) never count, nor do host rows without op or step, nor rows of lanes of kind
/// other: ranges and waits.
///
/// Metrics::roles of a prediction charge the same idle time by cause, along what the compute lane's
/// next op waited for, and so need the plan; what only happened to run meanwhile is not charged
/// there, and the launches and latencies that are `nothing` here are charged to host, to sync, or
/// to the role whose end they follow. Totals are equal but for the host's way from a step's last
/// op to its end.
std::map<int32_t, ExposedTime> ExposedBySteps(const traces::Timeline& timeline);

/// When the compute lanes compute, as ExposedBySteps() has it.
class ComputingTime {
 public:
  explicit ComputingTime(const traces::Timeline& timeline);
  /// How long of a stretch they compute nothing.
  Picoseconds Outside(Picoseconds start, Picoseconds end) const;

 private:
  struct Span {
    Picoseconds start, end;
    Picoseconds before;  ///< computed in earlier ones
  };
  Picoseconds Until(Picoseconds time) const;

  std::vector<Span> spans_;  ///< in time order, apart from each other
};

}  // namespace stallcast::sim
