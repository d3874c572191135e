// Many predictions of one trace, over all cores, into a results file.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "sim/grid.h"
#include "sim/result_store.h"

namespace stallcast::sim {

struct SweepCounts {
  int64_t done = 0;     ///< predicted now
  int64_t failed = 0;   ///< tried now, without a result
  int64_t present = 0;  ///< were there already
};

/// Predicts every point that `store` does not hold yet (every point where `again`) and stores each
/// as soon as it is finished, so that a sweep that was stopped goes on where it was. A point that
/// cannot be predicted is stored as failed, with the message. `progress` is called from any
/// thread, one call at a time, with the points finished so far (present ones included).
SweepCounts Sweep(Predictor& predictor, std::span<const GridPoint> points, ResultStore& store,
                  bool again, const std::function<void(int64_t finished)>& progress = {});

/// Which of `points` no other one beats: at most as large in each coordinate and smaller in one.
/// A point with a NaN is never on the front.
std::vector<bool> ParetoFront(std::span<const std::vector<double>> points);

}  // namespace stallcast::sim
