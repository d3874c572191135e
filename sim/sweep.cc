#include "sim/sweep.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>
#include <tuple>

#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

// Replays use all cores by themselves, so they come before the points are spread over the cores.
void ReplayAll(Predictor& predictor, std::span<const GridPoint> points,
               const std::function<bool(size_t)>& wanted, const std::stop_token& stop) {
  // A log is of a method, of the parameters that change it, and of a model's group of query heads.
  std::set<std::tuple<std::string, std::map<std::string, std::string>, std::string>> replayed;
  for (size_t i = 0; i < points.size(); ++i) {
    if (wanted && !wanted(i)) continue;
    try {
      const PredictRequest& request = points[i].request;
      const methods::NamedMethod method = methods::MakeMethod(request.method, request.params);
      if (replayed.insert({method.info->name, method.method->Params(true), request.model}).second) {
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
                  bool again, const std::function<void(int64_t)>& progress) {
  const ResultStore::Trace trace{predictor.report().content_hash, predictor.path().string()};
  const auto find = [&](size_t i) { return store.Find(points[i].key, trace.hash); };
  const auto is_missing = [again](const std::optional<ResultStore::Held>& held) {
    return again || !held || held->by_others;
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
      [&](size_t i) { return is_missing(find(i)); });
  // Another process may have been faster with some.
  counts.present = std::ssize(points) - counts.done - counts.failed;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto held = find(i);
    if (held && !held->problem.empty()) ++counts.problems[held->problem];
  }
  return counts;
}

std::vector<bool> ParetoFront(std::span<const std::vector<double>> points) {
  const auto known = [](const std::vector<double>& p) {
    return std::none_of(p.begin(), p.end(), [](double v) { return std::isnan(v); });
  };
  const auto beats = [](const std::vector<double>& a, const std::vector<double>& b) {
    bool smaller = false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] > b[i]) return false;
      smaller |= a[i] < b[i];
    }
    return smaller;
  };
  std::vector<bool> front;
  for (const std::vector<double>& p : points) {
    front.push_back(known(p) && std::none_of(points.begin(), points.end(), [&](const auto& q) {
                      return known(q) && beats(q, p);
                    }));
  }
  return front;
}

}  // namespace stallcast::sim
