// Twilight: of what another selection offers, as few tokens as hold a share of the attention.
#pragma once

#include <cstdint>

namespace stallcast::methods {

struct TwilightParams {
  int64_t base = 8192;       ///< tokens that Quest's bounds offer, the newest page included
  int64_t page = 16;         ///< tokens
  double top_p = 0.85;       ///< estimated share of attention to be attended
  int64_t bits = 4;          ///< of a key's channel in the estimate
  int64_t dense_layers = 2;  ///< first layers that attend everything

  /// Pages offered beside the newest.
  int64_t pages() const { return base / page - 1; }
};

}  // namespace stallcast::methods
