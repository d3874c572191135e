#include "models/methods/pariskv/levels.h"

#include <algorithm>
#include <boost/math/special_functions/beta.hpp>
#include <cmath>

namespace stallcast::methods {

double MagnitudeCdf(int dimension, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  return boost::math::ibeta(0.5, (dimension - 1) / 2.0, x * x);
}

// The density is 2 (1 - x^2)^((n - 3) / 2) / B(1/2, (n - 1) / 2), of which x times it integrates.
double MagnitudeMoment(int dimension, double a, double b) {
  const double half = (dimension - 1) / 2.0;
  const auto tail = [half](double x) { return std::pow(std::max(0.0, 1 - x * x), half); };
  return (tail(a) - tail(b)) / (half * boost::math::beta(0.5, half));
}

MagnitudeLevels LloydMaxLevels(int dimension) {
  constexpr int kMostRounds = 100'000;
  constexpr double kStill = 1e-15;
  MagnitudeLevels q;
  for (int t = 0; t < kMagnitudes - 1; ++t) q.threshold[t] = (t + 1.0) / kMagnitudes;
  for (int round = 0; round < kMostRounds; ++round) {
    for (int t = 0; t < kMagnitudes; ++t) {
      const double a = t == 0 ? 0 : q.threshold[t - 1];
      const double b = t == kMagnitudes - 1 ? 1 : q.threshold[t];
      q.level[t] = MagnitudeMoment(dimension, a, b) /
                   (MagnitudeCdf(dimension, b) - MagnitudeCdf(dimension, a));
    }
    double moved = 0;
    for (int t = 0; t < kMagnitudes - 1; ++t) {
      const double middle = (q.level[t] + q.level[t + 1]) / 2;
      moved = std::max(moved, std::abs(middle - q.threshold[t]));
      q.threshold[t] = middle;
    }
    if (moved < kStill) break;
  }
  return q;
}

}  // namespace stallcast::methods
