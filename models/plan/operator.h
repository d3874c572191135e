// The operators of PyTorch that plans count.
#pragma once

#include <cstdint>

namespace stallcast::plan {

enum class Operator : uint8_t {
  kView,              ///< view, unsafe_view
  kSlice,             ///< slice, transpose, unsqueeze, expand: a view by as_strided
  kModule,            ///< a call of an nn.Module
  kCpu,               ///< an operator on numbers of the host
  kLaunch,            ///< in place: launches a kernel
  kLaunchAllocating,  ///< the same with a result of its own
  kAllocation,
  kZeros,
  kCast,
  kReduce,
  kLinear,
  kCat,
  kTopK,
  kSort,
  kIndexSelect,
  kSdpa,           ///< scaled_dot_product_attention over as many keys as the call before
  kSdpaNewLength,  ///< what it takes more over a number of keys that is new
  kItem,           ///< item(), the GPU idle
  kIndexByGpuScalar,
  kCopy,          ///< copy_() of pinned memory to the GPU
  kCopyStrided,   ///< to a strided destination there
  kCopyPageable,  ///< of pageable memory
  kCopyBack,      ///< the same to the host
  kCopyBackStrided,
  kCopyBackPageable,
  kSynchronize,    ///< torch.cuda.synchronize(), the GPU idle
  kStreamContext,  ///< entering and leaving `with torch.cuda.stream()`
};
inline constexpr int kOperators = static_cast<int>(Operator::kStreamContext) + 1;

}  // namespace stallcast::plan
