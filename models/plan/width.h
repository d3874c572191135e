// How numbers are stored: bits an element, and the scales of a quantised format.
#pragma once

#include <cstdint>

#include "traces/common/units.h"

namespace stallcast::plan {

/// bf16 unless said otherwise.
struct Width {
  int32_t bits = 16;       ///< an element
  int32_t group = 0;       ///< elements that share a scale; 0: no scales worth counting
  int32_t scale_bits = 0;  ///< a scale, with its zero point if there is one

  /// Bytes of so many elements side by side, scales included.
  constexpr Bytes Of(int64_t elements) const {
    const int64_t scales = group > 0 ? (elements + group - 1) / group * scale_bits : 0;
    return elements / 8 * bits + (elements % 8 * bits + scales + 7) / 8;
  }
  bool operator==(const Width&) const = default;
};

}  // namespace stallcast::plan
