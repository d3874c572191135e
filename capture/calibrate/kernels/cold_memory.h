// What kernels under test read cold.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/runtime/buffer.h"

namespace stallcast::capture {

/// Device memory in parts that fit no cache together, nor their addresses what the GPU keeps of
/// translations: those of the layers of a step do not.
class ColdMemory {
 public:
  static constexpr int64_t kBytes = int64_t{512} << 20;
  /// `part` elements each, at most `range` large, as many as come to half of `bytes` or more,
  /// unless that is much of the device's memory.
  explicit ColdMemory(int64_t part, float range = 1, int64_t bytes = kBytes);
  /// One after the other lie apart.
  __nv_bfloat16* At(int64_t i) const { return data_.get() + i * stride_ % parts_ * part_; }

 private:
  int64_t part_, parts_;
  int64_t stride_;  ///< odd, and the parts are a power of two: all are met before any is again
  kernels::Buffer<__nv_bfloat16> data_;
};

}  // namespace stallcast::capture
