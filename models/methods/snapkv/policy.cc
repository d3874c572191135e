#include "models/methods/snapkv/policy.h"

#include <algorithm>
#include <numeric>

#include "models/methods/common/head_keeper.h"
#include "models/methods/common/observation.h"
#include "models/methods/common/ranking.h"

namespace stallcast::methods {
namespace {

// Means of `kernel` neighbours; outside there is nothing, which counts too.
std::vector<float> Smooth(const std::vector<float>& weights, int64_t kernel) {
  const int64_t half = kernel / 2, count = std::ssize(weights);
  std::vector<float> smooth(weights.size());
  for (int64_t t = 0; t < count; ++t) {
    double sum = 0;
    for (int64_t i = std::max<int64_t>(0, t - half); i < std::min(count, t + half + 1); ++i) {
      sum += static_cast<double>(weights[i]);
    }
    smooth[t] = static_cast<float>(sum / static_cast<double>(kernel));
  }
  return smooth;
}

class SnapKvHead final : public HeadKeeper {
 public:
  SnapKvHead(const LayerTensors& tensors, const SnapKvParams& params, int first_head, int end_head)
      : tensors_(tensors), params_(params), first_head_(first_head), end_head_(end_head) {}

  std::vector<uint32_t> AfterPrefill() override {
    return KeptOfPrompt(tensors_, params_, first_head_, end_head_);
  }

 private:
  const LayerTensors& tensors_;
  const SnapKvParams& params_;
  int first_head_, end_head_;
};

}  // namespace

std::vector<uint32_t> KeptOfPrompt(const LayerTensors& tensors, const SnapKvParams& params,
                                   int first_head, int end_head) {
  const int64_t prompt = tensors.prompt_tokens();
  std::vector<uint32_t> kept;
  if (prompt <= params.budget) {
    kept.resize(static_cast<size_t>(prompt));
    std::iota(kept.begin(), kept.end(), 0u);
    return kept;
  }
  const ObservationWindow window(tensors, params.window);
  const int64_t before = prompt - params.window;
  kept = Best(Smooth(ObservationScores(tensors, first_head, end_head, before, window.first,
                                       window.end, Observed::kAllBefore),
                     params.kernel),
              0, params.budget - params.window);
  for (auto t = static_cast<uint32_t>(before); t < prompt; ++t) kept.push_back(t);
  return kept;
}

void SnapKvPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                          AttendedRanges& attended) const {
  const bool alone = params_.group == SnapKvParams::Group::kQueryHead;
  const int members = alone ? 1 : tensors.group();
  std::vector<std::unique_ptr<HeadKeeper>> heads;
  for (int first = 0; first < tensors.query_heads(); first += members) {
    heads.push_back(std::make_unique<SnapKvHead>(tensors, params_, first, first + members));
  }
  ReplayKeepers(tensors, heads, {}, access, attended);
}

}  // namespace stallcast::methods
