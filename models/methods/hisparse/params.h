// HiSparse on ordinary heads: Quest's selection over a cache whose hot part alone is on the GPU.
#pragma once

#include <cstdint>

#include "models/methods/common/unit_buffer.h"

namespace stallcast::methods {

struct HiSparseParams {
  /// How the query heads of a group agree on what their KV head attends.
  enum class Group : uint8_t { kMax, kMean };

  int64_t budget = 2048;  ///< tokens attended, the newest page included
  int64_t page = 16;      ///< tokens of a unit; 1: chosen by their own keys
  int64_t buffer = 4096;  ///< tokens that a KV head has on the GPU, beside the newest page
  Replacement eviction = Replacement::kLru;
  Group group = Group::kMax;
  int64_t dense_layers = 2;  ///< first layers that attend everything
  int64_t blocks = 1;        ///< of 1,024 threads that fetch for a KV head

  /// Pages chosen beside the newest.
  int64_t chosen() const { return budget / page - 1; }
  int64_t slots() const { return buffer / page; }
};

}  // namespace stallcast::methods
