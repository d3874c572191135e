#include "kernels/executor/selection_check.h"

#include <algorithm>
#include <vector>

namespace stallcast::kernels {

void SelectionCheck::Compare(std::span<const int32_t> device, std::span<const uint32_t> expected) {
  std::vector<int64_t> a(device.begin(), device.end()), b(expected.begin(), expected.end()), both;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  selected += static_cast<int64_t>(std::max(a.size(), b.size()));
  equal += static_cast<int64_t>(both.size());
}

}  // namespace stallcast::kernels
