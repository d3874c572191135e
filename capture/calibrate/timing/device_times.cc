#include "capture/calibrate/timing/device_times.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "traces/common/median.h"

namespace stallcast::capture {

std::map<int32_t, OpSpans> DeviceSpans(const traces::Trace& trace) {
  std::map<int32_t, OpSpans> spans;
  for (const traces::Timeline& timeline : trace.timelines) {
    for (size_t i = 0; i < timeline.start.size(); ++i) {
      if (timeline.step[i] < 0 || timeline.op[i] < 0) continue;
      if (timeline.lanes[timeline.lane[i]].kind == traces::LaneKind::kHost) continue;
      const DeviceSpan row = {Seconds(timeline.start[i]),
                              Seconds(timeline.start[i] + timeline.duration[i])};
      const auto [at, is_new] = spans[timeline.step[i]].emplace(timeline.op[i], row);
      if (is_new) continue;
      at->second.start = std::min(at->second.start, row.start);
      at->second.end = std::max(at->second.end, row.end);
    }
  }
  return spans;
}

std::optional<double> MeanTime(const OpSpans& ops) {
  constexpr double kHeldUp = 1.3;
  if (ops.empty()) return std::nullopt;
  std::vector<double> seconds;
  for (const auto& [op, span] : ops) seconds.push_back(span.end - span.start);
  const double most = kHeldUp * Median(seconds);
  std::erase_if(seconds, [most](double each) { return each > most; });
  return std::reduce(seconds.begin(), seconds.end()) / static_cast<double>(seconds.size());
}

}  // namespace stallcast::capture
