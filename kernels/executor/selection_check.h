// Units that the device selected, against those that the access log says.
#pragma once

#include <cstdint>
#include <span>

namespace stallcast::kernels {

struct SelectionCheck {
  int64_t selected = 0;   ///< units compared
  int64_t equal = 0;      ///< of these, in both
  int64_t missing = 0;    ///< selected units whose keys in the cache are not those of the trace
  int64_t verified = 0;   ///< selected units whose keys were looked at
  int64_t decisions = 0;  ///< rows whose correction decision was compared
  int64_t decided_alike = 0;

  /// Counts `device` against `expected`, both without duplicates, in any order.
  void Compare(std::span<const int32_t> device, std::span<const uint32_t> expected);
  double share_equal() const {
    return selected == 0 ? 1 : static_cast<double>(equal) / static_cast<double>(selected);
  }
};

}  // namespace stallcast::kernels
