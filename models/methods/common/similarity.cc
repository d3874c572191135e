#include "models/methods/common/similarity.h"

#include <cmath>
#include <limits>

namespace stallcast::methods {

float AdjacentSimilarity(const LayerTensors& tensors, int first, int last, int64_t token) {
  if (token - 1 < tensors.first_query_token()) return std::numeric_limits<float>::quiet_NaN();
  double sum = 0;
  for (int head = first; head < last; ++head) {
    const std::span<const float> a = tensors.Query(head, token);
    const std::span<const float> b = tensors.Query(head, token - 1);
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      ab += static_cast<double>(a[i]) * b[i];
      aa += static_cast<double>(a[i]) * a[i];
      bb += static_cast<double>(b[i]) * b[i];
    }
    if (aa > 0 && bb > 0) sum += ab / std::sqrt(aa * bb);
  }
  return static_cast<float>(sum / (last - first));
}

}  // namespace stallcast::methods
