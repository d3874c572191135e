#include "capture/gpu/best_run.h"

namespace stallcast::capture {

bool BestRun::Add(const std::vector<kernels::RanStep>& run) {
  ++runs_;
  QuietSteps steps(seen_);
  steps.Add(run);
  Picoseconds took{0};
  for (const kernels::RanStep& step : run) took += step.time;
  const std::pair seen(steps.Disturbed(), took);
  if (seen >= best_) return false;
  best_ = seen;
  return true;
}

}  // namespace stallcast::capture
