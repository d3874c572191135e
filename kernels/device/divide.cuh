// Division of indices by a divisor known at launch: a multiply and a shift.
#pragma once

#include <cstdint>

namespace stallcast::kernels {

/// n / divisor, exact for 0 <= n < 2^31 and 1 <= divisor < 2^31. With s = ceil(log2 divisor) and
/// m = ceil(2^(31+s) / divisor), m < 2^32, the error n (m divisor - 2^(31+s)) stays under 2^(31+s).
class Divider {
 public:
  explicit Divider(uint32_t divisor) : divisor_(divisor) {
    while ((uint64_t{1} << (shift_ - 31)) < divisor) ++shift_;
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << shift_) + divisor - 1) / divisor);
  }
  __device__ uint32_t Quotient(uint32_t n) const {
    return static_cast<uint32_t>((uint64_t{n} * multiplier_) >> shift_);
  }
  __device__ uint32_t Remainder(uint32_t n, uint32_t quotient) const {
    return n - quotient * divisor_;
  }

 private:
  uint32_t divisor_;
  uint32_t multiplier_ = 0;
  uint32_t shift_ = 31;
};

}  // namespace stallcast::kernels
