// Down a layer, op after op: where a prediction and a run part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/compare.h"

namespace stallcast::sim {

/// Means over the layers of all steps that have the same ops in the same order, the commonest there
/// is: what one op takes too long, all that follow it begin too late.
struct TypicalLayer {
  struct Place {
    std::string op;       ///< its kind
    TimePair begin{};     ///< from the begin of the layer's first op; below 0: begun before
    TimePair duration{};  ///< on its lane
    TimePair idle{};      ///< of its lane just before it
    /// How much later than predicted it ends, counted from the layer's begin.
    Picoseconds start_delay() const { return -(begin.residual() + duration.residual()); }
  };
  std::vector<Place> places;  ///< in the plan's order; none where no op has a layer
  int64_t layers = 0;         ///< that are like this
  int64_t of = 0;             ///< that there are
  /// From its begin to the next layer's, where the step has one; 0: nowhere.
  TimePair period;
};

/// Calls are left out.
TypicalLayer FindTypicalLayer(const Comparison& comparison);

}  // namespace stallcast::sim
