#include "models/methods/common/page_scores.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "models/methods/common/vector_kernels.h"

namespace stallcast::methods {
namespace {

constexpr int64_t kBlockTokens = 4 * kRowBlock;

}  // namespace

namespace {

// To the nearest, ties to even; finite values.
float RoundToBf16(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  bits += 0x7fffu + (bits >> 16 & 1u);
  return std::bit_cast<float>(bits & 0xffff0000u);
}

}  // namespace

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
    : tensors_(tensors) {
  const int64_t dim = tensors.head_dim();
  pages_ = (tensors.prompt_tokens() + tensors.steps()) / page_tokens;
  const int64_t panels = (pages_ + kPanel - 1) / kPanel;
  stride_ = panels * kPanel;
  const int64_t panel_size = 2 * dim * kPanel;
  panels_.resize(static_cast<size_t>(tensors.kv_heads() * panels * panel_size));
  tbb::parallel_for(int64_t{0}, tensors.kv_heads() * panels, [&](int64_t task) {
    const int64_t head = task / panels;
    const int64_t first = task % panels * kPanel;
    const int64_t count = std::min(kPanel, pages_ - first);
    std::vector<float> columns(static_cast<size_t>(count * 2 * dim));
    std::vector<float> keys(static_cast<size_t>(page_tokens * dim));
    for (int64_t p = 0; p < count; ++p) {
      float* upper = columns.data() + p * 2 * dim;
      tensors.ReadKeys(static_cast<int>(head), (first + p) * page_tokens, page_tokens, keys.data());
      SummarizePage(summary, keys.data(), page_tokens, dim, upper, upper + dim);
    }
    PackPanel(columns.data(), count, 2 * dim, panels_.data() + task * panel_size);
  });
  scores_.resize(static_cast<size_t>(tensors.query_heads() * kBlockTokens * stride_ + kPanel));
}

const float* PageScores::Of(int query_head, int64_t token) const {
  return scores_.data() + (query_head * kBlockTokens + token - block_begin_) * stride_;
}

int64_t PageScores::Load(int64_t token) {
  block_begin_ = token;
  const int64_t end = std::min(token + kBlockTokens, tensors_.prompt_tokens() + tensors_.steps());
  const int64_t tokens = end - token;
  const int64_t dim = tensors_.head_dim();
  const int64_t panels = stride_ / kPanel;
  tbb::parallel_for(0, tensors_.query_heads(), [&](int head) {
    // max(q * upper, q * lower) is q * upper where q > 0, else q * lower: a plain product with
    // [max(q, 0), min(q, 0)].
    std::vector<float> rows(static_cast<size_t>(tokens * 2 * dim));
    for (int64_t t = 0; t < tokens; ++t) {
      const std::span<const float> query = tensors_.Query(head, token + t);
      float* row = rows.data() + t * 2 * dim;
      for (int64_t i = 0; i < dim; ++i) {
        row[i] = std::max(query[i], 0.0f);
        row[dim + i] = std::min(query[i], 0.0f);
      }
    }
    const int64_t first_panel = head / tensors_.group() * panels;
    for (int64_t p = 0; p < panels; ++p) {
      for (int64_t t = 0; t < tokens; t += kRowBlock) {
        PanelDots(rows.data() + t * 2 * dim, std::min(kRowBlock, tokens - t), 2 * dim,
                  panels_.data() + (first_panel + p) * 2 * dim * kPanel,
                  std::min(kPanel, pages_ - p * kPanel),
                  scores_.data() + (head * kBlockTokens + t) * stride_ + p * kPanel, stride_);
      }
    }
  });
  return end;
}

}  // namespace stallcast::methods
