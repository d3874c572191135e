#include "models/methods/common/ranking.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "models/methods/vector_kernels.h"

namespace stallcast::methods {

void PoolScores(Pooling pooling, std::span<const float* const> rows, int64_t count, float scale,
                std::vector<float>& out) {
  out.resize(static_cast<size_t>(count + kPanel));
  switch (pooling) {
    case Pooling::kSoftmaxMean:
      LogMeanSoftmax(rows, count, scale, out.data());
      break;
    case Pooling::kSoftmaxMeanUnscaled:
      LogMeanSoftmax(rows, count, 1.0f, out.data());
      break;
    case Pooling::kMean:
      std::copy(rows[0], rows[0] + count, out.begin());
      for (const float* row : rows.subspan(1)) {
        for (int64_t i = 0; i < count; ++i) out[i] += row[i];
      }
      for (int64_t i = 0; i < count; ++i) out[i] /= static_cast<float>(rows.size());
      break;
    case Pooling::kMax:
      std::copy(rows[0], rows[0] + count, out.begin());
      for (const float* row : rows.subspan(1)) {
        for (int64_t i = 0; i < count; ++i) out[i] = std::max(out[i], row[i]);
      }
      break;
    case Pooling::kSoftmaxMax:
      LogMaxSoftmax(rows, count, scale, out.data());
      break;
  }
  out.resize(static_cast<size_t>(count));
}

std::vector<uint32_t> Best(std::span<const uint32_t> ids, std::span<const float> scores,
                           uint32_t first_id, int64_t count) {
  if (count >= static_cast<int64_t>(ids.size())) return {ids.begin(), ids.end()};
  if (count <= 0) return {};
  std::vector<float> ranked;
  ranked.reserve(ids.size());
  for (uint32_t id : ids) ranked.push_back(scores[id - first_id]);
  std::nth_element(ranked.begin(), ranked.begin() + count - 1, ranked.end(), std::greater<>());
  const float last = ranked[static_cast<size_t>(count - 1)];
  // Of those that tie with the last one, as many as are left over.
  int64_t ties = count - std::count_if(ranked.begin(), ranked.begin() + count,
                                       [last](float score) { return score > last; });
  // Written whether taken or not: a branch here would be mispredicted every other time.
  std::vector<uint32_t> best(static_cast<size_t>(count) + 1);
  size_t taken = 0;
  for (uint32_t id : ids) {
    const float score = scores[id - first_id];
    best[taken] = id;
    taken += score > last || (score == last && ties-- > 0) ? 1 : 0;
  }
  best.pop_back();
  return best;
}

std::vector<uint32_t> Best(std::span<const float> scores, uint32_t first_id, int64_t count) {
  std::vector<uint32_t> ids(scores.size());
  std::iota(ids.begin(), ids.end(), first_id);
  return Best(ids, scores, first_id, count);
}

std::vector<Taken> BestWithin(std::span<const float> scores, std::span<const uint32_t> offsets,
                              int64_t capacity) {
  std::vector<uint32_t> heap(scores.size());
  std::iota(heap.begin(), heap.end(), 0u);
  const auto worse = [scores](uint32_t a, uint32_t b) {
    return scores[a] != scores[b] ? scores[a] < scores[b] : a > b;
  };
  std::make_heap(heap.begin(), heap.end(), worse);
  std::vector<Taken> taken;
  for (auto end = heap.end(); end != heap.begin() && capacity > 0; --end) {
    const uint32_t unit = heap.front();
    std::pop_heap(heap.begin(), end, worse);
    const int64_t tokens = std::min<int64_t>(offsets[unit + 1] - offsets[unit], capacity);
    taken.push_back({unit, tokens});
    capacity -= tokens;
  }
  std::sort(taken.begin(), taken.end(),
            [](const Taken& a, const Taken& b) { return a.unit < b.unit; });
  return taken;
}

}  // namespace stallcast::methods
