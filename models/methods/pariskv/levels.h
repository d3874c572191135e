// The data-independent quantiser of ParisKV's direction codes (paper, appendix B.1).
#pragma once

#include <array>

namespace stallcast::methods {

inline constexpr int kMagnitudes = 8;  ///< 3 bits

/// Lloyd-Max quantiser of X = |u_j|, a coordinate of a uniformly random unit vector of `dimension`
/// dimensions, whose square is Beta(1/2, (dimension - 1) / 2): levels are the means of X between
/// thresholds, thresholds the midpoints of levels. Bin t is [threshold[t - 1], threshold[t]).
struct MagnitudeLevels {
  std::array<double, kMagnitudes> level;
  std::array<double, kMagnitudes - 1> threshold;
};

/// Iterated until nothing moves. `dimension` at least 2.
MagnitudeLevels LloydMaxLevels(int dimension);

/// P(X < x) and E(X; a <= X < b), in closed form.
double MagnitudeCdf(int dimension, double x);
double MagnitudeMoment(int dimension, double a, double b);

}  // namespace stallcast::methods
