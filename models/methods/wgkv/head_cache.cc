#include "models/methods/wgkv/head_cache.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/methods/common/page_scores.h"
#include "models/methods/vector_kernels.h"

namespace stallcast::methods {

HeadCache::HeadCache(const LayerTensors& tensors, int head, int64_t page, bool summaries)
    : tensors_(tensors), head_(head), page_(page), summaries_(summaries) {}

void HeadCache::Add(uint32_t token) {
  tokens_.push_back(token);
  if (summaries_ && size() % page_ == 0) SummarizeLast();
}

void HeadCache::Keep(std::span<const uint32_t> tokens) {
  tokens_.clear();
  bounds_.clear();
  for (const uint32_t token : tokens) Add(token);
}

void HeadCache::SummarizeLast() {
  const int64_t dim = tensors_.head_dim();
  std::vector<float> keys(static_cast<size_t>(page_ * dim));
  for (int64_t i = 0; i < page_; ++i) {
    tensors_.ReadKeys(head_, tokens_[tokens_.size() - page_ + i], 1, keys.data() + i * dim);
  }
  bounds_.resize(bounds_.size() + static_cast<size_t>(2 * dim));
  float* upper = bounds_.data() + bounds_.size() - 2 * dim;
  SummarizePage(PageSummary::kMinMax, keys.data(), page_, dim, upper, upper + dim);
}

void HeadCache::ScorePages(std::span<const float> query, std::vector<float>& scores) const {
  const int64_t dim = tensors_.head_dim();
  scores.assign(static_cast<size_t>(whole_pages()), 0);
  for (size_t page = 0; page < scores.size(); ++page) {
    const float* upper = bounds_.data() + static_cast<int64_t>(page) * 2 * dim;
    float sum = 0;
    for (int64_t i = 0; i < dim; ++i) {
      sum += std::max(query[i] * upper[i], query[i] * upper[dim + i]);
    }
    scores[page] = sum;
  }
}

std::vector<float> Importance(const LayerTensors& tensors, int head,
                              std::span<const uint32_t> cached, int64_t window_begin,
                              int64_t window, int64_t first, int64_t last, int64_t smooth) {
  const int64_t dim = tensors.head_dim();
  const int64_t count = static_cast<int64_t>(cached.size()) + window;
  const int64_t stride = (count + kPanel - 1) / kPanel * kPanel;
  std::vector<float> panels(static_cast<size_t>(stride * dim));
  std::vector<float> keys(static_cast<size_t>(kPanel * dim));
  const auto token_of = [&](int64_t i) {
    const auto all = static_cast<int64_t>(cached.size());
    return i < all ? int64_t{cached[i]} : window_begin + i - all;
  };
  for (int64_t p = 0; p < count; p += kPanel) {
    const int64_t columns = std::min(kPanel, count - p);
    for (int64_t c = 0; c < columns; ++c) {
      tensors.ReadKeys(head, token_of(p + c), 1, keys.data() + c * dim);
    }
    PackPanel(keys.data(), columns, dim, panels.data() + p * dim);
  }
  std::vector<double> sums(static_cast<size_t>(count));
  std::vector<float> dots(static_cast<size_t>(kRowBlock * stride)), largest(sums.size());
  std::vector<float> rows(static_cast<size_t>(kRowBlock * dim));
  for (int64_t token = first; token < last; ++token) {
    std::ranges::fill(largest, 0.0f);
    for (int begin = 0; begin < tensors.group(); begin += static_cast<int>(kRowBlock)) {
      const int heads = std::min(static_cast<int>(kRowBlock), tensors.group() - begin);
      for (int g = 0; g < heads; ++g) {
        std::ranges::copy(tensors.Query(head * tensors.group() + begin + g, token),
                          rows.begin() + g * dim);
      }
      for (int64_t p = 0; p < stride; p += kPanel) {
        PanelDots(rows.data(), heads, dim, panels.data() + p * dim, std::min(kPanel, count - p),
                  dots.data() + p, stride);
      }
      for (int g = 0; g < heads; ++g) {
        float* row = dots.data() + g * stride;
        // A query sees what is not later than itself.
        int64_t seen = count;
        while (seen > 0 && token_of(seen - 1) > token) --seen;
        const float most = *std::max_element(row, row + seen);
        double total = 0;
        for (int64_t i = 0; i < seen; ++i) {
          row[i] = std::exp(tensors.softmax_scale() * (row[i] - most));
          total += row[i];
        }
        for (int64_t i = 0; i < seen; ++i) {
          largest[i] = std::max(largest[i], static_cast<float>(row[i] / total));
        }
      }
    }
    for (int64_t i = 0; i < count; ++i) sums[i] += largest[i];
  }
  std::vector<float> pooled(cached.size());
  const int64_t reach = smooth / 2;
  for (int64_t i = 0; i < static_cast<int64_t>(cached.size()); ++i) {
    const auto from = sums.begin() + std::max<int64_t>(0, i - reach);
    const auto to = sums.begin() + std::min(count, i + reach + 1);
    pooled[i] = static_cast<float>(*std::max_element(from, to));
  }
  return pooled;
}

}  // namespace stallcast::methods
