// Attention on the CPU: the cache stays on the host, whose threads attend it.
#pragma once

#include <cstdint>

namespace stallcast::methods {

struct CpuAttentionParams {
  int64_t threads = 16;    ///< host threads that attend
  int64_t gpu_tokens = 0;  ///< last tokens that the GPU keeps and attends meanwhile
};

}  // namespace stallcast::methods
