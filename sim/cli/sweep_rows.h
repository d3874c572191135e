// The points of a sweep as rows of a table: what was asked for of each, which rows are the same,
// and which come first.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/cli/sort_order.h"
#include "sim/cli/sweep_points.h"
#include "sim/requirements.h"

namespace stallcast::cli {

/// What was asked for of the points, by name.
struct AskedColumn {
  std::string name;
  bool of_method = false;  ///< a parameter, which other methods may not have
  TextColumn values;       ///< empty where a point has none
};

struct SweepRows {
  std::vector<AskedColumn> varying;   ///< the method first, then all in which points differ
  std::vector<AskedColumn> constant;  ///< all others
  /// Points in the order of their rows. Of those that differ in one varying column alone, and not
  /// in what came out, the first stands for all; the column then says "any" of it.
  std::vector<size_t> order;
  std::vector<bool> best;  ///< the fastest of its workload that meets what is required
};
SweepRows RowsOf(const Points& points, const sim::Requirements& required, const SortOrder& order);

/// Points that no other one of their workload beats in step time, GPU memory and attention mass.
/// Holds those of the fronts, as many again and some.
class WorkloadFronts {
 public:
  /// Points are added in their order; a failed one is on no front.
  void Add(const std::string& workload, const sim::Figures& figures, bool failed);
  std::vector<bool> Find();

 private:
  static constexpr size_t kMostBeaten = 50'000;
  struct Members {
    std::vector<size_t> points;
    std::vector<std::vector<double>> coordinates;
    size_t most = kMostBeaten;  // then those that are beaten go
    void Prune();
  };
  std::map<std::string, Members> by_workload_;
  size_t points_ = 0;
};

/// The fastest of each workload that meets what is required.
class WorkloadBests {
 public:
  explicit WorkloadBests(const sim::Requirements& required) : required_(required) {}
  void Add(const std::string& workload, const sim::Figures& figures, bool failed);
  std::set<size_t> Find() const;

 private:
  struct Best {
    size_t point;
    double step_ms;
  };
  const sim::Requirements& required_;
  std::map<std::string, Best> by_workload_;
  size_t points_ = 0;
};

/// 2 before 10, "25GB/s" before "100GB/s", and text by letters.
bool BeforeInOrder(const std::string& a, const std::string& b);

}  // namespace stallcast::cli
