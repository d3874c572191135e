// Traces as the device has them.
#pragma once

#include <cuda_bf16.h>

#include <cstring>
#include <vector>

#include "traces/format/trace_file.h"

namespace stallcast::kernels {

/// Rounds the elements of a trace of floats to bf16, so that policies see what the device does.
inline void RoundToBf16(traces::Trace& trace) {
  for (traces::Tensor& tensor : trace.tensors) {
    std::vector<float> values(static_cast<size_t>(tensor.spec.elements()));
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    for (float& value : values) value = __bfloat162float(__float2bfloat16(value));
    std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  }
}

}  // namespace stallcast::kernels
