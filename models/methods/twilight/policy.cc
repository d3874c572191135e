#include "models/methods/twilight/policy.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "models/methods/common/log_cells.h"
#include "models/methods/common/page_cache.h"
#include "models/methods/common/page_scores.h"
#include "models/methods/common/ranking.h"
#include "models/methods/common/token_scores.h"

namespace stallcast::methods {

std::vector<uint32_t> TopP(std::span<const uint32_t> ids, std::span<const double> weights,
                           double share) {
  std::vector<std::pair<double, uint32_t>> ranked;  // of less weight, larger id: smaller
  for (size_t i = 0; i < ids.size(); ++i) ranked.emplace_back(-weights[i], ids[i]);
  // Halves are ordered only where the share is reached within.
  auto taken = ranked.begin(), end = ranked.end();
  double held = 0;
  while (end - taken > 1) {
    const auto middle = taken + (end - taken) / 2;
    std::nth_element(taken, middle, end);
    double half = 0;
    for (auto it = taken; it != middle; ++it) half -= it->first;
    if (held + half >= share) {
      end = middle;
    } else {
      held += half;
      taken = middle;
    }
  }
  std::vector<uint32_t> chosen;
  for (auto it = ranked.begin(); it != end; ++it) chosen.push_back(it->second);
  std::ranges::sort(chosen);
  return chosen;
}

namespace {

// Each channel as the nearest of 2^bits values from the key's least to its largest.
void Quantise(int64_t bits, int64_t dim, int64_t count, float* keys) {
  const auto steps = static_cast<float>((1 << bits) - 1);
  for (int64_t t = 0; t < count; ++t) {
    float* key = keys + t * dim;
    const auto [least, largest] = std::minmax_element(key, key + dim);
    const float low = *least, step = (*largest - low) / steps;
    if (step <= 0) continue;
    for (int64_t i = 0; i < dim; ++i) key[i] = low + step * std::nearbyint((key[i] - low) / step);
  }
}

}  // namespace

void TwilightPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                            AttendedRanges& attended) const {
  const int heads = tensors.query_heads();
  const int64_t prompt = tensors.prompt_tokens(), page = params_.page;
  const PageRegions regions{page, /*sink_pages=*/0, /*window_pages=*/1};
  PageScores bounds(tensors, page, PageSummary::kMinMax);
  TokenScores estimates(tensors, [&](int64_t count, float* keys) {
    Quantise(params_.bits, tensors.head_dim(), count, keys);
  });
  LogCells cells(access, attended, heads);
  std::vector<std::vector<uint32_t>> chosen(static_cast<size_t>(heads));
  int64_t loaded = prompt;
  for (int step = 0; step < tensors.steps(); ++step) {
    const int64_t token = prompt + step;
    if (token >= loaded) {
      bounds.Load(token);
      loaded = estimates.Load(token);  // blocks of the same size
    }
    const int64_t end = regions.SelectableEnd(token + 1);
    tbb::parallel_for(0, heads, [&](int head) {
      const std::span<const float> scores(bounds.Of(head, token), static_cast<size_t>(end));
      std::vector<uint32_t> offered;
      for (const uint32_t id : Best(scores, 0, params_.pages())) {
        for (int64_t t = id * page; t < (id + 1) * page; ++t) {
          offered.push_back(static_cast<uint32_t>(t));
        }
      }
      for (int64_t t = end * page; t <= token; ++t) offered.push_back(static_cast<uint32_t>(t));
      const float* dots = estimates.Of(head, token);
      float most = -INFINITY;
      for (const uint32_t t : offered) most = std::max(most, dots[t]);
      std::vector<double> weights;
      for (const uint32_t t : offered) {
        weights.push_back(
            static_cast<double>(std::exp(tensors.softmax_scale() * (dots[t] - most))));
      }
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (double& weight : weights) weight /= sum;
      chosen[head] = TopP(offered, weights, params_.top_p);
    });
    for (int head = 0; head < heads; ++head) {
      for (const uint32_t t : chosen[head]) attended.Add(t, int64_t{t} + 1);
      cells.End({.flags = traces::kSelectedNow});
    }
  }
}

}  // namespace stallcast::methods
