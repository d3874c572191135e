#include "sim/advise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "sim/names.h"
#include "sim/sweep.h"
#include "traces/common/count.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

constexpr int32_t kFewSteps = 8;     // of the first round of a search
constexpr int32_t kStepsFactor = 4;  // of each round to the next

// Whether a method has the parameter and takes the value at this context.
bool Takes(const std::string& method, const std::string& param, const std::string& value,
           int64_t context) {
  if (!HasParameter(method, param)) return false;
  // ArkVale's pages follow from its budget.
  if (param == "topk" && HasParameter(method, "budget")) return false;
  // A budget that holds the context is the full cache by another name.
  const std::optional<int64_t> tokens = ParseCount(value);
  if (param == "budget" && tokens && context > 0 && *tokens >= context) return false;
  try {
    CheckParameter(method, param, value);
  } catch (const Error&) {
    return false;
  }
  return true;
}

std::vector<Axis> ParamAxes(const AdviseRequest& request, const std::string& method) {
  std::vector<Axis> axes = request.params;
  for (const Axis& searched : SearchedParams()) {
    const bool given = std::any_of(axes.begin(), axes.end(),
                                   [&](const Axis& axis) { return axis.name == searched.name; });
    if (!given) axes.push_back(searched);
  }
  for (Axis& axis : axes) {
    std::erase_if(axis.values, [&](const std::string& value) {
      return !Takes(method, axis.name, value, request.base.context);
    });
  }
  std::erase_if(axes, [](const Axis& axis) { return axis.values.empty(); });
  return axes;
}

