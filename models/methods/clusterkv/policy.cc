#include "models/methods/clusterkv/policy.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "models/methods/common/cluster_index.h"
#include "models/methods/common/log_cells.h"
#include "models/methods/common/ranking.h"
#include "models/methods/common/unit_scores.h"

namespace stallcast::methods {
namespace {

struct Head {
  ClusterIndex index;
  std::vector<int64_t> known;  // clusters by updates so far
};

Head IndexOf(const LayerTensors& tensors, const ClusterKvParams& params, int kv_head) {
  Head head;
  const int64_t prompt = tensors.prompt_tokens(), tokens = params.Clustered(prompt);
  head.index.Add(tensors, kv_head, params.sink, tokens, params.PromptClusters(prompt),
                 params.iterations);
  head.known.push_back(head.index.size());
  for (int64_t i = 0; i < params.Updates(tensors.steps() - 1); ++i) {
    head.index.Add(tensors, kv_head, prompt + i * params.update, params.update,
                   params.UpdateClusters(), params.iterations);
    head.known.push_back(head.index.size());
  }
  return head;
}

// What a query head attends beside sink and local tokens.
struct Chosen {
  std::vector<uint32_t> clusters, tokens;  // ascending
};

Chosen Choose(const Head& head, const float* scores, int64_t clusters, int64_t capacity) {
  const std::span<const uint32_t> offsets(head.index.offsets.data(),
                                          static_cast<size_t>(clusters) + 1);
  Chosen chosen;
  for (const Taken& taken :
       BestWithin(std::span(scores, static_cast<size_t>(clusters)), offsets, capacity)) {
    chosen.clusters.push_back(taken.unit);
    const auto tokens = head.index.Tokens(taken.unit).first(static_cast<size_t>(taken.tokens));
    chosen.tokens.insert(chosen.tokens.end(), tokens.begin(), tokens.end());
  }
  std::ranges::sort(chosen.tokens);
  return chosen;
}

}  // namespace

void ClusterKvPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                             AttendedRanges& attended) const {
  const int heads = tensors.query_heads(), group = tensors.group();
  const int64_t prompt = tensors.prompt_tokens();
  LogCells cells(access, attended, heads);
  if (params_.Clustered(prompt) == 0) {
    for (int64_t cell = 0; cell < int64_t{tensors.steps()} * heads; ++cell) {
      attended.Add(0, prompt + cell / heads + 1);
      cells.End({});
    }
    return;
  }
  std::vector<Head> all(static_cast<size_t>(tensors.kv_heads()));
  tbb::parallel_for(0, tensors.kv_heads(),
                    [&](int head) { all[head] = IndexOf(tensors, params_, head); });
  std::vector<int64_t> counts;
  for (const Head& head : all) counts.push_back(head.index.size());
  UnitScores scores(tensors, UnitScores::Kind::kVector, counts, prompt + tensors.steps(),
                    [&](int head, int64_t first, int64_t count, float* columns) {
                      FillCentroids(tensors, head, all[head].index, first, count, columns);
                    });
  std::vector<Chosen> chosen(static_cast<size_t>(heads));
  std::vector<std::vector<uint32_t>> missing(chosen.size());
  std::vector<int64_t> left(chosen.size());
  int64_t loaded = prompt;
  for (int step = 0; step < tensors.steps(); ++step) {
    const int64_t token = prompt + step;
    if (token >= loaded) loaded = scores.Load(token);
    const bool selects = params_.Selects(prompt, step);
    const auto updates = static_cast<size_t>(params_.Updates(step));
    tbb::parallel_for(0, heads, [&](int head) {
      const Head& of = all[head / group];
      Chosen now = Choose(of, scores.Of(head, token), of.known[updates], params_.capacity());
      missing[head].clear();
      // What fits whole has never left the GPU; a decoded run joins without being fetched.
      if (selects) {
        std::ranges::set_difference(now.clusters, chosen[head].clusters,
                                    std::back_inserter(missing[head]));
      }
      left[head] = std::max<int64_t>(0, std::ssize(chosen[head].clusters) +
                                            std::ssize(missing[head]) - std::ssize(now.clusters));
      chosen[head] = std::move(now);
    });
    for (int head = 0; head < heads; ++head) {
      attended.Add(0, params_.sink);
      for (const uint32_t t : chosen[head].tokens) attended.Add(t, int64_t{t} + 1);
      attended.Add(token + 1 - params_.Local(step), token + 1);
      cells.End({.flags = selects ? uint8_t{traces::kSelectedNow} : uint8_t{0},
                 .selected = chosen[head].clusters,
                 .recalled_now = missing[head],
                 .evicted = static_cast<int32_t>(left[head])});
    }
  }
}

}  // namespace stallcast::methods
