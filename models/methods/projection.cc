#include "models/methods/projection.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace stallcast::methods {

std::vector<int> LayersByDepth(int layers, std::span<const int> traced, int traced_layers) {
  std::vector<int> nearest;
  for (int layer = 0; layer < layers; ++layer) {
    // Of the middles of layers, times 2 * layers * traced_layers: whole numbers, so that ties are.
    const auto distance = [&](int64_t of) {
      return std::abs((2 * of + 1) * layers - (2 * int64_t{layer} + 1) * traced_layers);
    };
    const auto best = std::min_element(traced.begin(), traced.end(),
                                       [&](int a, int b) { return distance(a) < distance(b); });
    nearest.push_back(static_cast<int>(best - traced.begin()));
  }
  return nearest;
}

std::vector<TracedKvHead> TracedKvHeads(std::span<const int> traced, int layer, int heads,
                                        int kv_heads) {
  std::vector<int> lenders(traced.begin(), traced.end());
  std::stable_sort(lenders.begin(), lenders.end(),
                   [&](int a, int b) { return std::abs(a - layer) < std::abs(b - layer); });
  std::vector<TracedKvHead> found;
  for (int head = 0; head < kv_heads; ++head) {
    const auto lender = static_cast<size_t>(head / heads) % lenders.size();
    found.push_back({lenders[lender], head % heads});
  }
  return found;
}

}  // namespace stallcast::methods
