// What a calibration's timed shapes of a kernel kind say of others.
#pragma once

#include <vector>

#include "models/hardware/profile.h"
#include "models/plan/work.h"

namespace stallcast::hardware {

/// Holds the points of a kind. `factor`, which a kernel's law is multiplied by, is exp of the mean
/// of log(factor) over the points, each with weight 1/d^4, d being its distance in octaves of the
/// shape's sizes, and of a 0 at two octaves; `host_factor` likewise, `drag` the mean itself. So a
/// timed shape costs what was timed, one between its neighbours what they suggest, and one far from
/// all what the law says. A size beyond all timed ones counts as the largest of them: kernels
/// saturate.
class TimedPoints {
 public:
  TimedPoints() = default;
  explicit TimedPoints(std::vector<KernelPoint> points);
  /// All of a point that has this shape; of another all but `seconds`.
  KernelPoint At(const plan::KernelShape& shape) const;

 private:
  // A plan has thousands of shapes: logarithms are taken once a point, not once a pair.
  struct Logs {
    plan::KernelShape octaves{};
    double factor = 0, host_factor = 0;
  };
  std::vector<KernelPoint> points_;
  std::vector<Logs> logs_;
  plan::KernelShape most_{};  ///< octaves
};

}  // namespace stallcast::hardware
