// Predicted against measured, op by op.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/exposed_time.h"
#include "traces/timeline.h"

namespace stallcast::sim {

/// The two sides of a comparison cannot be mixed up.
template <class T>
struct Predicted {
  T value{};
};
template <class T>
struct Measured {
  T value{};
};

/// A time on both sides.
struct TimePair {
  Predicted<Picoseconds> predicted;
  Measured<Picoseconds> measured;

  /// Predicted minus measured.
  Picoseconds residual() const { return predicted.value - measured.value; }
  /// Residual over measured; 0 when both are 0, infinite when only measured is.
  double relative() const;
};

/// One op's run on its stream, or what a host thread does of it, found on both sides. An op that a
/// side shows as several rows (a copy a piece, say) counts from its first start to its last end.
struct MatchedOp {
  int32_t step = -1;
  int64_t op = -1;
  bool call = false;  ///< on a host lane: its call, or work of the host itself such as a gather
  int16_t layer = -1;
  traces::Role role = traces::Role::kOther;
  std::string name;  ///< op kind, as the predicted side calls it
  TimePair start;    ///< by each side's own clock
  TimePair duration;
  TimePair idle;  ///< of its lane just before it: a wait or a gap
};

/// How well a group of ops is predicted. Medians, P90 and worst are of absolute values.
struct ResidualSummary {
  std::string group;
  int64_t ops = 0;
  TimePair total;  ///< durations added up
  TimePair idle;   ///< idle times before them added up
  Picoseconds median{0}, p90{0}, worst{0};
  double median_relative = 0, p90_relative = 0, worst_relative = 0;
  int32_t worst_step = -1;  ///< where the worst residual (in time) is
  int64_t worst_op = -1;
};

enum class GroupBy : uint8_t { kName, kRole, kLayer };

struct StepTime {
  int32_t step = 0;
  TimePair time;
};

/// ExposedTime, mean over the steps on both sides.
struct ExposedPair {
  std::array<TimePair, traces::kRoles> roles{};
  TimePair nothing, total;
  const TimePair& role(traces::Role role) const { return roles[static_cast<size_t>(role)]; }
};
/// How near a predicted exposed time should be to the measured: within a share of it, or a time.
inline constexpr double kExposedGoalShare = 0.10;
inline constexpr Picoseconds kExposedGoalTime{50'000'000};
bool WithinExposedGoal(const TimePair& exposed);

struct Comparison {
  std::vector<MatchedOp> ops;  ///< by step, op, run before call
  /// Of their runs, how many have another role or layer on the other side, as far as both sides
  /// know them: none where both sides are of one plan.
  int64_t of_other_plans = 0;
  std::vector<StepTime> steps;   ///< on both sides, ascending
  double median_step_error = 0;  ///< of the absolute relative errors
  double worst_step_error = 0;
  int32_t worst_step = -1;
  /// None without a step on both sides, or where a side has no compute lane.
  std::optional<ExposedPair> exposed;
  /// Ops on one side only, counted by name; those without op id or step likewise.
  Predicted<std::map<std::string, int64_t>> only_predicted;
  Measured<std::map<std::string, int64_t>> only_measured;
};

/// Matches rows by step, op id and whether they are a call (host lane) or a run (any other). Steps
/// are those of traces::StepSpans. Errors: a side without rows, or nothing in common.
Comparison Compare(Predicted<const traces::Timeline*> predicted,
                   Measured<const traces::Timeline*> measured);

/// Groups of the matched ops, the largest measured total first. Calls form groups of their own.
std::vector<ResidualSummary> Summarize(const Comparison& comparison, GroupBy by);

}  // namespace stallcast::sim
