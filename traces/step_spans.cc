#include "traces/step_spans.h"

#include <algorithm>
#include <optional>

namespace stallcast::traces {
namespace {

struct Extent {
  Picoseconds first_start;
  std::optional<Picoseconds> first_compute;
  std::optional<Picoseconds> range_start;  // of the first range of a recording
  Picoseconds range_end{0};
  std::optional<Picoseconds> last_end;  // nothing: no row where ends count
};

// An annotation of a host thread: neither a call nor an operator.
bool IsRange(const Timeline& t, size_t row) {
  return t.op[row] < 0 && t.role[row] == Role::kOther &&
         t.lanes[t.lane[row]].kind == LaneKind::kHost;
}

std::map<int32_t, Extent> Extents(const Timeline& t) {
  const bool has_compute = HasCompute(t);
  std::map<int32_t, Extent> extents;
  auto of = extents.end();  // rows of a step mostly stand together
  for (size_t row = 0; row < t.start.size(); ++row) {
    const int32_t step = t.step[row];
    if (step < 0) continue;
    if (of == extents.end() || of->first != step) {
      of = extents.try_emplace(step, Extent{t.start[row], {}, {}, {}, {}}).first;
    }
    Extent& extent = of->second;
    extent.first_start = std::min(extent.first_start, t.start[row]);
    if (IsRange(t, row)) {
      const Picoseconds end = t.start[row] + t.duration[row];
      if (!extent.range_start || t.start[row] < *extent.range_start) {
        extent.range_start = t.start[row];
        extent.range_end = end;
      } else if (t.start[row] == *extent.range_start) {
        extent.range_end = std::max(extent.range_end, end);
      }
    }
    if (has_compute && !t.lanes[t.lane[row]].compute) continue;
    extent.first_compute = std::min(extent.first_compute.value_or(t.start[row]), t.start[row]);
    const Picoseconds end = t.start[row] + t.duration[row];
    extent.last_end = std::max(extent.last_end.value_or(end), end);
  }
  return extents;
}

// When the compute lanes had ended what is of no step, as far as they had by `time`.
Picoseconds EndOfOthers(const Timeline& t, Picoseconds time) {
  Picoseconds end = Picoseconds::min();
  for (size_t row = 0; row < t.start.size(); ++row) {
    const Picoseconds ended = t.start[row] + t.duration[row];
    if (t.step[row] < 0 && t.lanes[t.lane[row]].compute && ended <= time)
      end = std::max(end, ended);
  }
  return end;
}

}  // namespace

bool HasCompute(const Timeline& timeline) {
  return std::ranges::any_of(timeline.lane,
                             [&](uint16_t lane) { return timeline.lanes[lane].compute; });
}

std::map<int32_t, StepSpan> StepSpans(const Timeline& timeline) {
  std::map<int32_t, StepSpan> spans;
  const bool has_compute = HasCompute(timeline);
  for (const auto& [step, extent] : Extents(timeline)) {
    if (!extent.last_end) continue;
    StepSpan span{extent.first_start, *extent.last_end};
    // The range that is the step begins with it.
    if (extent.range_start == extent.first_start) span.end = std::max(span.end, extent.range_end);
    if (!spans.empty()) {
      const auto& [step_before, before] = *spans.rbegin();
      if (step_before == step - 1) span.start = before.end;
      if (span.start < before.end) continue;
    } else if (has_compute) {
      span.start = std::max(span.start, EndOfOthers(timeline, *extent.first_compute));
    }
    if (span.end > span.start) spans.emplace_hint(spans.end(), step, span);
  }
  return spans;
}

}  // namespace stallcast::traces
