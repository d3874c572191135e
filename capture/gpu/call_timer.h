// The calls of a run's host threads, timed by reading a clock around each op. That hardly slows
// calls, as tracing does.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "kernels/executor/executor.h"
#include "traces/timeline.h"

namespace stallcast::capture {

class CallTimer : public kernels::OpObserver {
 public:
  /// `plan` must outlive the timer.
  explicit CallTimer(const plan::Plan& plan) : plan_(plan), calls_(plan.ops.size()) {}

  void NameStream(cudaStream_t, const plan::Lane&) override {}
  void NameThread(const plan::Lane&) override {}
  void Begin(const plan::Op& op, plan::OpId id) override;
  void End(const plan::Op& op, plan::OpId id) override;

  /// A measured timeline of the host's lanes, with the rows of a prediction: calls of stream ops,
  /// and host ops. Times count from the first.
  traces::Timeline Calls(std::string title) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Call {
    Clock::time_point begin{}, end{};
  };

  const plan::Plan& plan_;
  std::vector<Call> calls_;  // by op, each written by the thread that makes it
};

}  // namespace stallcast::capture
