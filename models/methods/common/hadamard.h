// The Walsh-Hadamard transform.
#pragma once

#include <cstddef>
#include <span>

namespace stallcast::methods {

/// Of a power of two of elements, in place, strides ascending, unnormalised: sqrt(size) times a
/// rotation.
template <class T>
void WalshHadamard(std::span<T> x) {
  for (size_t stride = 1; stride < x.size(); stride *= 2) {
    for (size_t begin = 0; begin < x.size(); begin += 2 * stride) {
      for (size_t i = begin; i < begin + stride; ++i) {
        const T a = x[i], b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
    }
  }
}

}  // namespace stallcast::methods
