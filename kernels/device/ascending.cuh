// Searches in ascending numbers.
#pragma once

#include <cstdint>

namespace stallcast::kernels {

/// How many of values[0, count) are less than `limit`.
__device__ inline int CountBelow(const int32_t* values, int count, int limit) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (values[middle] < limit) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// The n-th, from 0, of the numbers 0, 1, ... that values[0, count), all different, leave out.
__device__ inline int NthLeftOut(const int32_t* values, int count, int n) {
  // As many further as values come before it: those with values[j] - j <= n.
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (values[middle] - middle <= n) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return n + low;
}

}  // namespace stallcast::kernels
