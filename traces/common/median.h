// The median of measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <type_traits>
#include <vector>

namespace stallcast {

/// The middle value, the mean of the two middle ones of an even number; T{} of none.
template <class T>
T Median(std::vector<T> values) {
  if (values.empty()) return T{};
  const auto upper = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), upper, values.end());
  if (values.size() % 2 == 1) return *upper;
  const T lower = *std::max_element(values.begin(), upper);
  if constexpr (std::is_arithmetic_v<T>) {
    return std::midpoint(lower, *upper);  // neither overflows nor subtracts infinities
  } else {
    return lower + (*upper - lower) / 2;
  }
}

}  // namespace stallcast
