#include "models/methods/h2o/policy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/methods/common/head_keeper.h"
#include "models/methods/common/observation.h"
#include "models/methods/common/ranking.h"
#include "models/methods/common/token_scores.h"

namespace stallcast::methods {
namespace {

class H2oHead final : public HeadKeeper {
 public:
  H2oHead(const LayerTensors& tensors, const H2oParams& params, const TokenScores& scores, int head)
      : tensors_(tensors),
        params_(params),
        scores_(scores),
        first_head_(head * tensors.group()),
        worth_(static_cast<size_t>(tensors.prompt_tokens() + tensors.steps())) {}

  std::vector<uint32_t> AfterPrefill() override {
    const int64_t prompt = tensors_.prompt_tokens();
    const bool last = params_.worth == H2oParams::Worth::kLast;
    const ObservationWindow window(tensors_, last ? 1 : prompt);
    const std::vector<float> weights =
        ObservationScores(tensors_, first_head_, first_head_ + tensors_.group(), prompt,
                          window.first, window.end, Observed::kAllBefore);
    const auto queries = static_cast<double>(window.end - window.first);
    for (size_t t = 0; t < weights.size(); ++t) {
      worth_[t] = static_cast<double>(weights[t]) * queries;
    }
    std::vector<uint32_t> kept(static_cast<size_t>(prompt));
    std::iota(kept.begin(), kept.end(), 0u);
    Drop(kept, params_.budget);
    return kept;
  }

  void MakeRoom(int /*step*/, std::vector<uint32_t>& kept) override {
    Drop(kept, params_.budget - 1);
  }

  void Attended(int step, std::span<const uint32_t> kept) override {
    if (params_.worth == H2oParams::Worth::kLast) {
      for (const uint32_t t : kept) worth_[t] = 0;
    }
    std::vector<double> weights(kept.size());
    for (int g = 0; g < tensors_.group(); ++g) {
      const float* dots = scores_.Of(first_head_ + g, tensors_.prompt_tokens() + step);
      const float scale = tensors_.softmax_scale();
      float most = -INFINITY;
      for (const uint32_t t : kept) most = std::max(most, dots[t]);
      double sum = 0;
      for (size_t i = 0; i < kept.size(); ++i) {
        weights[i] = static_cast<double>(std::exp(scale * (dots[kept[i]] - most)));
        sum += weights[i];
      }
      for (size_t i = 0; i < kept.size(); ++i) {
        worth_[kept[i]] += weights[i] / (sum * tensors_.group());
      }
    }
  }

 private:
  // Keeps `count` tokens: the last ones, one of which the step's own will be, and the best others.
  void Drop(std::vector<uint32_t>& kept, int64_t count) const {
    if (std::ssize(kept) <= count) return;
    const int64_t recent = std::min(params_.recent - (params_.budget - count), count);
    const auto older = kept.end() - std::max<int64_t>(recent, 0);
    std::vector<float> worth;
    for (auto it = kept.begin(); it != older; ++it)
      worth.push_back(static_cast<float>(worth_[*it]));
    std::vector<uint32_t> best = Best(worth, 0, count - (kept.end() - older));
    for (uint32_t& at : best) at = kept[at];
    best.insert(best.end(), older, kept.end());
    kept = std::move(best);
  }

  const LayerTensors& tensors_;
  const H2oParams& params_;
  const TokenScores& scores_;
  int first_head_;
  std::vector<double> worth_;  // by token
};

}  // namespace

int64_t H2oPolicy::prompt_queries() const {
  return params_.worth == H2oParams::Worth::kLast ? 1 : int64_t{1} << 40;
}

void H2oPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                       AttendedRanges& attended) const {
  TokenScores scores(tensors);
  std::vector<std::unique_ptr<HeadKeeper>> heads;
  for (int head = 0; head < tensors.kv_heads(); ++head) {
    heads.push_back(std::make_unique<H2oHead>(tensors, params_, scores, head));
  }
  int64_t loaded = tensors.prompt_tokens();
  const auto load = [&](int step) {
    const int64_t token = tensors.prompt_tokens() + step;
    if (token >= loaded) loaded = scores.Load(token);
  };
  ReplayKeepers(tensors, heads, load, access, attended);
}

}  // namespace stallcast::methods
