// Rounding to bf16, for what methods keep on the GPU in that type.
#pragma once

#include <bit>
#include <cstdint>

namespace stallcast::methods {

/// The nearest bf16 value, ties to even; `value` is finite.
inline float RoundToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u);
}

}  // namespace stallcast::methods
