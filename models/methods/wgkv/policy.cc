#include "models/methods/wgkv/policy.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>

#include "models/methods/common/log_cells.h"
#include "models/methods/common/ranking.h"
#include "models/methods/common/vector_kernels.h"
#include "models/methods/wgkv/gate.h"
#include "models/methods/wgkv/head_cache.h"

namespace stallcast::methods {
namespace {

class LayerCache {
 public:
  LayerCache(const LayerTensors& tensors, const WgKvParams& params)
      : tensors_(tensors), params_(params), admitted_(Admit(tensors, params)) {
    for (int head = 0; head < tensors.kv_heads(); ++head) {
      heads_.emplace_back(tensors, head, params.page, params.select == WgKvParams::Select::kQuest);
    }
  }

  const HeadCache& head(int head) const { return heads_[static_cast<size_t>(head)]; }
  int64_t window(int64_t context) const { return std::min(params_.window, context); }
  int64_t kept(int head, int64_t context) const {
    return heads_[static_cast<size_t>(head)].size() + window(context);
  }

  /// The window now ends at `context`: promotes what left it. True if tokens were evicted then.
  bool Advance(int64_t context) {
    const int64_t begin = context - window(context);
    for (; left_ < begin; ++left_) {
      for (size_t h = 0; h < heads_.size(); ++h) {
        if (admitted_[h][left_] != 0) heads_[h].Add(static_cast<uint32_t>(left_));
      }
    }
    if (params_.evict == WgKvParams::Evict::kNone) return false;
    bool evicted = false;
    while (Overflows(context) && Evict(context)) evicted = true;
    return evicted;
  }

 private:
  bool Overflows(int64_t context) const {
    int64_t kept_all = 0;
    for (int h = 0; h < tensors_.kv_heads(); ++h) kept_all += kept(h, context);
    return kept_all > params_.capacity * tensors_.kv_heads();
  }

  // False if there was nothing to drop, or no query to score it with.
  bool Evict(int64_t context) {
    const int64_t last = context - 1;  // the step's own query comes later
    const int64_t first = std::max(tensors_.first_query_token(), last - params_.observe);
    if (first >= last) return false;
    bool dropped = false;
    // One head after another: each takes as much memory as its keys in floats.
    for (size_t h = 0; h < heads_.size(); ++h) {
      const auto all = static_cast<double>(kept(static_cast<int>(h), context));
      const auto drop =
          std::min<int64_t>(heads_[h].size(), std::llround(std::ceil(params_.evict_share * all)));
      if (drop == 0) continue;
      const std::span<const uint32_t> cached = heads_[h].tokens();
      const std::vector<float> scores = Importance(tensors_, static_cast<int>(h), cached, left_,
                                                   window(context), first, last, params_.smooth);
      std::vector<uint32_t> keep = Best(scores, 0, heads_[h].size() - drop);
      for (uint32_t& at : keep) at = cached[at];
      heads_[h].Keep(keep);
      dropped = true;
    }
    return dropped;
  }

  const LayerTensors& tensors_;
  const WgKvParams& params_;
  Admission admitted_;
  std::vector<HeadCache> heads_;
  int64_t left_ = 0;  // tokens that have left the window
};

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
    const bool evicted = cache.Advance(context);
    if (quest) {
      tbb::parallel_for(0, tensors.kv_heads(), [&](int head) {
        pages[head] = SelectPages(tensors, params_, cache.head(head), head, context - 1);
      });
    }
    for (int head = 0; head < tensors.kv_heads(); ++head) {
      const std::span<const uint32_t> tokens = cache.head(head).tokens();
      const int64_t whole = cache.head(head).whole_pages();
      LogCell cell{.flags = evicted ? uint8_t{traces::kEvicted} : uint8_t{0},
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
