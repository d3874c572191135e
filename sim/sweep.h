// Many predictions of one trace, over all cores, into a results file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "sim/grid.h"
#include "sim/result_store.h"

namespace stallcast::sim {

/// Points that are made when their turn comes.
struct PointList {
  size_t size = 0;
  std::function<GridPoint(size_t)> at;
};

/// A point and what came of it.
struct PointResult {
  size_t point = 0;                      ///< index into the points asked for
  std::optional<Prediction> prediction;  ///< none: it cannot be predicted
  std::string problem;                   ///< why
};

/// Predicts points over all cores, after the replays that they need. Each result is handed to
/// `done` as soon as it is there, from any thread, one call at a time. Where `wanted` is given, a
/// point is left out when it returns false just before its turn. Once `stop` is requested no
/// further point is begun, and those under way give no result.
void PredictAll(Predictor& predictor, const PointList& points,
                const std::function<void(PointResult&&)>& done,
                const std::function<bool(size_t point)>& wanted = {},
                const std::stop_token& stop = {});
inline void PredictAll(Predictor& predictor, std::span<const GridPoint> points,
                       const std::function<void(PointResult&&)>& done,
                       const std::function<bool(size_t point)>& wanted = {},
                       const std::stop_token& stop = {}) {
  PredictAll(predictor, PointList{points.size(), [&](size_t i) { return points[i]; }}, done, wanted,
             stop);
}

/// The replays that so many points need, which PredictAll() would make first.
void ReplayAll(Predictor& predictor, const PointList& points, const std::stop_token& stop = {});

struct SweepCounts {
  int64_t done = 0;     ///< predicted now
  int64_t failed = 0;   ///< tried now, without a result
  int64_t present = 0;  ///< were there already, with a result
  int64_t anew = 0;     ///< of those done or failed: were there, by another build of the program
  /// Why points have no result, present ones included, and how many for each reason.
  std::map<std::string, int64_t> problems;
};

/// Some points of a sweep, predicted here or by others.
struct SweepWork {
  const Grid& grid;
  StoredTrace trace;
  std::vector<uint32_t> points;  ///< of the grid
  /// Takes a point's result, from any thread, one call at a time.
  std::function<void(uint32_t point, StoredPoint&&)> done;
  /// False: a point was predicted elsewhere meanwhile. Thread safe.
  std::function<bool(uint32_t point)> wanted;
  std::stop_token stop;

  PointList List() const;
};
/// Over all cores of this process.
void PredictHere(Predictor& predictor, const SweepWork& work);
using PredictWork = std::function<void(Predictor& predictor, const SweepWork& work)>;

/// Predicts every point that `store` does not hold yet, or as another build of the program
/// predicted it, or that failed (every point where `again`), and stores each when it is finished,
/// so that a sweep that was stopped goes on where it was. A point that cannot be predicted is
/// stored as failed, with the message. `progress` is called from any thread, one call at a time,
/// with the points finished so far (present ones included). Once `stop` is requested no further
/// point is begun.
SweepCounts Sweep(Predictor& predictor, const Grid& grid, ResultStore& store, bool again,
                  const std::function<void(int64_t finished)>& progress = {},
                  const std::stop_token& stop = {}, const PredictWork& predict = PredictHere);

/// Which of `points` no other one beats: at most as large in each coordinate and smaller in one.
/// A point with a NaN is never on the front. Takes n log n for up to three coordinates.
std::vector<bool> ParetoFront(std::span<const std::vector<double>> points);

}  // namespace stallcast::sim
