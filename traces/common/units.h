// Time and size types. Every other field name says its unit.
#pragma once

#include <chrono>
#include <cstdint>
#include <ratio>

namespace stallcast {

/// Time at interfaces and in the engine: 64-bit picoseconds span 106 days.
using Picoseconds = std::chrono::duration<int64_t, std::pico>;
/// Bytes are signed so that differences are safe.
using Bytes = int64_t;

/// Converts to seconds as a double, for rates and output only.
constexpr double Seconds(Picoseconds t) { return static_cast<double>(t.count()) * 1e-12; }
constexpr double Milliseconds(Picoseconds t) { return Seconds(t) * 1e3; }
/// Rounds to the nearest picosecond.
constexpr Picoseconds FromSeconds(double s) {
  return Picoseconds(static_cast<int64_t>(s * 1e12 + (s < 0 ? -0.5 : 0.5)));
}

}  // namespace stallcast