double CostOf(const Prediction& p, const std::map<std::string, double>& prices) {
  const auto price = prices.find(p.request.machine);
  if (price == prices.end() || p.metrics.tokens_per_second <= 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return price->second * p.request.tensor_parallel / 3600 / p.metrics.tokens_per_second * 1e6;
}

// All predicted, in the order of `points`.
std::vector<Candidate> PredictEach(Predictor& predictor, const AdviseRequest& request,
                                   const std::vector<GridPoint>& points, Advice& advice,
                                   const std::function<void(double)>& progress) {
  std::vector<std::pair<size_t, Candidate>> done;
  size_t finished = 0;
  PredictAll(predictor, points, [&](PointResult&& result) {
    if (progress) progress(static_cast<double>(++finished) / static_cast<double>(points.size()));
    if (!result.prediction) {
      ++advice.failed[result.problem];
      return;
    }
    const double cost = CostOf(*result.prediction, request.price_per_hour);
    done.emplace_back(result.point,
                      Candidate{points[result.point], std::move(*result.prediction), cost});
  });
  advice.predictions += std::ssize(points);
  std::sort(done.begin(), done.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  // A parameter may have no effect: what comes out the same counts once.
  std::set<std::tuple<std::string, std::string, int32_t, int64_t, double, int64_t>> seen;
  std::vector<Candidate> candidates;
  for (auto& [index, candidate] : done) {
    const Prediction& p = candidate.prediction;
    const bool fresh =
        seen.insert({p.request.method, p.request.machine, p.request.batch,
                     p.metrics.step_mean.count(), p.selection.attention_mass, p.gpu_memory})
            .second;
    if (fresh) candidates.push_back(std::move(candidate));
  }
  return candidates;
}

// Those that meet what is required before those that do not, by the objective or by how far off.
std::vector<size_t> Ranked(const std::vector<Candidate>& all, const AdviseRequest& request) {
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) {
    return std::pair(request.required.Shortfall(FiguresOf(all[i].prediction)),
                     ObjectiveOf(all[i], request.objective));
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

// Rounds of ever more steps over ever fewer points: the best quarter of each goes on.
std::vector<GridPoint> Halve(Predictor& predictor, const AdviseRequest& request,
                             std::vector<GridPoint> points, int32_t all_steps, Advice& advice) {
  const auto least = static_cast<size_t>(request.least_kept);
  for (int32_t steps = kFewSteps; steps < all_steps && points.size() > least;
       steps *= kStepsFactor) {
    std::vector<GridPoint> shorter = points;
    for (GridPoint& point : shorter) point.request.steps = steps;
    std::vector<Candidate> tried = PredictEach(predictor, request, shorter, advice, {});
    const std::vector<size_t> order = Ranked(tried, request);
    const size_t keep = std::max(least, tried.size() / 4);
    std::vector<GridPoint> kept;
    for (size_t i = 0; i < order.size() && i < keep; ++i) {
      GridPoint point = tried[order[i]].point;
      point.request.steps = request.base.steps;
      kept.push_back(std::move(point));
    }
    points = std::move(kept);
  }
  return points;
}

std::vector<size_t> FrontOf(const std::vector<Candidate>& all, Objective objective) {
  std::vector<std::vector<double>> coordinates;
  for (const Candidate& each : all) {
    const Figures f = FiguresOf(each.prediction);
    coordinates.push_back(
        {f.fits ? ObjectiveOf(each, objective) : std::nan(""), f.gpu_bytes, -f.attention_mass});
  }
  const std::vector<bool> on = ParetoFront(coordinates);
  std::vector<size_t> front;
  for (size_t i = 0; i < all.size(); ++i) {
    if (on[i]) front.push_back(i);
  }
  std::stable_sort(front.begin(), front.end(), [&](size_t a, size_t b) {
    return ObjectiveOf(all[a], objective) < ObjectiveOf(all[b], objective);
  });
  return front;
}

std::vector<Relaxation> RelaxationsOf(const Advice& advice, const AdviseRequest& request) {
  const double now = advice.good.empty()
                         ? std::numeric_limits<double>::infinity()
                         : ObjectiveOf(advice.candidates[advice.good.front()], request.objective);
  std::vector<Relaxation> relaxations;
  using What = Relaxation::What;
  for (const What what : {What::kMass, What::kGpu, What::kStep}) {
    Requirements others = request.required;
    if (what == What::kMass) others.min_mass = 0;
    if (what == What::kGpu) others.max_gpu_bytes = Requirements::kAny;
    if (what == What::kStep) others.max_step_ms = Requirements::kAny;
    std::optional<Relaxation> found;
    for (size_t i = 0; i < advice.candidates.size(); ++i) {
      const Figures f = FiguresOf(advice.candidates[i].prediction);
      const double value = ObjectiveOf(advice.candidates[i], request.objective);
      if (!others.Met(f) || request.required.Met(f) || !(value < now)) continue;
      if (!found) found = Relaxation{what, i, i};
      const Candidate& best = advice.candidates[found->best];
      if (value < ObjectiveOf(best, request.objective)) found->best = i;
      const Figures nearest = FiguresOf(advice.candidates[found->nearest].prediction);
      if (request.required.Shortfall(f) < request.required.Shortfall(nearest)) found->nearest = i;
    }
    if (found) relaxations.push_back(*found);
  }
  return relaxations;
}

void CountMissed(const Requirements& required, Advice& advice) {
  for (const Candidate& each : advice.candidates) {
    const Figures f = FiguresOf(each.prediction);
    if (!f.fits) ++advice.missed["the machine's memory"];
    if (!required.MassEnough(f)) ++advice.missed["--min-mass"];
    if (!required.GpuEnough(f)) ++advice.missed["--max-gpu"];
    if (!required.StepEnough(f)) ++advice.missed["--max-step"];
  }
}

}  // namespace

const std::vector<Axis>& SearchedParams() {
  static const std::vector<Axis> params = {
      {"budget", {"1K", "2K", "4K", "8K", "16K", "32K"}},
      {"topk", {"100", "400", "1600"}},        // ParisKV's tokens; ArkVale takes its own
      {"tau", {"0.7", "0.8", "0.85", "0.9"}},  // FreeKV's and LouisKV's papers
      {"sparsity", {"0.5", "0.75"}},           // WG-KV
      {"recall", {"per-page", "batched", "staged", "zero-copy", "rows"}},
      {"transfer", {"batched", "per-page"}}};
  return params;
}

double ObjectiveOf(const Candidate& candidate, Objective objective) {
  switch (objective) {
    case Objective::kTokensPerSecond:
      return -candidate.prediction.metrics.tokens_per_second;
    case Objective::kStep:
      return Milliseconds(candidate.prediction.metrics.step_mean);
    case Objective::kCost:
      return candidate.cost;
  }
  return 0;
}

std::vector<GridPoint> AdviseGrid(const AdviseRequest& request) {
  std::vector<GridPoint> points;
  std::set<std::string> keys;
  for (const std::string& method : request.methods) {
    std::vector<Axis> axes = ParamAxes(request, method);
    axes.push_back({"machine", request.machines});
    axes.push_back({"batch", request.batches});
    PredictRequest base = request.base;
    base.method = method;
    for (GridPoint& point : ExpandGrid(base, axes)) {
      if (keys.insert(point.key).second) points.push_back(std::move(point));
    }
  }
  return points;
}

Advice Advise(Predictor& predictor, const AdviseRequest& request,
              const std::function<void(double)>& progress) {
  if (request.objective == Objective::kCost) {
    std::vector<std::string> without;
    for (const std::string& machine : request.machines) {
      if (!request.price_per_hour.contains(machine)) without.push_back(machine);
    }
    if (!without.empty()) {
      throw UsageError(
          fmt::format("there is no price of a GPU hour of {}", fmt::join(without, ", ")), "--price",
          fmt::format("give one, as --price {}=3.50", without.front()));
    }
  }
  Advice advice;
  std::vector<GridPoint> points = AdviseGrid(request);
  advice.points = std::ssize(points);
  advice.exact = advice.points <= request.most_exact;
  if (!advice.exact) {
    const auto traced = static_cast<int32_t>(predictor.info().decode_steps());
    const int32_t all_steps = request.base.steps > 0 ? request.base.steps : traced;
    points = Halve(predictor, request, std::move(points), all_steps, advice);
  }
  advice.candidates = PredictEach(predictor, request, points, advice, progress);
  for (const size_t i : Ranked(advice.candidates, request)) {
    if (request.required.Met(FiguresOf(advice.candidates[i].prediction))) advice.good.push_back(i);
  }
  advice.front = FrontOf(advice.candidates, request.objective);
  advice.relaxations = RelaxationsOf(advice, request);
  CountMissed(request.required, advice);
  return advice;
}

}  // namespace stallcast::sim
