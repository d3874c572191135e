#include "models/methods/projection.h"

#include <algorithm>
#include <cmath>

namespace stallcast::methods {

std::vector<int> LayersByDepth(int layers, std::span<const int> traced, int traced_layers) {
  std::vector<int> nearest;
  for (int layer = 0; layer < layers; ++layer) {
    const double depth = (layer + 0.5) / layers;
    const auto distance = [&](int of) { return std::abs((of + 0.5) / traced_layers - depth); };
    const auto best = std::min_element(traced.begin(), traced.end(),
                                       [&](int a, int b) { return distance(a) < distance(b); });
    nearest.push_back(static_cast<int>(best - traced.begin()));
  }
  return nearest;
}

}  // namespace stallcast::methods
