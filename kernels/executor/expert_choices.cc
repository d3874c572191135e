#include "kernels/executor/expert_choices.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "kernels/runtime/upload.h"

namespace stallcast::kernels {
namespace {

constexpr int kChoices = 64;

}  // namespace

std::vector<int32_t> SpreadExperts(int32_t rows, int32_t active, int32_t count, int32_t distinct,
                                   uint64_t seed) {
  std::vector<int32_t> experts(static_cast<size_t>(count));
  std::iota(experts.begin(), experts.end(), 0);
  std::mt19937_64 random(seed);
  for (size_t i = experts.size(); i > 1; --i) std::swap(experts[i - 1], experts[random() % i]);
  // Next to each other in turn, so that a row's are different.
  std::vector<int32_t> taken;
  for (int32_t pair = 0; pair < rows * active; ++pair) {
    taken.push_back(experts[static_cast<size_t>(pair % distinct)]);
  }
  return taken;
}

ExpertChoices::ExpertChoices(int32_t rows, int32_t active, int32_t count, double distinct)
    : size_(int64_t{rows} * active) {
  std::vector<int32_t> all;
  for (int i = 0; i < kChoices; ++i) {
    // Rounded so that those up to any one of them add up to what is expected.
    constexpr double kRounding = 1e-9;
    const double here =
        std::floor(distinct * (i + 1) + kRounding) - std::floor(distinct * i + kRounding);
    const auto most = static_cast<double>(std::min<int64_t>(count, size_));
    const auto taken = static_cast<int32_t>(std::clamp(here, static_cast<double>(active), most));
    const std::vector<int32_t> choice =
        SpreadExperts(rows, active, count, taken, static_cast<uint64_t>(i) + 1);
    all.insert(all.end(), choice.begin(), choice.end());
  }
  choices_ = Uploaded(all);
}

const int32_t* ExpertChoices::At(int step, int layer) const {
  constexpr int kApart = 7;  // steps
  return choices_.get() + (int64_t{step} * kApart + layer) % kChoices * size_;
}

}  // namespace stallcast::kernels
