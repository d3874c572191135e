// The plan of a recording: its ops, and what each waits for. Internal to sim/replay.cc.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/replay.h"
#include "traces/timeline.h"

namespace stallcast::sim {

enum class CopyWay : uint8_t { kNone, kToGpu, kToHost };

/// Times are picoseconds. Lags are counted from the begin or the end of what is waited for.
struct ReplayOp {
  int64_t row = -1;
  uint16_t lane = 0;
  bool host = false;
  bool sync = false;       ///< a host op that ends when its waits have, and itself takes `duration`
  bool engine = false;     ///< holds the copy engine of its way
  bool removed = false;    ///< takes no time and is not drawn
  bool calls_kept = true;  ///< else its call takes no time
  CopyWay way = CopyWay::kNone;
  uint8_t gpu = 0;
  uint16_t kind = 0;           ///< in ReplayPlan::kinds
  int32_t chunks = 1;          ///< that it is split into
  int64_t start = 0, end = 0;  ///< recorded
  int64_t duration = 0;        ///< of a copy: alone on the link
  int64_t fixed = 0;           ///< of that, what no link speeds up
  double moved = 1;            ///< share of a copy's recorded bytes that it still moves
  int64_t behind = -1;         ///< the op before it on its lane, or -1
  int64_t behind_lag = 0;
  bool behind_start = false;           ///< the lag is counted from that op's begin: they overlap
  int64_t call = -1;                   ///< the host op that launches it, or -1
  int64_t call_lag = 0;                ///< from its begin
  uint32_t first_wait = 0, waits = 0;  ///< in ReplayPlan::waits
  int32_t meeting = -1;                ///< collective that it is a rank of
};

struct ReplayWait {
  int64_t op = -1;
  int64_t lag = 0;
};

/// Notes of what was found on the way.
struct ReplayFindings {
  int64_t waits_named = 0, waits_inferred = 0, waits_unknown = 0, without_call = 0, work = 0,
          blocking = 0;
  double unexplained = 0, idle_kept = 0, busy = 0;  // seconds
  int64_t threads = 0;
  bool engines_overlap = false;
};

struct ReplayPlan {
  const traces::Timeline* recording = nullptr;
  ReplayMachine machine;
  std::vector<ReplayOp> ops;  ///< by recorded begin; each after all that it waits for
  std::vector<ReplayWait> waits;
  std::vector<std::string> kinds;
  std::vector<std::string> notes;
  std::vector<std::string> new_lanes;  ///< behind the recording's: streams that changes add
  int64_t gap = 0;                     ///< usual, of a stream between two ops
  int64_t launch = 0;                  ///< usual, from a call's begin to its op's
};

ReplayPlan MakeReplayPlan(const traces::Timeline& recording, const ReplayMachine& machine);

}  // namespace stallcast::sim
