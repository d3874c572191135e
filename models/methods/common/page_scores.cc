#include "models/methods/common/page_scores.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/methods/common/bf16.h"

namespace stallcast::methods {

void SummarizePage(PageSummary kind, const float* keys, int64_t tokens, int64_t dim, float* upper,
                   float* lower) {
  std::copy(keys, keys + dim, upper);
  std::copy(keys, keys + dim, lower);
  for (int64_t t = 1; t < tokens; ++t) {
    const float* key = keys + t * dim;
    for (int64_t i = 0; i < dim; ++i) {
      upper[i] = std::max(upper[i], key[i]);
      lower[i] = std::min(lower[i], key[i]);
    }
  }
  if (kind == PageSummary::kMinMax) return;
  std::vector<float> radius(static_cast<size_t>(dim));
  for (int64_t i = 0; i < dim; ++i) upper[i] = (upper[i] + lower[i]) / 2;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < dim; ++i) radius[i] += std::abs(upper[i] - keys[t * dim + i]);
  }
  for (int64_t i = 0; i < dim; ++i) {
    const float centre = upper[i];
    upper[i] = RoundToBf16(centre + radius[i] / static_cast<float>(tokens));
    lower[i] = RoundToBf16(centre - radius[i] / static_cast<float>(tokens));
  }
}

PageScores::PageScores(const LayerTensors& tensors, int64_t page_tokens, PageSummary summary)
    : UnitScores(tensors, Kind::kBounds,
                 std::vector<int64_t>(static_cast<size_t>(tensors.kv_heads()),
                                      (tensors.prompt_tokens() + tensors.steps()) / page_tokens),
                 tensors.prompt_tokens() + tensors.steps(),
                 [&](int head, int64_t first, int64_t count, float* columns) {
                   const int64_t dim = tensors.head_dim();
                   std::vector<float> keys(static_cast<size_t>(page_tokens * dim));
                   for (int64_t p = 0; p < count; ++p) {
                     float* upper = columns + p * 2 * dim;
                     tensors.ReadKeys(head, (first + p) * page_tokens, page_tokens, keys.data());
                     SummarizePage(summary, keys.data(), page_tokens, dim, upper, upper + dim);
                   }
                 }) {}

}  // namespace stallcast::methods
