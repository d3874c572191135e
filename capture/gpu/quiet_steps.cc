#include "capture/gpu/quiet_steps.h"

#include <algorithm>

namespace stallcast::capture {

void QuietSteps::Add(const std::vector<kernels::RanStep>& run) {
  steps_.resize(run.size());
  for (size_t step = 0; step < run.size(); ++step) {
    seen_.Add(run[step].core_load);
    steps_[step].Add(run[step].time, run[step].core_load);
  }
}

int QuietSteps::Fewest() const {
  int fewest = runs();
  for (const auto& step : steps_) fewest = std::min(fewest, step.Quiet(seen_));
  return fewest;
}

int QuietSteps::Disturbed() const {
  return static_cast<int>(
      std::ranges::count_if(steps_, [&](const auto& step) { return step.Quiet(seen_) == 0; }));
}

std::vector<Picoseconds> QuietSteps::Medians() const {
  std::vector<Picoseconds> medians;
  for (const auto& step : steps_) medians.push_back(step.Median(seen_));
  return medians;
}

}  // namespace stallcast::capture
