#include "sim/sweep.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

// Replays use all cores by themselves, so they come before the points are spread over the cores.
void ReplayAll(Predictor& predictor, const std::vector<const GridPoint*>& points) {
  std::set<std::pair<std::string, std::map<std::string, std::string>>> replayed;
  for (const GridPoint* point : points) {
    try {
      const PredictRequest& request = point->request;
      const methods::NamedMethod method = methods::MakeMethod(request.method, request.params);
      if (replayed.insert({method.info->name, method.method->Params(true)}).second) {
        predictor.Log(request);
      }
    } catch (const Error&) {
      // Each point that meets this error is stored with it.
    }
  }
}

}  // namespace

SweepCounts Sweep(Predictor& predictor, std::span<const GridPoint> points, ResultStore& store,
                  bool again, const std::function<void(int64_t)>& progress) {
  const std::string trace = predictor.report().content_hash;
  SweepCounts counts;
  std::vector<const GridPoint*> missing;
  for (const GridPoint& point : points) {
    if (!again && store.Has(point.key, trace)) {
      ++counts.present;
    } else {
      missing.push_back(&point);
    }
  }
  ReplayAll(predictor, missing);

  std::mutex mutex;
  const auto finish = [&](int64_t& count) {
    const std::lock_guard lock(mutex);
    ++count;
    if (progress) progress(counts.present + counts.done + counts.failed);
  };
  tbb::parallel_for(
      tbb::blocked_range<size_t>(0, missing.size(), 1),
      [&](const tbb::blocked_range<size_t>& range) {
        for (size_t i = range.begin(); i != range.end(); ++i) {
          const GridPoint& point = *missing[i];
          if (!again && store.Has(point.key, trace)) {  // another process was faster
            finish(counts.present);
            continue;
          }
          std::optional<Prediction> prediction;
          std::string message;
          try {
            prediction = predictor.Predict(point.request);
          } catch (const std::exception& error) {
            message = error.what();
          }
          if (prediction) {
            store.Put(point, trace, *prediction);
          } else {
            store.PutFailure(point, trace, message);
          }
          finish(prediction ? counts.done : counts.failed);
        }
      },
      tbb::simple_partitioner());
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
