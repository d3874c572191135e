// Quantiles by nearest rank: values that occurred, for any number of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

namespace stallcast::sim {

/// The value of rank ceil(q n), at least the first, in the order of `key`; reorders `values`, of
/// which there is at least one.
template <class T, class Key = std::identity>
T Quantile(std::vector<T>& values, double q, Key key = {}) {
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
  std::ranges::nth_element(values, at, {}, key);
  return *at;
}

}  // namespace stallcast::sim
