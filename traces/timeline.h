// A timeline, predicted or measured: columns, one row a slice.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "traces/common/units.h"

namespace stallcast::traces {

/// What an op is for. Exposed time is charged to roles.
enum class Role : uint8_t {
  kOther = 0,  ///< imported slices of unknown purpose
  kProjection,
  kAttention,
  kMlp,
  kIndex,
  kSelection,
  kRecall,
  kLayout,
  kOffload,
  kSync,
  kHost,
};
inline constexpr int kRoles = 11;
std::string_view Name(Role role);
/// Whether what runs on a stream for it moves data rather than computes: recall, offload, and sync,
/// the copy of a flag or a token that the host waits for.
constexpr bool MovesData(Role role) {
  return role == Role::kRecall || role == Role::kOffload || role == Role::kSync;
}

enum class LaneKind : uint8_t { kOther = 0, kHost, kStream, kCopyEngine };
std::string_view Name(LaneKind kind);

struct TimelineLane {
  std::string name;
  LaneKind kind = LaneKind::kOther;
  bool compute = false;  ///< the lane whose idle time is exposed time
  bool operator==(const TimelineLane&) const = default;
};

/// Why a later op had to wait for an earlier one.
struct TimelineFlow {
  int64_t from_op = 0;
  int64_t to_op = 0;
  bool operator==(const TimelineFlow&) const = default;
};

/// Rows are ordered by start within a lane. An op of a stream usually gives two rows with one op
/// id: its call on the host lane and its run on the stream. `op` is -1 and `step` is -1 where
/// unknown.
struct Timeline {
  enum class Origin : uint8_t { kImported = 0, kPredicted, kMeasured };
  Origin origin = Origin::kImported;
  std::string title;               ///< method, model, machine, context
  std::vector<std::string> notes;  ///< anything that qualifies it: projected, derived, dropped, ...
  std::vector<TimelineLane> lanes;
  std::vector<std::string> names;  ///< interned; index: `name`

  std::vector<uint16_t> lane;
  std::vector<int64_t> op;
  std::vector<int32_t> step;
  std::vector<int16_t> layer;  ///< -1: none
  std::vector<Role> role;
  std::vector<uint32_t> name;
  std::vector<Picoseconds> start;
  std::vector<Picoseconds> duration;
  std::vector<int64_t> bytes;  ///< moved, 0 where none
  /// Node of the CUDA graph that ran the row, 0 where none; empty where no row has one.
  std::vector<int64_t> graph_node;
  std::vector<TimelineFlow> flows;

  int64_t rows() const { return static_cast<int64_t>(start.size()); }
  bool operator==(const Timeline&) const = default;
};
std::string_view Name(Timeline::Origin origin);

/// What is wrong with the columns (lengths, indices, times), or empty. Files and exports hold only
/// timelines without a fault.
std::string FirstFault(const Timeline& timeline);

/// Restores the order of rows within lanes where it is lost, sorting all rows by start and keeping
/// those of one start as they are; else changes nothing. For timelines without a fault.
void RestoreOrder(Timeline* timeline);

}  // namespace stallcast::traces
