#include "capture/gpu/quiet_steps.h"

#include <algorithm>
#include <utility>

#include "traces/common/median.h"

namespace stallcast::capture {

void QuietSteps::Add(std::vector<kernels::RanStep> run) {
  for (const kernels::RanStep& step : run) seen_.Add(step.core_load);
  runs_.push_back(std::move(run));
}

std::vector<Picoseconds> QuietSteps::Undisturbed(size_t step) const {
  std::vector<Picoseconds> times;
  for (const auto& run : runs_) {
    if (!seen_.IsShared(run[step].core_load)) times.push_back(run[step].time);
  }
  return times;
}

int QuietSteps::Fewest() const {
  size_t fewest = runs_.size();
  for (size_t step = 0; step < steps(); ++step) {
    fewest = std::min(fewest, Undisturbed(step).size());
  }
  return static_cast<int>(fewest);
}

int QuietSteps::Disturbed() const {
  int disturbed = 0;
  for (size_t step = 0; step < steps(); ++step) disturbed += Undisturbed(step).empty() ? 1 : 0;
  return disturbed;
}

std::vector<Picoseconds> QuietSteps::Medians() const {
  std::vector<Picoseconds> medians;
  for (size_t step = 0; step < steps(); ++step) {
    std::vector<Picoseconds> times = Undisturbed(step);
    if (times.empty()) {
      for (const auto& run : runs_) times.push_back(run[step].time);
    }
    medians.push_back(Median(std::move(times)));
  }
  return medians;
}

}  // namespace stallcast::capture
