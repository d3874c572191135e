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

/// How much of a grid is predicted.
enum class Extent : uint8_t {
  kBySize,  ///< all of a small grid, a search of a larger one
  kAll,
  kSearch,
};

struct AdviseRequest {
  PredictRequest base;  ///< model, context, steps; steps 0: all of the trace's
  std::vector<std::string> methods, machines;
  std::vector<std::string> batches;  ///< as an axis of a grid takes them
  std::vector<Axis> params;          ///< searched instead of SearchedParams() of the same name
  Requirements required;
  Objective objective = Objective::kTokensPerSecond;
  std::map<std::string, double> price_per_hour;  ///< of a GPU, by machine
  Extent extent = Extent::kBySize;
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
  std::vector<Candidate> candidates;      ///< all that were predicted in full
  std::vector<size_t> good;               ///< those that meet all that is required, best first
  std::vector<size_t> front;              ///< fitting, not beaten in objective, GPU memory and mass
  std::vector<Relaxation> relaxations;    ///< of requirements that bind
  std::map<std::string, int64_t> missed;  ///< candidates that miss each requirement
  /// Points that were known without a prediction to miss something, by the first that they miss.
  std::map<std::string, int64_t> rejected;
  int64_t points = 0;                     ///< of the grid
  int64_t estimated = 0;                  ///< points predicted from a part of the trace
  int64_t predicted = 0;                  ///< points predicted in full
  std::map<std::string, int64_t> failed;  ///< points without a result, by reason
  bool exact = true;  ///< each point that was neither rejected nor failed was predicted in full
};

/// How far the work has come.
struct AdviseProgress {
  std::string what;                 ///< is at hand
  double share = 0;                 ///< of the whole
  const Candidate* best = nullptr;  ///< that meets all requirements so far; null: none does
  bool estimated = false;           ///< the best is an estimate
};
using OnAdviseProgress = std::function<void(const AdviseProgress&)>;

/// The value by which candidates are compared: less is better.
double ObjectiveOf(const Candidate& candidate, Objective objective);

/// A point with its prediction and cost.
Candidate MakeCandidate(const AdviseRequest& request, const GridPoint& point,
                        Prediction prediction);

/// Every point of the grid of `request`: the methods' searched parameters, machines, batches.
/// Budgets that hold the whole context are left out, and such as hold all of the trace's `tokens`.
std::vector<GridPoint> AdviseGrid(const AdviseRequest& request, int64_t tokens);

/// Usage Error where the objective is cost and a machine has no price. `progress` is called by one
/// thread at a time.
Advice Advise(Predictor& predictor, const AdviseRequest& request,
              const OnAdviseProgress& progress = {});

}  // namespace stallcast::sim
