#include "models/methods/prkv/policy.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "models/methods/common/bf16.h"
#include "models/methods/common/log_cells.h"
#include "models/methods/common/observation.h"
#include "models/methods/common/unit_scores.h"

namespace stallcast::methods {
namespace {

// The pages of a layer between two choices of the static set.
class PagedLayer {
 public:
  PagedLayer(const LayerTensors& tensors, const PrkvParams& params)
      : tensors_(tensors),
        params_(params),
        regions_(params.regions()),
        heads_(static_cast<size_t>(tensors.kv_heads())) {}

  int64_t PagesAt(int64_t context) const { return regions_.SelectableEnd(context); }
  bool Overflows(int64_t context) const { return PagesAt(context) > params_.budget_pages(); }
  bool SelectsAt(int64_t context) const { return PagesAt(context) - static_pages_ > slots(); }

  /// Begins a time in which contexts reach `last`, at most. If the context overflows, the static
  /// set is chosen and the pages are restructured.
  void Begin(int64_t context, int64_t last) {
    const int64_t tokens = PagesAt(context) * params_.page;
    // Queries of the window, as far as there are any; else the first there is.
    const int64_t first = std::max(PagesAt(context) * params_.page, tensors_.first_query_token());
    const int64_t end = std::max(context, first + 1);
    const bool chooses = Overflows(context) && params_.has_static_set();
    if (chooses && !chosen_static_pages_) chosen_static_pages_ = StaticPages(tokens, first, end);
    static_pages_ = chooses ? *chosen_static_pages_ : 0;
    tbb::parallel_for(0, tensors_.kv_heads(), [&](int head) {
      std::vector<uint32_t>& order = heads_[head].order;
      for (auto t = static_cast<uint32_t>(order.size()); t < tokens; ++t) order.push_back(t);
      if (static_pages_ > 0)
        Restructure(order, ObservationScores(tensors_, head * tensors_.group(),
                                             (head + 1) * tensors_.group(), tokens, first, end));
      for (auto t = static_cast<uint32_t>(tokens); t < PagesAt(last) * params_.page; ++t) {
        order.push_back(t);
      }
      heads_[head].cache = PageCache(slots());
    });
    scores_.emplace(tensors_, UnitScores::Kind::kBounds,
                    std::vector<int64_t>(heads_.size(), PagesAt(last)),
                    std::min(last, tensors_.prompt_tokens() + tensors_.steps()),
                    [this](int head, int64_t first_page, int64_t count, float* columns) {
                      FillBounds(head, first_page, count, columns);
                    });
    loaded_end_ = 0;
  }

  /// All dynamic pages, or those that `token` selects, as if they had been there all along.
  void Fill(int head, int64_t context, int64_t token) {
    std::vector<float> pooled;
    Rank(head, context, token, pooled);
    heads_[head].cache.Fill(Best(pooled, first_id(), slots()));
  }
  void Leave(int64_t page) {
    for (Head& head : heads_) head.cache.Leave(static_cast<uint32_t>(page));
  }
  std::vector<uint32_t> Recall(int head, int64_t context, int64_t token) {
    std::vector<float> pooled;
    Rank(head, context, token, pooled);
    return heads_[head].cache.Recall(Best(pooled, first_id(), slots()), pooled, first_id());
  }
  std::span<const uint32_t> Cached(int head) const { return heads_[head].cache.pages(); }
  /// Pages that left the GPU since the last call.
  int32_t TakeEvicted(int head) { return heads_[head].cache.TakeEvicted(); }

  /// Must precede Fill() and Recall() for `token`; tokens ascend.
  void Load(int64_t token) {
    if (token >= loaded_end_) loaded_end_ = scores_->Load(token);
  }

  void AddAttended(int head, int64_t context, AttendedRanges& attended) const {
    const std::vector<uint32_t>& order = heads_[head].order;
    std::vector<uint32_t> tokens(order.begin(), order.begin() + static_pages_ * params_.page);
    for (uint32_t page : Cached(head)) {
      const auto begin = order.begin() + page * params_.page;
      tokens.insert(tokens.end(), begin, begin + params_.page);
    }
    std::sort(tokens.begin(), tokens.end());
    for (uint32_t t : tokens) attended.Add(t, int64_t{t} + 1);
    attended.Add(std::min(PagesAt(context) * params_.page, context), context);
  }

 private:
  struct Head {
    std::vector<uint32_t> order;  // token at each place
    PageCache cache{0};
  };

  int64_t slots() const { return params_.budget_pages() - static_pages_; }
  uint32_t first_id() const { return static_cast<uint32_t>(static_pages_); }

  int64_t StaticPages(int64_t tokens, int64_t first, int64_t end) const {
    if (params_.static_rule == PrkvParams::StaticRule::kFixed) return params_.static_pages();
    std::vector<int64_t> common(static_cast<size_t>(tensors_.query_heads()));
    tbb::parallel_for(0, tensors_.query_heads(), [&](int head) {
      common[head] =
          CommonBest(tensors_, head, tokens, params_.budget_pages() * params_.page, first, end - 1);
    });
    return std::reduce(common.begin(), common.end()) / tensors_.query_heads() / params_.page;
  }

