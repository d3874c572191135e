// Methods that drop tokens for good: what a head keeps, step by step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "models/methods/layer_tensors.h"
#include "traces/access_log.h"

namespace stallcast::methods {

/// One head's cache, which holds token ids in ascending order. Heads do not see one another.
class HeadKeeper {
 public:
  virtual ~HeadKeeper() = default;
  /// What the head keeps of the prompt.
  virtual std::vector<uint32_t> AfterPrefill() = 0;
  /// Drops what must go before the step's token comes.
  virtual void MakeRoom(int /*step*/, std::vector<uint32_t>& /*kept*/) {}
  /// The step has attended all of `kept`, its own token last.
  virtual void Attended(int /*step*/, std::span<const uint32_t> /*kept*/) {}
};

/// Replays all steps over `keepers`, one a selection head; each step attends what is kept.
/// `begin_step`, if any, is called first in each.
void ReplayKeepers(const LayerTensors& tensors,
                   std::span<const std::unique_ptr<HeadKeeper>> keepers,
                   const std::function<void(int step)>& begin_step, traces::LayerAccess& access,
                   AttendedRanges& attended);

/// The tokens whose queries observe the prompt: its last `window` ones, or as many as the trace
/// has; none: the first decoded one.
struct ObservationWindow {
  ObservationWindow(const LayerTensors& tensors, int64_t window);
  int64_t first, end;
};

}  // namespace stallcast::methods
