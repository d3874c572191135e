#include "models/methods/common/unit_scores.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <utility>

#include "models/methods/vector_kernels.h"

namespace stallcast::methods {
namespace {

constexpr int64_t kBlockTokens = kRowBlock;

}  // namespace

UnitScores::UnitScores(const LayerTensors& tensors, Kind kind, std::vector<int64_t> units,
                       int64_t end_token, const Fill& fill)
    : tensors_(tensors), kind_(kind), units_(std::move(units)), end_token_(end_token) {
  column_ = int64_t{tensors.head_dim()} * (kind == Kind::kBounds ? 2 : 1);
  const int64_t most = *std::max_element(units_.begin(), units_.end());
  panels_a_head_ = (most + kPanel - 1) / kPanel;
  const int64_t panel_size = column_ * kPanel;
  panels_.resize(static_cast<size_t>(tensors.kv_heads() * panels_a_head_ * panel_size));
  tbb::parallel_for(int64_t{0}, tensors.kv_heads() * panels_a_head_, [&](int64_t task) {
    const auto head = static_cast<int>(task / panels_a_head_);
    const int64_t first = task % panels_a_head_ * kPanel;
    const int64_t count = std::clamp<int64_t>(units_[head] - first, 0, kPanel);
    std::vector<float> columns(static_cast<size_t>(count * column_));
    if (count > 0) fill(head, first, count, columns.data());
    PackPanel(columns.data(), count, column_, panels_.data() + task * panel_size);
  });
  scores_.resize(
      static_cast<size_t>(tensors.query_heads() * kBlockTokens * panels_a_head_ * kPanel + kPanel));
}

const float* UnitScores::Of(int query_head, int64_t token) const {
  return scores_.data() +
         (query_head * kBlockTokens + token - block_begin_) * panels_a_head_ * kPanel;
}

int64_t UnitScores::Load(int64_t token) {
  block_begin_ = token;
  const int64_t end = std::min(token + kBlockTokens, end_token_);
  const int64_t tokens = end - token;
  const int64_t dim = tensors_.head_dim();
  const int64_t stride = panels_a_head_ * kPanel;
  tbb::parallel_for(0, tensors_.query_heads(), [&](int head) {
    std::vector<float> rows(static_cast<size_t>(tokens * column_));
    for (int64_t t = 0; t < tokens; ++t) {
      const std::span<const float> query = tensors_.Query(head, token + t);
      float* row = rows.data() + t * column_;
      if (kind_ == Kind::kVector) {
        std::copy(query.begin(), query.end(), row);
        continue;
      }
      // max(q * upper, q * lower) is q * upper where q > 0, else q * lower: a plain product with
      // [max(q, 0), min(q, 0)].
      for (int64_t i = 0; i < dim; ++i) {
        row[i] = std::max(query[i], 0.0f);
        row[dim + i] = std::min(query[i], 0.0f);
      }
    }
    const int kv_head = head / tensors_.group();
    for (int64_t p = 0; p < panels_a_head_; ++p) {
      const int64_t count = std::min(kPanel, units_[kv_head] - p * kPanel);
      if (count <= 0) break;
      for (int64_t t = 0; t < tokens; t += kRowBlock) {
        PanelDots(rows.data() + t * column_, std::min(kRowBlock, tokens - t), column_,
                  panels_.data() + (kv_head * panels_a_head_ + p) * column_ * kPanel, count,
                  scores_.data() + (head * kBlockTokens + t) * stride + p * kPanel, stride);
      }
    }
  });
  return end;
}

}  // namespace stallcast::methods
