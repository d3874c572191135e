// Full offload: the whole cache on the host, copied to the GPU layer by layer in every step.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stallcast::methods {

struct OffloadParams {
  /// What goes back to the host in a step, as run: transformers writes each layer's whole cache.
  enum class WriteBack : uint8_t { kAll, kNew };
  WriteBack write_back = WriteBack::kAll;
  int64_t prefetch = 1;  ///< layers copied ahead of the layer that attends; 0: copied when needed

  /// Layers on the GPU: the one that attends and those ahead of it, none twice.
  int64_t buffers(int64_t layers) const { return std::min(1 + prefetch, layers); }
};

}  // namespace stallcast::methods
