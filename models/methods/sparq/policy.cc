#include "models/methods/sparq/policy.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/methods/common/log_cells.h"
#include "models/methods/common/ranking.h"
#include "models/methods/vector_kernels.h"

namespace stallcast::methods {
namespace {

// The keys of a KV head, channel by channel.
class KeysByChannel {
 public:
  KeysByChannel(const LayerTensors& tensors, int kv_head)
      : dim_(tensors.head_dim()), tokens_(tensors.prompt_tokens() + tensors.steps()) {
    keys_.resize(static_cast<size_t>(dim_ * tokens_));
    tbb::parallel_for(int64_t{0}, (tokens_ + kPanel - 1) / kPanel, [&](int64_t block) {
      const int64_t first = block * kPanel, count = std::min(kPanel, tokens_ - first);
      std::vector<float> rows(static_cast<size_t>(count * dim_));
      tensors.ReadKeys(kv_head, first, count, rows.data());
      for (int64_t i = 0; i < dim_; ++i) {
        float* channel = keys_.data() + i * tokens_ + first;
        for (int64_t t = 0; t < count; ++t) channel[t] = rows[t * dim_ + i];
      }
    });
  }
  const float* Channel(int64_t i) const { return keys_.data() + i * tokens_; }

 private:
  int64_t dim_, tokens_;
  std::vector<float> keys_;
};

// The best `count` of the first `tokens` tokens for the queries of a group at `token`.
std::vector<uint32_t> Choose(const LayerTensors& tensors, const KeysByChannel& keys, int kv_head,
                             int64_t token, int64_t tokens, int64_t channels, int64_t count) {
  const int group = tensors.group();
  std::vector<float> size(static_cast<size_t>(tensors.head_dim()));
  for (int g = 0; g < group; ++g) {
    const auto query = tensors.Query(kv_head * group + g, token);
    for (size_t i = 0; i < size.size(); ++i) size[i] += std::abs(query[i]);
  }
  const std::vector<uint32_t> largest = Best(size, 0, channels);
  std::vector<float> scores(static_cast<size_t>(group * tokens + kPanel)), pooled;
  std::vector<const float*> rows;
  for (int g = 0; g < group; ++g) {
    const auto query = tensors.Query(kv_head * group + g, token);
    float* row = scores.data() + g * tokens;
    rows.push_back(row);
    double held = 0, all = 0;
    for (const float x : query) all += static_cast<double>(std::abs(x));
    for (const uint32_t i : largest) held += static_cast<double>(std::abs(query[i]));
    const auto scale = static_cast<float>(held > 0 ? std::sqrt(all / held) : 0);
    for (const uint32_t i : largest) {
      const float* channel = keys.Channel(i);
      const float x = query[i] * scale;
      for (int64_t t = 0; t < tokens; ++t) row[t] += x * channel[t];
    }
  }
  PoolScores(Pooling::kSoftmaxMean, rows, tokens, tensors.softmax_scale(), pooled);
  return Best(pooled, 0, count);
}

}  // namespace

void SparQPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                         AttendedRanges& attended) const {
  const int heads = tensors.kv_heads();
  const int64_t prompt = tensors.prompt_tokens(), steps = tensors.steps();
  const int64_t channels = std::min<int64_t>(params_.channels, tensors.head_dim());
  std::vector<std::vector<uint32_t>> chosen(static_cast<size_t>(steps * heads));
  for (int head = 0; head < heads; ++head) {
    const KeysByChannel keys(tensors, head);
    tbb::parallel_for(int64_t{0}, steps, [&](int64_t step) {
      const int64_t tokens = prompt + step + 1 - params_.window;
      if (tokens <= 0) return;
      chosen[step * heads + head] = Choose(tensors, keys, head, prompt + step, tokens, channels,
                                           params_.budget - params_.window);
    });
  }
  LogCells cells(access, attended, heads);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t context = prompt + step + 1;
    for (int head = 0; head < heads; ++head) {
      const std::vector<uint32_t>& tokens = chosen[step * heads + head];
      for (const uint32_t t : tokens) attended.Add(t, int64_t{t} + 1);
      attended.Add(std::max<int64_t>(0, context - params_.window), context);
      const bool selects = context > params_.budget;
      cells.End(
          {.flags = selects ? uint8_t{traces::kSelectedNow} : uint8_t{0}, .selected = tokens});
    }
  }
}

}  // namespace stallcast::methods
