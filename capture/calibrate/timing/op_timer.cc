#include "capture/calibrate/timing/op_timer.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "kernels/executor/executor.h"
#include "kernels/runtime/probe.h"
#include "models/plan/plan.h"
#include "traces/common/median.h"
#include "traces/common/units.h"

namespace stallcast::capture {
namespace {

// As many as a step of some layers has, in memory that no cache keeps from one to the next.
constexpr int kOps = 1000, kPairs = 7;

// Norms launch once, layouts as often as a step has ops. An empty kernel is over before the next
// launch: the host sets the pace of both.
plan::Plan StepsInTurn() {
  plan::PlanBuilder builder;
  const plan::LaneId host = builder.AddHost("host");
  const plan::LaneId stream = builder.AddStream("compute", host, /*compute=*/true);
  for (int step = 0; step < 2 * kPairs; ++step) {
    builder.BeginStep(step);
    if (step % 2 == 0) {
      for (int i = 0; i < kOps; ++i) builder.Run(stream, plan::Norm{.rows = 1, .width = 1});
    } else {
      builder.Run(stream, plan::Layout{.pieces = 1, .piece_bytes = 1});
    }
    builder.EndStep(builder.Last(stream));
  }
  return builder.Finish();
}

class EmptyKernels : public kernels::Binder {
 public:
  kernels::OpWork Bind(const plan::Op& op) override {
    const int launches = std::holds_alternative<plan::Norm>(op.work) ? 1 : kOps;
    return [launches](cudaStream_t stream) {
      for (int i = 0; i < launches; ++i) kernels::Nothing(stream);
    };
  }
};

}  // namespace

struct OpTimer::Impl {
  plan::Plan plan = StepsInTurn();
  EmptyKernels kernels;
  kernels::Executor executor{plan, kernels};
};

OpTimer::OpTimer() : impl_(std::make_unique<Impl>()) { impl_->executor.Run(); }

OpTimer::~OpTimer() = default;

double OpTimer::Seconds() {
  const std::vector<kernels::RanStep> steps = impl_->executor.Run();
  std::vector<double> more;
  for (size_t pair = 0; pair < kPairs; ++pair) {
    more.push_back(stallcast::Seconds(steps[2 * pair].time - steps[2 * pair + 1].time) / kOps);
  }
  return std::max(Median(std::move(more)), 0.0);
}

}  // namespace stallcast::capture
