// What SelectUnits() does in one kernel, a pass at a time, as a framework's operators do it.
#pragma once

#include "kernels/runtime/buffer.h"
#include "kernels/selection/clusters.h"

namespace stallcast::kernels {

/// Memory of the passes for up to `rows` rows of `group` heads and `units` units. Passes of one
/// selection follow one another on a stream, each with the same arguments.
class SelectionPasses {
 public:
  SelectionPasses(int32_t rows, int32_t group, int32_t units);

  /// Softmax of each head's scores over the units that have tokens.
  void Softmax(const SelectUnitsArgs& args, cudaStream_t stream);
  /// Their mean over the group.
  void Mean(const SelectUnitsArgs& args, cudaStream_t stream);
  /// Units of each row by it, best first, ties to the smaller id.
  void Sort(const SelectUnitsArgs& args, cudaStream_t stream);
  /// Tokens of the units in that order, their running sum, and how many of each fit the budget.
  void Sizes(const SelectUnitsArgs& args, cudaStream_t stream);
  void RunningSum(const SelectUnitsArgs& args, cudaStream_t stream);
  void Fit(const SelectUnitsArgs& args, cudaStream_t stream);
  /// On the device: units taken, all rows together.
  const int64_t* count() const { return count_.get(); }
  /// The results of SelectUnits(), but in the order of the ranking.
  void List(const SelectUnitsArgs& args, cudaStream_t stream);

 private:
  Buffer<float> weights_, mean_, sorted_;
  Buffer<int32_t> numbers_;  // 0, 1, ...: of units, row after row
  Buffer<int32_t> order_;    // such numbers, by rank
  Buffer<int32_t> sizes_, ends_, taken_;
  Buffer<int64_t> count_;
  Buffer<char> sort_;
};

}  // namespace stallcast::kernels
