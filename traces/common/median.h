// The median of measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace stallcast {

/// The middle value, of two the upper; T{} of none.
template <class T>
T Median(std::vector<T> values) {
  if (values.empty()) return T{};
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace stallcast
