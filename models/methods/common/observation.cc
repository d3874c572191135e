#include "models/methods/common/observation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "models/methods/common/ranking.h"
#include "models/methods/vector_kernels.h"

namespace stallcast::methods {
namespace {

// Calls visit(first token, count, dots) with the products of one panel of keys and each block of
// rows: dots[r * kPanel + t] is that of rows[r], [row][dim], with token first + t.
void ForEachPanel(const LayerTensors& tensors, int kv_head, int64_t tokens,
                  const std::vector<float>& rows,
                  const std::function<void(int64_t first, int64_t count, int64_t row,
                                           int64_t row_count, float* dots)>& visit) {
  const int64_t dim = tensors.head_dim();
  const int64_t row_count = std::ssize(rows) / dim;
  std::vector<float> keys(static_cast<size_t>(kPanel * dim)), panel(keys.size());
  std::vector<float> dots(static_cast<size_t>(kRowBlock * kPanel));
  for (int64_t first = 0; first < tokens; first += kPanel) {
    const int64_t count = std::min(kPanel, tokens - first);
    tensors.ReadKeys(kv_head, first, count, keys.data());
    PackPanel(keys.data(), count, dim, panel.data());
    for (int64_t row = 0; row < row_count; row += kRowBlock) {
      const int64_t block = std::min(kRowBlock, row_count - row);
      PanelDots(rows.data() + row * dim, block, dim, panel.data(), count, dots.data(), kPanel);
      visit(first, count, row, block, dots.data());
    }
  }
}

}  // namespace

std::vector<float> ObservationScores(const LayerTensors& tensors, int first_head, int end_head,
                                     int64_t tokens, int64_t first, int64_t end,
                                     Observed observed) {
  const int kv_head = first_head / tensors.group();
  std::vector<float> rows;
  for (int head = first_head; head < end_head; ++head) {
    for (int64_t query = first; query < end; ++query) {
      const auto values = tensors.Query(head, query);
      rows.insert(rows.end(), values.begin(), values.end());
    }
  }
  const int64_t row_count = std::ssize(rows) / tensors.head_dim();
  std::vector<OnlineSoftmax> sums(static_cast<size_t>(row_count));
  const float scale = tensors.softmax_scale();
  const bool causal = observed == Observed::kAllBefore;
  // Of a panel, how many tokens the softmax of a row is over.
  const auto seen = [&](int64_t row, int64_t at, int64_t count) {
    return causal ? std::clamp<int64_t>(first + row % (end - first) + 1 - at, 0, count) : count;
  };
  ForEachPanel(tensors, kv_head, causal ? end : tokens, rows,
               [&](int64_t at, int64_t count, int64_t row, int64_t block, float* dots) {
                 for (int64_t r = 0; r < block; ++r) {
                   const int64_t in = seen(row + r, at, count);
                   if (in > 0) AddToSoftmax(sums[row + r], dots + r * kPanel, at, in, scale, {});
                 }
               });
  std::vector<double> weights(static_cast<size_t>(tokens));
  ForEachPanel(tensors, kv_head, tokens, rows,
               [&](int64_t at, int64_t count, int64_t row, int64_t block, const float* dots) {
                 for (int64_t r = 0; r < block; ++r) {
                   const OnlineSoftmax& sum = sums[row + r];
                   const double share = 1 / (sum.total * static_cast<double>(row_count));
                   for (int64_t t = 0; t < seen(row + r, at, count); ++t) {
                     weights[at + t] +=
                         share *
                         static_cast<double>(std::exp(dots[r * kPanel + t] * scale - sum.max));
                   }
                 }
               });
  return {weights.begin(), weights.end()};
}

int64_t CommonBest(const LayerTensors& tensors, int query_head, int64_t tokens, int64_t count,
                   int64_t query_a, int64_t query_b) {
  std::vector<float> rows;
  for (int64_t query : {query_a, query_b}) {
    const auto values = tensors.Query(query_head, query);
    rows.insert(rows.end(), values.begin(), values.end());
  }
  std::vector<float> logits[2] = {std::vector<float>(static_cast<size_t>(tokens)),
                                  std::vector<float>(static_cast<size_t>(tokens))};
  ForEachPanel(tensors, query_head / tensors.group(), tokens, rows,
               [&](int64_t at, int64_t panel, int64_t /*row*/, int64_t block, const float* dots) {
                 for (int64_t r = 0; r < block; ++r) {
                   std::copy_n(dots + r * kPanel, panel, logits[r].begin() + at);
                 }
               });
  const std::vector<uint32_t> a = Best(logits[0], 0, count), b = Best(logits[1], 0, count);
  std::vector<uint32_t> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return std::ssize(both);
}

}  // namespace stallcast::methods
