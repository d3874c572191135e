#include "sim/sweep.h"

#include <tbb/parallel_for.h>

#include <algorithm>
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
void ReplayAll(Predictor& predictor, std::span<const GridPoint> points,
               const std::function<bool(size_t)>& wanted, const std::stop_token& stop) {
  // A log is of a method, of the parameters that change it, and of a model's heads.
  std::set<std::tuple<std::string, std::map<std::string, std::string>, std::string, int32_t>>
      replayed;
  for (size_t i = 0; i < points.size(); ++i) {
    if (wanted && !wanted(i)) continue;
    try {
      const PredictRequest& request = points[i].request;
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

}  // namespace

void PredictAll(Predictor& predictor, std::span<const GridPoint> points,
                const std::function<void(PointResult&&)>& done,
                const std::function<bool(size_t)>& wanted, const std::stop_token& stop) {
  std::mutex mutex;
  const auto predict = [&](size_t i) {
    if (stop.stop_requested() || (wanted && !wanted(i))) return;
    PointResult result{.point = i, .prediction = {}, .problem = {}};
    try {
      result.prediction = predictor.Predict(points[i].request, nullptr, stop);
    } catch (const std::exception& error) {
      result.problem = error.what();
    }
    const std::lock_guard lock(mutex);
    done(std::move(result));
  };
  try {
    ReplayAll(predictor, points, wanted, stop);
    tbb::parallel_for(
        tbb::blocked_range<size_t>(0, points.size(), 1),
        [&](const tbb::blocked_range<size_t>& range) {
          for (size_t i = range.begin(); i != range.end(); ++i) predict(i);
        },
        tbb::simple_partitioner());
  } catch (const Cancelled&) {
  }
}

SweepCounts Sweep(Predictor& predictor, std::span<const GridPoint> points, ResultStore& store,
                  bool again, const std::function<void(int64_t)>& progress,
                  const std::stop_token& stop) {
  const ResultStore::Trace trace{predictor.key(), predictor.path().string()};
  const auto find = [&](size_t i) { return store.Find(points[i].key, trace.hash); };
  const auto is_missing = [again](const std::optional<ResultStore::Held>& held) {
    return again || !held || held->by_others || !held->problem.empty();
  };
  SweepCounts counts;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto held = find(i);
    counts.present += is_missing(held) ? 0 : 1;
    counts.anew += held && held->by_others ? 1 : 0;
  }
  PredictAll(
      predictor, points,
      [&](PointResult&& result) {
        const GridPoint& point = points[result.point];
        if (result.prediction) {
          store.Put(point, trace, *result.prediction);
        } else {
          store.PutFailure(point, trace, result.problem);
        }
        ++(result.prediction ? counts.done : counts.failed);
        if (progress) progress(counts.present + counts.done + counts.failed);
      },
      [&](size_t i) { return is_missing(find(i)); }, stop);
  // Another process may have been faster with some.
  counts.present = std::ssize(points) - counts.done - counts.failed;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto held = find(i);
    if (held && !held->problem.empty()) ++counts.problems[held->problem];
  }
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
