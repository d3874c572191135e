#include "models/methods/raas/policy.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "models/methods/common/log_cells.h"
#include "models/methods/common/page_scores.h"
#include "models/methods/common/ranking.h"

namespace stallcast::methods {
namespace {

// The full pages of a KV head, ascending.
class Milestones {
 public:
  Milestones(const LayerTensors& tensors, const RaasParams& params, const PageScores& scores,
             int head)
      : tensors_(tensors), params_(params), scores_(scores), first_head_(head * tensors.group()) {}

  std::span<const uint32_t> pages() const { return pages_; }

  /// The `pages` of a prompt, scored by the query at `token`.
  void Start(int64_t pages, int64_t token) {
    pages_.resize(static_cast<size_t>(pages));
    std::iota(pages_.begin(), pages_.end(), 0u);
    if (params_.prompt == RaasParams::Prompt::kPinned) {
      pinned_ = pages;
    } else {
      Rank(token);
      pages_ = Best(weight_, 0, params_.budget_pages() - 1);
    }
    time_.assign(pages_.size(), 0);
  }

  /// A page is full. Returns the pages that go.
  int64_t Add(uint32_t page, int step) {
    pages_.push_back(page);
    time_.push_back(step);
    if (std::ssize(pages_) - pinned_ < params_.budget_pages()) return 0;
    weight_.resize(pages_.size(), INFINITY);
    size_t oldest = static_cast<size_t>(pinned_);
    const auto rank = [this](size_t i) { return std::tuple(time_[i], weight_[i]); };
    for (size_t i = oldest + 1; i < pages_.size(); ++i) {
      if (rank(i) < rank(oldest)) oldest = i;
    }
    const auto at = static_cast<std::ptrdiff_t>(oldest);
    pages_.erase(pages_.begin() + at);
    time_.erase(time_.begin() + at);
    weight_.erase(weight_.begin() + at);
    return 1;
  }

  /// The step whose query is at `token` attends all pages.
  void Attend(int64_t token, int step) {
    Rank(token);
    for (size_t i = 0; i < pages_.size(); ++i) {
      if (weight_[i] > static_cast<float>(params_.alpha)) time_[i] = step;
    }
  }

 private:
  // Mean of the group's softmaxes over the pages.
  void Rank(int64_t token) {
    weight_.assign(pages_.size(), 0);
    std::vector<double> of_head(pages_.size());
    const float scale = tensors_.softmax_scale();
    for (int g = 0; g < tensors_.group() && !pages_.empty(); ++g) {
      const float* score = scores_.Of(first_head_ + g, token);
      float most = -INFINITY;
      for (const uint32_t page : pages_) most = std::max(most, score[page]);
      double sum = 0;
      for (size_t i = 0; i < pages_.size(); ++i) {
        sum += of_head[i] = static_cast<double>(std::exp(scale * (score[pages_[i]] - most)));
      }
      for (size_t i = 0; i < pages_.size(); ++i) {
        weight_[i] += static_cast<float>(of_head[i] / (sum * tensors_.group()));
      }
    }
  }

  const LayerTensors& tensors_;
  const RaasParams& params_;
  const PageScores& scores_;
  int first_head_;
  int64_t pinned_ = 0;
  std::vector<uint32_t> pages_;
  std::vector<int> time_;      // by place in pages_
  std::vector<float> weight_;  // likewise, of the last query
};

}  // namespace

void RaasPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                        AttendedRanges& attended) const {
  const int heads = tensors.kv_heads();
  const int64_t prompt = tensors.prompt_tokens(), page = params_.page;
  PageScores scores(tensors, page, PageSummary::kMinMax);
  std::vector<Milestones> kept;
  const int64_t observer = std::max(tensors.first_query_token(), prompt - 1);
  scores.Load(observer);
  for (int head = 0; head < heads; ++head) {
    kept.emplace_back(tensors, params_, scores, head).Start(prompt / page, observer);
  }
  std::vector<int64_t> dropped(static_cast<size_t>(heads));
  int64_t loaded = prompt;
  LogCells cells(access, attended, heads);
  for (int step = 0; step < tensors.steps(); ++step) {
    const int64_t token = prompt + step;
    if (token >= loaded) loaded = scores.Load(token);
    const int64_t full = token / page;  // before the step's own token
    const bool fills = step > 0 && token % page == 0;
    tbb::parallel_for(0, heads, [&](int head) {
      dropped[head] = fills ? kept[head].Add(static_cast<uint32_t>(full - 1), step) : 0;
      kept[head].Attend(token, step);
    });
    const bool any = std::ranges::any_of(dropped, [](int64_t pages) { return pages > 0; });
    for (int head = 0; head < heads; ++head) {
      const auto pages = kept[head].pages();
      for (const uint32_t id : pages) attended.Add(id * page, (id + 1) * page);
      attended.Add(full * page, token + 1);
      cells.End({.flags = any ? uint8_t{traces::kEvicted} : uint8_t{0},
                 .evicted = static_cast<int32_t>(dropped[head] * page),
                 .cached_tokens = std::ssize(pages) * page + token + 1 - full * page});
    }
  }
}

}  // namespace stallcast::methods
