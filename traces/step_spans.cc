#include "traces/step_spans.h"

#include <algorithm>
#include <optional>

namespace stallcast::traces {
namespace {

struct Extent {
  Picoseconds first_start;
  std::optional<Picoseconds> last_end;  // nothing: no row where ends count
};

std::map<int32_t, Extent> Extents(const Timeline& t) {
  const bool has_compute = HasCompute(t);
  std::map<int32_t, Extent> extents;
  auto of = extents.end();  // rows of a step mostly stand together
  for (size_t row = 0; row < t.start.size(); ++row) {
    const int32_t step = t.step[row];
    if (step < 0) continue;
    if (of == extents.end() || of->first != step) {
      of = extents.try_emplace(step, Extent{t.start[row], {}}).first;
    }
    Extent& extent = of->second;
    extent.first_start = std::min(extent.first_start, t.start[row]);
    if (has_compute && !t.lanes[t.lane[row]].compute) continue;
    const Picoseconds end = t.start[row] + t.duration[row];
    extent.last_end = std::max(extent.last_end.value_or(end), end);
  }
  return extents;
}

}  // namespace

bool HasCompute(const Timeline& timeline) {
  return std::ranges::any_of(timeline.lane,
                             [&](uint16_t lane) { return timeline.lanes[lane].compute; });
}

std::map<int32_t, StepSpan> StepSpans(const Timeline& timeline) {
  std::map<int32_t, StepSpan> spans;
  for (const auto& [step, extent] : Extents(timeline)) {
    if (!extent.last_end) continue;
    StepSpan span{extent.first_start, *extent.last_end};
    if (!spans.empty()) {
      const auto& [step_before, before] = *spans.rbegin();
      if (step_before == step - 1) span.start = before.end;
      if (span.start < before.end) continue;
    }
    if (span.end > span.start) spans.emplace_hint(spans.end(), step, span);
  }
  return spans;
}

}  // namespace stallcast::traces
