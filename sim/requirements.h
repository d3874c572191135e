// What a configuration has to reach to be recommended.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "sim/predict.h"

namespace stallcast::sim {

/// The figures of a configuration that requirements are about.
struct Figures {
  bool fits = true;
  double step_ms = 0;         ///< mean step
  double attention_mass = 0;  ///< NaN: not known
  double gpu_bytes = 0;
};
Figures FiguresOf(const Prediction& prediction);

struct Requirements {
  static constexpr double kAny = std::numeric_limits<double>::infinity();

  double min_mass = 0.95;  ///< share of the true attention weight; 0: any, also where not known
  double max_gpu_bytes = kAny;
  double max_step_ms = kAny;

  bool MassEnough(const Figures& of) const;
  /// A mass with three decimals, or as many as tell it from what is required; - for NaN.
  std::string MassText(double mass) const;
  bool GpuEnough(const Figures& of) const { return of.gpu_bytes <= max_gpu_bytes; }
  bool StepEnough(const Figures& of) const { return of.step_ms <= max_step_ms; }
  /// All of them, on a machine that it fits.
  bool Met(const Figures& of) const;
  /// How far off, as the sum of the shares by which each is missed; 0 where all are met. What does
  /// not fit its machine, and a mass that is not known, count 1.
  double Shortfall(const Figures& of) const;
  /// Each one missed: "mass 0.907 is below 0.95".
  std::vector<std::string> Missed(const Figures& of) const;
  /// All asked for: "mass 0.95 or more, at most 24 GiB of GPU memory".
  std::string Describe() const;
};

/// Index of the fastest that meets them all; the size where none does.
size_t FastestThatMeets(const std::vector<Figures>& all, const Requirements& required);
/// Index of the one with the least shortfall, the fastest of several; the size of an empty one.
size_t Nearest(const std::vector<Figures>& all, const Requirements& required);

}  // namespace stallcast::sim
