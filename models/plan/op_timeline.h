// Timelines of a plan's ops, predicted or measured: both sides name and place their rows alike.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "models/plan/plan.h"
#include "traces/timeline.h"

namespace stallcast::plan {

class OpTimeline {
 public:
  /// With the plan's lanes. `plan` must outlive this.
  OpTimeline(const Plan& plan, traces::Timeline::Origin origin);

  /// A row on the op's lane, named by its kind.
  void AddRun(OpId id, Picoseconds start, Picoseconds end);
  /// The same of a part of its run, in which it moves so many bytes.
  void AddPart(OpId id, Picoseconds start, Picoseconds end, Bytes bytes);
  /// A row of the thread that issues a stream op: "call " before its kind, role host, no bytes.
  void AddCall(OpId id, Picoseconds start, Picoseconds end);

  traces::Timeline timeline;  ///< so far; title, notes and flows are the caller's

 private:
  using Names = std::array<std::optional<uint32_t>, kOpKinds>;  // by kind, once there is one

  uint32_t NameOf(Names& names, std::string_view before, const Work& work);
  void Add(OpId id, const Op& op, LaneId lane, traces::Role role, uint32_t name, Picoseconds start,
           Picoseconds end, Bytes bytes);

  const Plan& plan_;
  Names run_names_, call_names_;
};

}  // namespace stallcast::plan
