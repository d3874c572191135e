// Which ops need a CUDA event, and which host waits can do with the stream.
#pragma once

#include <vector>

#include "models/plan/plan.h"

namespace stallcast::plan {

struct EventUse {
  /// By op: its issuer records an event behind it, because another stream or a host waits for it
  /// through one.
  std::vector<bool> recorded;
  /// By entry of Plan::waits: a host sync that waits for the stream as a whole, which it may where
  /// its own thread alone issues to the stream and the op is the last one issued.
  std::vector<bool> whole_stream;
};
EventUse FindEvents(const Plan& plan);

}  // namespace stallcast::plan
