// What any method is measured against: choices made with the true attention weights.
#pragma once

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "models/methods/common/log_cells.h"
#include "models/methods/common/ranking.h"
#include "models/methods/method.h"
#include "models/methods/vector_kernels.h"

namespace stallcast::methods {

/// Chooses `budget` tokens a KV head by their true attention weight, the mean over the group's
/// query heads. No choice of as many tokens covers more attention mass.
class TokenReference final : public Policy {
 public:
  enum class Choice : uint8_t {
    kOracle,  ///< of the step's own query
    /// Of the query before, and the newest token: what reuse without any index could reach. A trace
    /// without that query starts from its own.
    kReuse,
  };

  TokenReference(int64_t budget, Choice choice) : budget_(budget), choice_(choice) {}
  Unit unit() const override { return {"token", 1}; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  int64_t budget_;
  Choice choice_;
};

inline constexpr int64_t kBlockSteps = 4 * kRowBlock;

/// The `budget` tokens of most weight for `steps` queries of a KV head from `first_token` on.
inline std::vector<std::vector<uint32_t>> BestTokens(const LayerTensors& tensors, int kv_head,
                                                     int64_t first_token, int64_t steps,
                                                     int64_t budget) {
  const int64_t dim = tensors.head_dim();
  const int64_t tokens = first_token + steps;
  const int64_t stride = (tokens + kPanel - 1) / kPanel * kPanel;
  const int group = tensors.group();
  std::vector<float> keys(static_cast<size_t>(kPanel * dim));
  std::vector<float> panel(static_cast<size_t>(dim * kPanel));
  std::vector<float> dots(static_cast<size_t>(group * steps * stride + kPanel));
  for (int64_t begin = 0; begin < tokens; begin += kPanel) {
    const int64_t columns = std::min(kPanel, tokens - begin);
    tensors.ReadKeys(kv_head, begin, columns, keys.data());
    PackPanel(keys.data(), columns, dim, panel.data());
    for (int g = 0; g < group; ++g) {
      for (int64_t step = 0; step < steps; step += kRowBlock) {
        PanelDots(tensors.Query(kv_head * group + g, first_token + step).data(),
                  std::min(kRowBlock, steps - step), dim, panel.data(), columns,
                  dots.data() + (g * steps + step) * stride + begin, stride);
      }
    }
  }
  std::vector<std::vector<uint32_t>> best;
  std::vector<const float*> rows(static_cast<size_t>(group));
  std::vector<float> pooled;
  for (int64_t s = 0; s < steps; ++s) {
    for (int g = 0; g < group; ++g) rows[g] = dots.data() + (g * steps + s) * stride;
    PoolScores(Pooling::kSoftmaxMean, rows, first_token + s + 1, tensors.softmax_scale(), pooled);
    best.push_back(Best(pooled, 0, budget));
  }
  return best;
}

inline void TokenReference::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                                   AttendedRanges& attended) const {
  const int heads = tensors.kv_heads();
  const int64_t before = choice_ == Choice::kReuse ? 1 : 0;
  const int64_t end = tensors.prompt_tokens() + tensors.steps();
  std::vector<std::vector<std::vector<uint32_t>>> chosen(static_cast<size_t>(heads));
  LogCells cells(access, attended, heads);
  const auto query_for = [&](int64_t token) {
    return std::max(token - before, tensors.first_query_token());
  };
  for (int64_t block = tensors.prompt_tokens(); block < end; block += kBlockSteps) {
    const int64_t block_end = std::min(block + kBlockSteps, end);
    const int64_t first = query_for(block);
    tbb::parallel_for(0, heads, [&](int head) {
      chosen[head] =
          BestTokens(tensors, head, first, query_for(block_end - 1) - first + 1, budget_ - before);
    });
    for (int64_t token = block; token < block_end; ++token) {
      for (int head = 0; head < heads; ++head) {
        std::vector<uint32_t> ids = chosen[head][query_for(token) - first];
        if (before > 0 && (ids.empty() || ids.back() < token)) {
          ids.push_back(static_cast<uint32_t>(token));
        }
        for (uint32_t id : ids) attended.Add(id, int64_t{id} + 1);
        cells.End({.flags = traces::kSelectedNow, .selected = ids});
      }
    }
  }
}

}  // namespace stallcast::methods
