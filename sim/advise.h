// The best configuration for a workload: a search over methods, their parameters, machines and
// batches.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/grid.h"
#include "sim/requirements.h"

namespace stallcast::sim {

enum class Objective : uint8_t {
  kTokensPerSecond,  ///< most
  kStep,             ///< shortest mean step
  kCost,             ///< least money a million tokens
};

struct AdviseRequest {
  PredictRequest base;  ///< model, context, steps; steps 0: all of the trace's
  std::vector<std::string> methods, machines;
  std::vector<std::string> batches;  ///< as an axis of a grid takes them
  std::vector<Axis> params;          ///< searched instead of SearchedParams() of the same name
  Requirements required;
  Objective objective = Objective::kTokensPerSecond;
  std::map<std::string, double> price_per_hour;  ///< of a GPU, by machine
  /// A grid of more points is searched by predictions of few steps first.
  int64_t most_exact = 2000;
  /// Of each round of such a search, so that a near tie is not lost.
  int64_t least_kept = 200;
};

/// Values of parameters that are searched unless others are given, for each method that has the
/// parameter and takes the value: budgets, thresholds, recall paths.
const std::vector<Axis>& SearchedParams();

struct Candidate {
  GridPoint point;
  Prediction prediction;
  double cost = 0;  ///< money a million tokens; NaN without a price
};

/// What would be had without one of the requirements, all others kept.
struct Relaxation {
  enum class What : uint8_t { kMass, kGpu, kStep } what = What::kMass;
  size_t best = 0;     ///< the best candidate that misses only this one
  size_t nearest = 0;  ///< of those better than the best advice, the one that misses it least
};

struct Advice {
  std::vector<Candidate> candidates;      ///< all whose last prediction had all steps
  std::vector<size_t> good;               ///< those that meet all that is required, best first
  std::vector<size_t> front;              ///< fitting, not beaten in objective, GPU memory and mass
  std::vector<Relaxation> relaxations;    ///< of requirements that bind
  std::map<std::string, int64_t> missed;  ///< candidates that miss each requirement
  int64_t points = 0;                     ///< of the grid
  int64_t predictions = 0;                ///< of any number of steps
  std::map<std::string, int64_t> failed;  ///< points without a result, by reason
  bool exact = true;                      ///< each point was predicted with all steps
};

/// The value by which candidates are compared: less is better.
double ObjectiveOf(const Candidate& candidate, Objective objective);

/// Every point of the grid of `request`: the methods' searched parameters, machines, batches.
std::vector<GridPoint> AdviseGrid(const AdviseRequest& request);

/// Usage Error where the objective is cost and a machine has no price.
Advice Advise(Predictor& predictor, const AdviseRequest& request,
              const std::function<void(double share)>& progress = {});

}  // namespace stallcast::sim
