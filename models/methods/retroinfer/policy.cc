#include "models/methods/retroinfer/policy.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <vector>

#include "models/methods/common/cluster_index.h"
#include "models/methods/common/log_cells.h"
#include "models/methods/common/ranking.h"
#include "models/methods/common/unit_buffer.h"
#include "models/methods/common/unit_scores.h"

namespace stallcast::methods {
namespace {

// A head's clusters, those of decoded segments last, and how many there are after each of them.
struct Head {
  ClusterIndex index;
  std::vector<int64_t> known;  // by updates so far
};

Head IndexOf(const LayerTensors& tensors, const RetroInferParams& params, int kv_head) {
  Head head;
  const int64_t prompt = tensors.prompt_tokens(), tokens = params.Clustered(prompt);
  for (int64_t at = 0; at < tokens; at += params.segment) {
    const int64_t count = std::min(params.segment, tokens - at);
    head.index.Add(tensors, kv_head, params.sink + at, count, params.ClustersOf(count),
                   params.iterations);
  }
  head.known.push_back(head.index.size());
  for (int64_t i = 0; tokens > 0 && i < params.Updates(tensors.steps() - 1); ++i) {
    head.index.Add(tensors, kv_head, params.sink + tokens + i * params.update, params.update,
                   params.ClustersOf(params.update), params.iterations);
    head.known.push_back(head.index.size());
  }
  return head;
}

}  // namespace

void RetroInferPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                              AttendedRanges& attended) const {
  const int heads = tensors.kv_heads();
  const int64_t prompt = tensors.prompt_tokens();
  const bool sparse = params_.Clustered(prompt) > 0;
  std::vector<Head> all(static_cast<size_t>(heads));
  tbb::parallel_for(0, heads, [&](int head) { all[head] = IndexOf(tensors, params_, head); });
  std::vector<int64_t> counts;
  for (const Head& head : all) counts.push_back(std::max<int64_t>(head.index.size(), 1));
  UnitScores scores(tensors, UnitScores::Kind::kVector, counts, prompt + tensors.steps(),
                    [&](int head, int64_t first, int64_t count, float* columns) {
                      if (!sparse) return;
                      FillCentroids(tensors, head, all[head].index, first, count, columns);
                    });
  const int64_t slots = params_.Slots(params_.Clusters(prompt, std::max(0, tensors.steps() - 1)));
  std::vector<UnitBuffer> caches;
  for (int head = 0; head < heads; ++head) {
    caches.emplace_back(slots, Replacement::kLru, /*seed=*/0);
  }
  LogCells cells(access, attended, heads);
  std::vector<std::vector<uint32_t>> chosen(static_cast<size_t>(heads)), missing = chosen;
  int64_t loaded = prompt;
  for (int step = 0; step < tensors.steps(); ++step) {
    const int64_t token = prompt + step;
    if (!sparse) {
      for (int head = 0; head < heads; ++head) {
        attended.Add(0, token + 1);
        cells.End({});
      }
      continue;
    }
    if (token >= loaded) loaded = scores.Load(token);
    const int64_t retrieved = params_.Retrieved(params_.Clusters(prompt, step));
    const auto updates = static_cast<size_t>(params_.Updates(step));
    tbb::parallel_for(0, heads, [&](int head) {
      std::vector<const float*> rows;
      for (int g = 0; g < tensors.group(); ++g) {
        rows.push_back(scores.Of(head * tensors.group() + g, token));
      }
      std::vector<float> pooled;
      PoolScores(Pooling::kSoftmaxMean, rows, all[head].known[updates], tensors.softmax_scale(),
                 pooled);
      chosen[head] = Best(pooled, 0, retrieved);
      missing[head] = caches[head].Use(step, chosen[head], {});
    });
    const int64_t steady = params_.Steady(prompt, step) - params_.sink;
    for (int head = 0; head < heads; ++head) {
      std::vector<uint32_t> tokens;
      for (const uint32_t cluster : chosen[head]) {
        const auto of_cluster = all[head].index.Tokens(cluster);
        tokens.insert(tokens.end(), of_cluster.begin(), of_cluster.end());
      }
      std::ranges::sort(tokens);
      attended.Add(0, params_.sink);
      for (const uint32_t t : tokens) attended.Add(t, int64_t{t} + 1);
      attended.Add(token + 1 - steady, token + 1);
      cells.End({.flags = traces::kSelectedNow,
                 .selected = chosen[head],
                 .recalled_now = missing[head],
                 .evicted = static_cast<int32_t>(caches[head].evicted())});
    }
  }
}

}  // namespace stallcast::methods
