// Which tensors a file's tensor chunks add up to.
#pragma once

#include <string>
#include <vector>

#include "traces/format/tensor_codec.h"
#include "traces/tensor.h"

namespace stallcast::traces::format {

/// A tensor to be made of chunks whose token ranges follow on one another.
struct TensorPlan {
  TensorSpec spec;
  std::vector<size_t> parts;  ///< indices into the metas, ascending by token
};

/// Groups chunks by kind and layer and joins adjacent token ranges. A gap begins another tensor; a
/// chunk that overlaps an earlier one or differs from it in heads, dimension or type is left out.
/// `problems` gets a line for each.
std::vector<TensorPlan> PlanTensors(const std::vector<TensorMeta>& metas,
                                    std::vector<std::string>* problems);

/// Cuts the parts that `lost` says out of a tensor whose elements are decoded. Returns what is
/// left, empty where nothing is.
std::vector<Tensor> WithoutParts(Tensor tensor, const TensorPlan& plan,
                                 const std::vector<TensorMeta>& metas,
                                 const std::vector<bool>& lost);

}  // namespace stallcast::traces::format
