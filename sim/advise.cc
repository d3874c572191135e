#include "sim/advise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "sim/advise_search.h"
#include "sim/names.h"
#include "sim/sweep.h"
#include "traces/common/count.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

// A grid of at most so many points and access logs is predicted whole.
constexpr int64_t kMostPoints = 400;
constexpr size_t kMostLogs = 12;
// Where no point fits its machine, so many are predicted to say what comes nearest.
constexpr size_t kNearest = 10;

// Whether a method has the parameter and takes the value, with so many tokens to choose from.
bool Takes(const std::string& method, const std::string& param, const std::string& value,
           int64_t tokens_there) {
  if (!HasParameter(method, param)) return false;
  // ArkVale's pages follow from its budget.
  if (param == "topk" && HasParameter(method, "budget")) return false;
  // A budget that holds them all is the full cache by another name.
  const std::optional<int64_t> tokens = ParseCount(value);
  if (param == "budget" && tokens && tokens_there > 0 && *tokens >= tokens_there) return false;
  try {
    CheckParameter(method, param, value);
  } catch (const Error&) {
    return false;
  }
  return true;
}

std::vector<Axis> ParamAxes(const AdviseRequest& request, const std::string& method,
                            int64_t tokens_there) {
  std::vector<Axis> axes = request.params;
  for (const Axis& searched : SearchedParams()) {
    const bool given = std::any_of(axes.begin(), axes.end(),
                                   [&](const Axis& axis) { return axis.name == searched.name; });
    if (!given) axes.push_back(searched);
  }
  for (Axis& axis : axes) {
    std::erase_if(axis.values, [&](const std::string& value) {
      return !Takes(method, axis.name, value, tokens_there);
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

// A parameter may have no effect: what comes out the same counts once.
std::vector<Candidate> WithoutRepeats(std::vector<Candidate> all) {
  std::set<std::tuple<std::string, std::string, int32_t, int64_t, double, int64_t>> seen;
  std::vector<Candidate> candidates;
  for (Candidate& candidate : all) {
    const Prediction& p = candidate.prediction;
    const bool fresh =
        seen.insert({p.request.method, p.request.machine, p.request.batch,
                     p.metrics.step_mean.count(), p.selection.attention_mass, p.gpu_memory})
            .second;
    if (fresh) candidates.push_back(std::move(candidate));
  }
  return candidates;
}

// All predicted, one access log after the other: so the first results come after one replay.
std::vector<Candidate> PredictEach(Predictor& predictor, const AdviseRequest& request,
                                   const std::vector<AdvisePoint>& points, Advice& advice,
                                   const OnAdviseProgress& progress) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<GridPoint>> by_log;
  for (const AdvisePoint& each : points) {
    const auto [at, fresh] = by_log.try_emplace(SelectionKey(predictor, each.point.request));
    if (fresh) order.push_back(at->first);
    at->second.push_back(each.point);
  }
  std::vector<Candidate> candidates;
  std::optional<Candidate> best;
  size_t finished = 0;
  for (const std::string& log : order) {
    const std::vector<GridPoint>& wanted = by_log.at(log);
    std::vector<std::optional<Candidate>> done(wanted.size());
    PredictAll(predictor, wanted, [&](PointResult&& result) {
      if (result.prediction) {
        const GridPoint& point = wanted[result.point];
        done[result.point] = MakeCandidate(request, point, std::move(*result.prediction));
      } else {
        ++advice.failed[result.problem];
      }
    });
    for (std::optional<Candidate>& each : done) {
      if (!each) continue;
      if (request.required.Met(FiguresOf(each->prediction)) &&
          (!best ||
           ObjectiveOf(*each, request.objective) < ObjectiveOf(*best, request.objective))) {
        best = *each;
      }
      candidates.push_back(std::move(*each));
    }
    finished += wanted.size();
    if (progress) {
      progress({fmt::format("{} of {} configurations", finished, points.size()),
                static_cast<double>(finished) / static_cast<double>(points.size()),
                best ? &*best : nullptr, false});
    }
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

// What a search need not look at: counted by the first that it misses.
void CountRejected(const Requirements& required, const std::vector<AdvisePoint>& points,
                   Advice& advice) {
  for (const AdvisePoint& point : points) {
    if (static_cast<double>(point.needs.gpu) > required.max_gpu_bytes) {
      ++advice.rejected["--max-gpu"];
    } else if (Milliseconds(point.needs.least_step) > required.max_step_ms) {
      ++advice.rejected["--max-step"];
    }
  }
}

void CheckPrices(const AdviseRequest& request) {
  if (request.objective != Objective::kCost) return;
  std::vector<std::string> without;
  for (const std::string& machine : request.machines) {
    if (!request.price_per_hour.contains(machine)) without.push_back(machine);
  }
  if (without.empty()) return;
  throw UsageError(fmt::format("there is no price of a GPU hour of {}", fmt::join(without, ", ")),
                   "--price", fmt::format("give one, as --price {}=3.50", without.front()));
}

// What can run on its machine; the rest is counted. Where nothing fits, what comes nearest.
std::vector<AdvisePoint> WhatFits(const Predictor& predictor, const std::vector<GridPoint>& grid,
                                  Advice& advice) {
  std::vector<std::optional<Needs>> needs(grid.size());
  std::vector<std::string> problems(grid.size());
  tbb::parallel_for(size_t{0}, grid.size(), [&](size_t i) {
    try {
      needs[i] = predictor.NeedsOf(grid[i].request);
    } catch (const Error& error) {
      problems[i] = error.what();
    }
  });
  std::vector<AdvisePoint> fitting, others;
  for (size_t i = 0; i < grid.size(); ++i) {
    if (!needs[i]) {
      ++advice.failed[problems[i]];
      continue;
    }
    if (!needs[i]->fits) ++advice.rejected["the machine's memory"];
    (needs[i]->fits ? fitting : others).push_back({grid[i], *needs[i]});
  }
  if (!fitting.empty()) return fitting;
  std::ranges::stable_sort(others, {}, [](const AdvisePoint& point) {
    return static_cast<double>(point.needs.gpu) / static_cast<double>(point.needs.gpu_limit);
  });
  others.resize(std::min(others.size(), kNearest));
  return others;
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

Candidate MakeCandidate(const AdviseRequest& request, const GridPoint& point,
                        Prediction prediction) {
  const double cost = CostOf(prediction, request.price_per_hour);
  return {point, std::move(prediction), cost};
}

std::vector<GridPoint> AdviseGrid(const AdviseRequest& request, int64_t tokens) {
  const int64_t context = request.base.context;
  const int64_t tokens_there = context > 0 ? std::min(context, tokens) : tokens;
  std::vector<GridPoint> points;
  std::set<std::string> keys;
  for (const std::string& method : request.methods) {
    std::vector<Axis> axes = ParamAxes(request, method, tokens_there);
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
              const OnAdviseProgress& progress) {
  CheckPrices(request);
  Advice advice;
  const std::vector<GridPoint> grid = AdviseGrid(request, predictor.info().prompt_tokens());
  advice.points = std::ssize(grid);
  std::vector<AdvisePoint> points = WhatFits(predictor, grid, advice);
  std::set<std::string> logs;
  for (const AdvisePoint& each : points) logs.insert(SelectionKey(predictor, each.point.request));
  const bool small = std::ssize(points) <= kMostPoints && logs.size() <= kMostLogs;
  const bool none_fits = !points.empty() && !points.front().needs.fits;
  advice.exact =
      none_fits || request.extent == Extent::kAll || (request.extent == Extent::kBySize && small);
  if (advice.exact) {
    advice.candidates = PredictEach(predictor, request, points, advice, progress);
  } else {
    CountRejected(request.required, points, advice);
    SearchResult found = Search(predictor, request, std::move(points), progress);
    advice.candidates = std::move(found.predicted);
    advice.estimated = found.estimated;
    for (const auto& [problem, number] : found.failed) advice.failed[problem] += number;
  }
  advice.predicted = std::ssize(advice.candidates);
  advice.candidates = WithoutRepeats(std::move(advice.candidates));
  for (const size_t i : Ranked(advice.candidates, request)) {
    if (request.required.Met(FiguresOf(advice.candidates[i].prediction))) advice.good.push_back(i);
  }
  advice.front = FrontOf(advice.candidates, request.objective);
  advice.relaxations = RelaxationsOf(advice, request);
  CountMissed(request.required, advice);
  return advice;
}

}  // namespace stallcast::sim
