// Finds the best points of a large grid by few predictions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/advise.h"

namespace stallcast::sim {

/// A point that can run on its machine.
struct AdvisePoint {
  GridPoint point;
  Needs needs;
};

struct SearchResult {
  std::vector<Candidate> predicted = {};  ///< in full
  int64_t estimated = 0;                  ///< points predicted from a part of the trace
  std::map<std::string, int64_t> failed = {};
};

/// A replay of a long trace takes a hundred times as long as a prediction, and serves all machines,
/// batches and plans of a selection. So the search begins with short replays: a few steps of one
/// layer. For each method it looks for the smallest budget that keeps enough attention mass, taking
/// it that larger budgets keep more; then, one coordinate after the other, for the best machine and
/// batch and the best plan. The better methods go on to their other selection parameters. The most
/// promising selections of all are replayed and predicted in full, until the best of those is
/// better than what any other can be expected to be. Where a requirement binds, what would be had
/// without it is searched likewise.
SearchResult Search(Predictor& predictor, const AdviseRequest& request,
                    std::vector<AdvisePoint> points, const OnAdviseProgress& progress);

/// The access log that a point needs: its method and the parameters that select.
std::string SelectionKey(const Predictor& predictor, const PredictRequest& request);

}  // namespace stallcast::sim
