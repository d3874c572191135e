// Random numbers by place instead of by turn: the same on every platform, in any order.
#pragma once

#include <cstdint>

namespace stallcast {

/// What SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) adds to its state before each number.
constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;

/// What it makes of its state: a bijection that leaves no pattern.
constexpr uint64_t SplitMix(uint64_t state) {
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
  state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
  return state ^ (state >> 31);
}

}  // namespace stallcast
