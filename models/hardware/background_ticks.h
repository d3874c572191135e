// When copies of background traffic come, in the engine and beside a measured run.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>

#include "models/plan/work.h"
#include "traces/common/units.h"

namespace stallcast::hardware {

/// At random and independently of one another, as those of programs that know nothing of the run: a
/// Poisson process a direction, the same each time. Copies at even intervals would fall in step
/// with a run's layers, and what the run then meets would hang on a microsecond of a layer's time.
class BackgroundTicks {
 public:
  /// `period`: from one copy to the next in the mean.
  BackgroundTicks(plan::Direction direction, Picoseconds period)
      : period_(period),
        random_(std::mt19937_64::default_seed + static_cast<uint64_t>(direction)) {}
  /// From one copy to the next, the first from the start.
  Picoseconds Next() {
    // By hand: the standard's exponential_distribution may differ between libraries.
    const double uniform = (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53;
    return Picoseconds(std::llround(-std::log(uniform) * static_cast<double>(period_.count())));
  }

 private:
  Picoseconds period_;
  std::mt19937_64 random_;
};

}  // namespace stallcast::hardware