  // The best-scored tokens to the front, in both parts in the order they had.
  void Restructure(std::vector<uint32_t>& order, const std::vector<float>& scores) const {
    std::vector<float> in_order;
    in_order.reserve(order.size());
    for (uint32_t token : order) in_order.push_back(scores[token]);
    std::vector<bool> is_static(order.size());
    for (uint32_t place : Best(in_order, 0, static_pages_ * params_.page)) is_static[place] = true;
    std::vector<uint32_t> moved;
    moved.reserve(order.size());
    for (const bool part : {true, false}) {
      for (size_t place = 0; place < order.size(); ++place) {
        if (is_static[place] == part) moved.push_back(order[place]);
      }
    }
    order = std::move(moved);
  }

  void FillBounds(int head, int64_t first_page, int64_t count, float* columns) const {
    const int64_t dim = tensors_.head_dim();
    std::vector<float> keys(static_cast<size_t>(params_.page * dim));
    for (int64_t p = 0; p < count; ++p) {
      for (int64_t i = 0; i < params_.page; ++i) {
        tensors_.ReadKeys(head, heads_[head].order[(first_page + p) * params_.page + i], 1,
                          keys.data() + i * dim);
      }
      float* bounds = columns + p * 2 * dim;
      SummarizePage(params_.summary, keys.data(), params_.page, dim, bounds, bounds + dim);
      for (int64_t i = 0; i < 2 * dim; ++i) bounds[i] = RoundToBf16(bounds[i]);
    }
  }

  void Rank(int head, int64_t context, int64_t token, std::vector<float>& pooled) const {
    std::vector<const float*> rows;
    for (int g = 0; g < tensors_.group(); ++g) {
      rows.push_back(scores_->Of(head * tensors_.group() + g, token) + static_pages_);
    }
    PoolScores(params_.pooling, rows, PagesAt(context) - static_pages_, tensors_.softmax_scale(),
               pooled);
  }

  const LayerTensors& tensors_;
  const PrkvParams params_;
  PageRegions regions_;
  std::vector<Head> heads_;
  std::optional<int64_t> chosen_static_pages_;
  int64_t static_pages_ = 0;
  std::optional<UnitScores> scores_;
  int64_t loaded_end_ = 0;
};

}  // namespace

void PrkvPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                        AttendedRanges& attended) const {
  const int heads = tensors.kv_heads();
  const int64_t prompt = tensors.prompt_tokens();
  PagedLayer layer(tensors, params_);
  const auto restructures = [&](int64_t step) {
    return step > 0 && step % params_.update == 0 && params_.has_static_set() &&
           layer.Overflows(prompt + step + 1);
  };
  // The longest context before the pages are next restructured.
  const auto last = [&](int64_t step) {
    do ++step;
    while (step < tensors.steps() && !restructures(step));
    return prompt + step;
  };
  layer.Begin(prompt, last(0));
  const int64_t prompt_query = std::max(tensors.first_query_token(), prompt - 1);
  layer.Load(prompt_query);
  for (int head = 0; head < heads; ++head) layer.Fill(head, prompt, prompt_query);
  int64_t pages = layer.PagesAt(prompt);

  LogCells cells(access, attended, heads);
  std::vector<std::vector<uint32_t>> recalled(static_cast<size_t>(heads));
  std::vector<int32_t> evicted(static_cast<size_t>(heads));
  for (int step = 0; step < tensors.steps(); ++step) {
    const int64_t token = prompt + step, context = token + 1;
    for (; pages < layer.PagesAt(context); ++pages) layer.Leave(pages);
    for (int head = 0; head < heads; ++head) evicted[head] = layer.TakeEvicted(head);
    const bool anew = restructures(step);
    if (anew) layer.Begin(context, last(step));
    const bool selects = layer.SelectsAt(context);
    if (selects || anew) layer.Load(token);
    tbb::parallel_for(0, heads, [&](int head) {
      recalled[head].clear();
      if (anew) {
        layer.Fill(head, context, token);
      } else if (selects) {
        recalled[head] = layer.Recall(head, context, token);
      }
    });
    for (int head = 0; head < heads; ++head) {
      // Like its fetch, what a restructuring replaces is neither a recall nor an eviction.
      LogCell cell{.selected = layer.Cached(head),
                   .recalled_now = recalled[head],
                   .evicted = evicted[head] + layer.TakeEvicted(head)};
      if (selects) cell.flags |= traces::kSelectedNow;
      if (anew) cell.flags |= traces::kTriggered;
      layer.AddAttended(head, context, attended);
      cells.End(cell);
    }
  }
}

}  // namespace stallcast::methods
