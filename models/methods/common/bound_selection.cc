#include "models/methods/common/bound_selection.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <vector>

#include "models/methods/common/page_cache.h"
#include "models/methods/common/page_scores.h"
#include "models/methods/common/token_scores.h"

namespace stallcast::methods {
namespace {

template <class Scores>
void Select(const LayerTensors& tensors, const BoundSelection& selection, Scores scores,
            const std::function<void(int, int, std::span<const uint32_t>)>& visit) {
  const int heads = selection.heads, members = tensors.query_heads() / heads;
  const PageRegions regions{selection.page_tokens, /*sink_pages=*/0, /*window_pages=*/1};
  // Selections do not depend on each other: a block of steps, all heads at once.
  std::vector<std::vector<uint32_t>> chosen;
  const int64_t prompt = tensors.prompt_tokens(), end = prompt + tensors.steps();
  for (int64_t begin = prompt, next; begin < end; begin = next) {
    next = scores.Load(begin);
    chosen.resize(static_cast<size_t>((next - begin) * heads));
    tbb::parallel_for(0, heads, [&](int head) {
      std::vector<const float*> rows(static_cast<size_t>(members));
      std::vector<float> pooled;
      for (int64_t token = begin; token < next; ++token) {
        for (int m = 0; m < members; ++m) rows[m] = scores.Of(head * members + m, token);
        const int64_t pages = regions.SelectableEnd(token + 1);
        PoolScores(selection.pooling, rows, pages, tensors.softmax_scale(), pooled);
        chosen[(token - begin) * heads + head] = Best(pooled, 0, selection.pages);
      }
    });
    for (size_t cell = 0; cell < chosen.size(); ++cell) {
      const auto step = begin - prompt + static_cast<int64_t>(cell) / heads;
      visit(static_cast<int>(step), static_cast<int>(cell) % heads, chosen[cell]);
    }
  }
}

}  // namespace

void ForEachSelection(const LayerTensors& tensors, const BoundSelection& selection,
                      const std::function<void(int, int, std::span<const uint32_t>)>& visit) {
  if (selection.page_tokens == 1) {
    Select(tensors, selection, TokenScores(tensors), visit);
  } else {
    Select(tensors, selection, PageScores(tensors, selection.page_tokens, PageSummary::kMinMax),
           visit);
  }
}

}  // namespace stallcast::methods
