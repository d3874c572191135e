#include "models/methods/common/token_scores.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <utility>

#include "models/methods/vector_kernels.h"

namespace stallcast::methods {

TokenScores::TokenScores(const LayerTensors& tensors, Transform transform)
    : tensors_(tensors), transform_(std::move(transform)) {
  const int64_t tokens = tensors.prompt_tokens() + tensors.steps();
  stride_ = (tokens + kPanel - 1) / kPanel * kPanel;
  scores_.resize(static_cast<size_t>(tensors.query_heads() * kRowBlock * stride_ + kPanel));
}

const float* TokenScores::Of(int query_head, int64_t token) const {
  return scores_.data() + (query_head * kRowBlock + token - block_begin_) * stride_;
}

int64_t TokenScores::Load(int64_t token) {
  block_begin_ = token;
  const int64_t end = std::min(token + kRowBlock, tensors_.prompt_tokens() + tensors_.steps());
  const int64_t dim = tensors_.head_dim(), panels = (end + kPanel - 1) / kPanel;
  const int group = tensors_.group();
  tbb::parallel_for(int64_t{0}, tensors_.kv_heads() * panels, [&](int64_t task) {
    const auto kv_head = static_cast<int>(task / panels);
    const int64_t first = task % panels * kPanel, count = std::min(kPanel, end - first);
    std::vector<float> keys(static_cast<size_t>(kPanel * dim)), panel(keys.size());
    tensors_.ReadKeys(kv_head, first, count, keys.data());
    if (transform_) transform_(count, keys.data());
    PackPanel(keys.data(), count, dim, panel.data());
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      PanelDots(tensors_.Query(head, token).data(), end - token, dim, panel.data(), count,
                scores_.data() + head * kRowBlock * stride_ + first, stride_);
    }
  });
  return end;
}

}  // namespace stallcast::methods
