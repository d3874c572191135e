#include "models/methods/wgkv/layer_cache.h"

#include <algorithm>
#include <cmath>

#include "models/methods/common/ranking.h"

namespace stallcast::methods {

LayerCache::LayerCache(const LayerTensors& tensors, const WgKvParams& params)
    : tensors_(tensors),
      params_(params),
      admitted_(Admit(tensors, params)),
      dropped_(static_cast<size_t>(tensors.kv_heads())) {
  for (int head = 0; head < tensors.kv_heads(); ++head) {
    heads_.emplace_back(tensors, head, params.page, params.select == WgKvParams::Select::kQuest);
  }
}

void LayerCache::Promote(int64_t context) {
  const int64_t begin = context - window(context);
  for (; left_ < begin; ++left_) {
    for (size_t h = 0; h < heads_.size(); ++h) {
      if (admitted_[h][static_cast<size_t>(left_)] != 0) {
        heads_[h].Add(static_cast<uint32_t>(left_));
      }
    }
  }
}

bool LayerCache::Overflows(int64_t context) const {
  int64_t kept_all = 0;
  for (int h = 0; h < tensors_.kv_heads(); ++h) kept_all += kept(h, context);
  return kept_all > params_.capacity * tensors_.kv_heads();
}

std::span<const int32_t> LayerCache::Evict(int64_t context) {
  std::ranges::fill(dropped_, 0);
  if (params_.evict == WgKvParams::Evict::kNone || !Overflows(context)) return dropped_;
  const int64_t last = context - 1;  // the step's own query comes later
  const int64_t first = std::max(tensors_.first_query_token(), last - params_.observe);
  if (first >= last) return dropped_;
  // One head after another: each takes as much memory as its keys in floats.
  for (size_t h = 0; h < heads_.size(); ++h) {
    const auto all = static_cast<double>(kept(static_cast<int>(h), context));
    const auto drop =
        std::min<int64_t>(heads_[h].size(), std::llround(std::ceil(params_.evict_share * all)));
    if (drop == 0) continue;
    const std::span<const uint32_t> cached = heads_[h].tokens();
    std::vector<float> scores = Importance(tensors_, static_cast<int>(h), cached, left_,
                                           window(context), first, last, params_.smooth);
    for (float& score : scores) score = -score;
    const std::vector<uint32_t> dropped = Best(scores, 0, drop);
    std::vector<uint32_t> keep;
    auto next = dropped.begin();
    for (uint32_t at = 0; at < cached.size(); ++at) {
      if (next != dropped.end() && *next == at) {
        ++next;
      } else {
        keep.push_back(cached[at]);
      }
    }
    heads_[h].Keep(keep);
    dropped_[h] = static_cast<int32_t>(drop);
  }
  return dropped_;
}

}  // namespace stallcast::methods
