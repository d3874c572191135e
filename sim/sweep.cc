#include "sim/sweep.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

// Replays use all cores by themselves, so they come before the points are spread over the cores.
void Replay(Predictor& predictor, const PointList& points,
            const std::function<bool(size_t)>& wanted, const std::stop_token& stop) {
  // A log is of a method, of the parameters that change it, and of a model's heads.
  std::set<std::tuple<std::string, methods::ParamValues, std::string, int32_t>> asked;
  std::set<std::tuple<std::string, std::map<std::string, std::string>, std::string, int32_t>>
      replayed;
  for (size_t i = 0; i < points.size && !stop.stop_requested(); ++i) {
    if (wanted && !wanted(i)) continue;
    try {
      const PredictRequest request = points.at(i).request;
      if (!asked.insert({request.method, request.params, request.model, request.tensor_parallel})
               .second) {
        continue;
      }
      const methods::NamedMethod method = methods::MakeMethod(request.method, request.params);
      if (replayed
              .insert({method.info->name, method.method->Params(true), request.model,
                       request.tensor_parallel})
              .second) {
        predictor.Log(request, stop);
      }
    } catch (const Error&) {
      // Each point that meets this error reports it.
    }
  }
}

using TakeResult = std::function<void(const GridPoint& point, PointResult&& result)>;

// Hands each result to `take`, several calls at a time.
void Spread(Predictor& predictor, const PointList& points,
            const std::function<bool(size_t)>& wanted, const std::stop_token& stop,
            const TakeResult& take) {
  const auto predict = [&](size_t i) {
    if (stop.stop_requested() || (wanted && !wanted(i))) return;
    const GridPoint point = points.at(i);
    PointResult result{.point = i, .prediction = {}, .problem = {}};
    try {
      result.prediction = predictor.Predict(point.request, nullptr, stop);
    } catch (const std::exception& error) {
      result.problem = error.what();
    }
    take(point, std::move(result));
  };
  try {
    Replay(predictor, points, wanted, stop);
    // In their order, whoever takes the next: so neighbours come one after the other.
    std::atomic<size_t> next = 0;
    tbb::parallel_for(
        tbb::blocked_range<size_t>(0, points.size, 1),
        [&](const tbb::blocked_range<size_t>& range) {
          for (size_t i = range.begin(); i != range.end(); ++i) predict(next++);
        },
        tbb::simple_partitioner());
  } catch (const Cancelled&) {
  }
}

}  // namespace

void ReplayAll(Predictor& predictor, const PointList& points, const std::stop_token& stop) {
  try {
    Replay(predictor, points, {}, stop);
  } catch (const Cancelled&) {
  }
}

void PredictAll(Predictor& predictor, const PointList& points,
                const std::function<void(PointResult&&)>& done,
                const std::function<bool(size_t)>& wanted, const std::stop_token& stop) {
  std::mutex mutex;
  Spread(predictor, points, wanted, stop, [&](const GridPoint&, PointResult&& result) {
    const std::lock_guard lock(mutex);
    done(std::move(result));
  });
}

PointList SweepWork::List() const {
  return {points.size(), [this](size_t i) { return grid[points[i]]; }};
}

void PredictHere(Predictor& predictor, const SweepWork& work) {
  std::mutex mutex;
  Spread(
      predictor, work.List(), [&](size_t i) { return !work.wanted || work.wanted(work.points[i]); },
      work.stop,
      [&](const GridPoint& point, PointResult&& result) {
        StoredPoint stored = result.prediction ? Stored(point, work.trace, *result.prediction)
                                               : StoredFailure(point, work.trace, result.problem);
        const std::lock_guard lock(mutex);
        work.done(work.points[result.point], std::move(stored));
      });
}

SweepCounts Sweep(Predictor& predictor, const Grid& grid, ResultStore& store, bool again,
                  const std::function<void(int64_t)>& progress, const std::stop_token& stop,
                  const PredictWork& predict) {
  SweepWork work{.grid = grid,
                 .trace = {predictor.key(), predictor.path().string()},
                 .points = {},
                 .done = {},
                 .wanted = {},
                 .stop = stop};
  const auto find = [&](uint32_t point) { return store.Find(grid[point].key, work.trace.hash); };
  const auto is_missing = [again](const std::optional<ResultStore::Held>& held) {
    return again || !held || held->by_others || !held->problem.empty();
  };
  const auto size = static_cast<uint32_t>(grid.size());
  SweepCounts counts;
  for (uint32_t i = 0; i < size && !stop.stop_requested(); ++i) {
    const auto held = find(i);
    if (is_missing(held)) work.points.push_back(i);
    counts.anew += held && held->by_others ? 1 : 0;
  }
  counts.present = std::ssize(grid) - std::ssize(work.points);
  const int64_t first = store.PlaceOf(grid.id() + work.trace.hash, grid.size());
  work.wanted = [&](uint32_t point) { return is_missing(find(point)); };
  work.done = [&](uint32_t point, StoredPoint&& result) {
    ++(result.failed ? counts.failed : counts.done);
    if (result.failed) ++counts.problems[result.Problem()];
    store.Put(first + point, std::move(result));
    if (progress) progress(counts.present + counts.done + counts.failed);
  };
  predict(predictor, work);
  store.Flush();
  // Another process may have been faster with some.
  counts.present = std::ssize(grid) - counts.done - counts.failed;
  return counts;
}

std::vector<bool> ParetoFront(std::span<const std::vector<double>> points) {
  std::vector<size_t> order;
  for (size_t i = 0; i < points.size(); ++i) {
    if (std::ranges::none_of(points[i], [](double v) { return std::isnan(v); })) {
      order.push_back(i);
    }
  }
  std::ranges::sort(order, [&](size_t a, size_t b) { return points[a] < points[b]; });
  // What beats a point comes before it in this order, with a first coordinate as small. Of the
  // second and third coordinates before, the least third one by the second, which falls.
  std::map<double, double> least;
  std::vector<size_t> found;  // for points of more coordinates
  const auto beaten = [&](const std::vector<double>& point) {
    if (point.size() > 3) {
      return std::ranges::any_of(found, [&](size_t other) {
        return std::ranges::equal(points[other], point, std::less_equal<>());
      });
    }
    const double second = point.size() > 1 ? point[1] : 0, third = point.size() > 2 ? point[2] : 0;
    const auto after = least.upper_bound(second);
    if (after != least.begin() && std::prev(after)->second <= third) return true;
    auto at = least.lower_bound(second);
    while (at != least.end() && at->second >= third) at = least.erase(at);
    least.emplace(second, third);
    return false;
  };
  std::vector<bool> front(points.size());
  for (size_t k = 0; k < order.size(); ++k) {
    const size_t i = order[k];
    // Equal points do not beat each other.
    front[i] =
        k > 0 && points[i] == points[order[k - 1]] ? front[order[k - 1]] : !beaten(points[i]);
    if (front[i]) found.push_back(i);
  }
  return front;
}

}  // namespace stallcast::sim
