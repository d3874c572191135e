// The whole cache on the GPU.
#pragma once

#include <cstdint>

namespace stallcast::methods {

struct FullParams {
  /// As run, transformers' cache: it grows by concatenation, or is made for the longest context and
  /// attended whole, under a mask.
  enum class Cache : uint8_t { kDynamic, kStatic };
  Cache cache = Cache::kDynamic;
};

}  // namespace stallcast::methods
