#include "models/methods/wgkv/policy.h"

#include <tbb/parallel_for.h>

#include <algorithm>

#include "models/methods/common/log_cells.h"
#include "models/methods/common/ranking.h"
#include "models/methods/vector_kernels.h"
#include "models/methods/wgkv/layer_cache.h"

namespace stallcast::methods {
namespace {

// Pages that Quest attends of a head's global cache beside the last, partial one; all if they fit.
std::vector<uint32_t> SelectPages(const LayerTensors& tensors, const WgKvParams& params,
                                  const HeadCache& cache, int head, int64_t token) {
  const bool partial = cache.size() % params.page != 0;
  const int64_t count = (params.budget - params.window) / params.page - (partial ? 1 : 0);
  std::vector<std::vector<float>> rows(static_cast<size_t>(tensors.group()));
  std::vector<const float*> views;
  for (int g = 0; g < tensors.group(); ++g) {
    cache.ScorePages(tensors.Query(head * tensors.group() + g, token), rows[g]);
    rows[g].resize(rows[g].size() + kPanel);
    views.push_back(rows[g].data());
  }
  std::vector<float> pooled;
  PoolScores(Pooling::kMax, views, cache.whole_pages(), 1.0f, pooled);
  return Best(pooled, 0, count);
}

void AddTokens(std::span<const uint32_t> tokens, AttendedRanges& attended) {
  for (const uint32_t token : tokens) attended.Add(token, token + 1);
}

}  // namespace

void WgKvPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                        AttendedRanges& attended) const {
  const bool quest = params_.select == WgKvParams::Select::kQuest;
  LayerCache cache(tensors, params_);
  LogCells cells(access, attended, tensors.kv_heads());
  std::vector<std::vector<uint32_t>> pages(static_cast<size_t>(tensors.kv_heads()));
  for (int step = 0; step < tensors.steps(); ++step) {
    const int64_t context = tensors.prompt_tokens() + step + 1;
    cache.Promote(context);
    const std::span<const int32_t> dropped = cache.Evict(context);
    const bool evicted = std::ranges::any_of(dropped, [](int32_t tokens) { return tokens > 0; });
    if (quest) {
      tbb::parallel_for(0, tensors.kv_heads(), [&](int head) {
        pages[head] = SelectPages(tensors, params_, cache.head(head), head, context - 1);
      });
    }
    for (int head = 0; head < tensors.kv_heads(); ++head) {
      const std::span<const uint32_t> tokens = cache.head(head).tokens();
      const int64_t whole = cache.head(head).whole_pages();
      LogCell cell{.flags = evicted ? uint8_t{traces::kEvicted} : uint8_t{0},
                   .evicted = dropped[static_cast<size_t>(head)],
                   .cached_tokens = cache.kept(head, context)};
      if (quest) {
        for (const uint32_t page : pages[head]) {
          AddTokens(tokens.subspan(page * params_.page, params_.page), attended);
        }
        AddTokens(tokens.subspan(whole * params_.page), attended);
        cell.selected = pages[head];
        if (std::ssize(pages[head]) < whole) cell.flags |= traces::kSelectedNow;
      } else {
        AddTokens(tokens, attended);
      }
      attended.Add(context - cache.window(context), context);
      cells.End(cell);
    }
  }
}

}  // namespace stallcast::methods
