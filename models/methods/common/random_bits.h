// Random numbers that are the same on every machine, by their place.
#pragma once

#include <cstdint>

namespace stallcast::methods {

/// SplitMix64 of `x`.
inline uint64_t RandomBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// The `at`-th number of mean 0 and variance 1, about normally distributed: 12 uniform ones.
inline float RandomBell(uint64_t at) {
  double sum = -6;
  for (uint64_t i = 0; i < 12; ++i) {
    sum += static_cast<double>(RandomBits(12 * at + i) >> 11) * 0x1p-53;
  }
  return static_cast<float>(sum);
}

}  // namespace stallcast::methods
