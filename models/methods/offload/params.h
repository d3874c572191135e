// Full offload: the whole cache on the host, copied to the GPU layer by layer in every step.
#pragma once

#include <cstdint>

namespace stallcast::methods {

struct OffloadParams {
  int64_t prefetch = 1;  ///< layers copied ahead of the layer that attends; 0: copied when needed
};

}  // namespace stallcast::methods
