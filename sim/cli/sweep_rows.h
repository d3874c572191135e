// The points of a sweep as rows of a table: what was asked for of each, which rows are the same,
// and which come first.
#pragma once

#include <string>
#include <vector>

#include "sim/cli/sort_order.h"
#include "sim/requirements.h"
#include "sim/result_store.h"

namespace stallcast::cli {

using Points = sim::ResultStore::Rows;

/// What was asked for of the points, by name.
struct AskedColumn {
  std::string name;
  bool of_method = false;           ///< a parameter, which other methods may not have
  std::vector<std::string> values;  ///< a point each; empty where it has none
};

struct SweepRows {
  std::vector<AskedColumn> varying;   ///< the method first, then all in which points differ
  std::vector<AskedColumn> constant;  ///< all others
  /// Points in the order of their rows. Of those that differ in one varying column alone, and not
  /// in what came out, the first stands for all; the column then says "any" of it.
  std::vector<size_t> order;
  std::vector<std::string> workloads;  ///< a point each: model, trace, context, batch, GPUs
  std::vector<bool> best;              ///< the fastest of its workload that meets what is required
};
SweepRows RowsOf(const Points& points, const sim::Requirements& required, const SortOrder& order);

/// Points that no other one of their workload beats in step time, GPU memory and attention mass.
std::vector<bool> FrontByWorkload(const Points& points, const std::vector<std::string>& workloads);

bool Failed(const Points& points, size_t row);
sim::Figures FiguresOf(const Points& points, size_t row);
/// 2 before 10, "25GB/s" before "100GB/s", and text by letters.
bool BeforeInOrder(const std::string& a, const std::string& b);

}  // namespace stallcast::cli
