#include "capture/gpu/call_timer.h"

#include <algorithm>
#include <utility>

#include "models/plan/op_timeline.h"

namespace stallcast::capture {

void CallTimer::Begin(const plan::Op&, plan::OpId id) {
  calls_[static_cast<size_t>(plan::Index(id))].begin = Clock::now();
}

void CallTimer::End(const plan::Op&, plan::OpId id) {
  calls_[static_cast<size_t>(plan::Index(id))].end = Clock::now();
}

traces::Timeline CallTimer::Calls(std::string title) const {
  plan::OpTimeline rows(plan_, traces::Timeline::Origin::kMeasured);
  rows.timeline.title = std::move(title);
  rows.timeline.notes = {"the host's calls alone, of an untraced run"};
  const auto made = [](const Call& call) { return call.end != Clock::time_point{}; };
  Clock::time_point first = Clock::time_point::max();
  for (const Call& call : calls_) {
    if (made(call)) first = std::min(first, call.begin);
  }
  const auto since_first = [&](Clock::time_point at) {
    return std::chrono::duration_cast<Picoseconds>(at - first);
  };
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = calls_[i];
    if (!made(call)) continue;  // nodes of a graph have none
    const plan::OpId id{static_cast<int32_t>(i)};
    if (const plan::Op op = plan_[id]; plan::IsHostWork(op)) {
      rows.AddRun(id, since_first(call.begin), since_first(call.end));
    } else {
      rows.AddCall(id, since_first(call.begin), since_first(call.end));
    }
  }
  return std::move(rows.timeline);
}

}  // namespace stallcast::capture
