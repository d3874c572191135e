#include "sim/timeline_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "sim/exposed_time.h"
#include "sim/quantile.h"
#include "traces/convert/kernel_kinds.h"
#include "traces/step_spans.h"

namespace stallcast::sim {
namespace {

using traces::KernelKind;
using traces::LaneKind;
using traces::Role;
using traces::Timeline;

// Under which kind a role's exposed time is told.
std::string KindOfRole(Role role, bool imported) {
  switch (role) {
    case Role::kProjection:
    case Role::kMlp:
      return std::string(Name(KernelKind::kGemm));
    case Role::kSync:
      return imported ? std::string(Name(KernelKind::kCommunication)) : "sync";
    case Role::kLayout:
      return std::string(Name(KernelKind::kRearrange));
    default:
      return std::string(Name(role));
  }
}

// From a call that starts work to the next on its thread: of each step the median, and of these.
Picoseconds LaunchInterval(const Timeline& t) {
  constexpr size_t kFewest = 32;
  std::vector<int64_t> started;  // ops of streams
  for (size_t row = 0; row < t.start.size(); ++row) {
    if (t.lanes[t.lane[row]].kind == LaneKind::kStream && t.op[row] >= 0) {
      started.push_back(t.op[row]);
    }
  }
  std::ranges::sort(started);
  std::vector<std::tuple<int32_t, uint16_t, Picoseconds>> calls;  // step, thread, begin
  for (size_t row = 0; row < t.start.size(); ++row) {
    if (t.lanes[t.lane[row]].kind != LaneKind::kHost || t.step[row] < 0 || t.op[row] < 0) continue;
    if (!std::ranges::binary_search(started, t.op[row])) continue;
    calls.emplace_back(t.step[row], t.lane[row], t.start[row]);
  }
  std::ranges::sort(calls);
  std::map<int32_t, std::vector<Picoseconds>> of_step;
  for (size_t i = 1; i < calls.size(); ++i) {
    const auto& [step, thread, begin] = calls[i];
    const auto& [step_before, thread_before, before] = calls[i - 1];
    if (step == step_before && thread == thread_before) of_step[step].push_back(begin - before);
  }
  std::vector<Picoseconds> medians;
  for (auto& [step, intervals] : of_step) {
    if (intervals.size() >= kFewest) medians.push_back(Quantile(intervals, 0.5));
  }
  return medians.empty() ? Picoseconds(0) : Quantile(medians, 0.5);
}

}  // namespace

std::string KindOfRow(const Timeline& t, int64_t row) {
  const auto i = static_cast<size_t>(row);
  switch (t.role[i]) {
    case Role::kRecall:
    case Role::kOffload:
    case Role::kSelection:
    case Role::kIndex:
      return std::string(Name(t.role[i]));
    case Role::kSync:
      return KindOfRole(Role::kSync, t.origin == Timeline::Origin::kImported);
    default:
      break;
  }
  const KernelKind kind = traces::KindOfKernel(t.names[t.name[i]]);
  if (kind == KernelKind::kOther && t.role[i] != Role::kOther) {
    return KindOfRole(t.role[i], t.origin == Timeline::Origin::kImported);
  }
  return std::string(Name(kind));
}

bool IsWork(const Timeline& t, int64_t row) {
  const auto i = static_cast<size_t>(row);
  switch (t.lanes[t.lane[i]].kind) {
    case LaneKind::kStream:
    case LaneKind::kCopyEngine:
      return true;
    case LaneKind::kHost:
      return t.role[i] != Role::kHost && t.role[i] != Role::kSync && t.role[i] != Role::kOther;
    case LaneKind::kOther:
      return false;
  }
  return false;
}

TimelineSummary Summarize(const Timeline& t) {
  TimelineSummary summary;
  summary.has_compute = traces::HasCompute(t);
  const auto spans = traces::StepSpans(t);
  if (spans.empty()) return summary;
  std::vector<Picoseconds> times;
  for (const auto& [step, span] : spans) {
    summary.steps.emplace_back(step, span.end - span.start);
    times.push_back(span.end - span.start);
  }
  summary.step = Quantile(times, 0.5);
  summary.launch_interval = LaunchInterval(t);

  const auto steps = static_cast<int64_t>(spans.size());
  const bool imported = t.origin == Timeline::Origin::kImported;
  std::map<std::pair<uint32_t, Role>, std::string> kind_of;
  for (int64_t row = 0; row < t.rows(); ++row) {
    const auto i = static_cast<size_t>(row);
    if (!IsWork(t, row) || !spans.contains(t.step[i])) continue;
    std::string& kind = kind_of[{t.name[i], t.role[i]}];
    if (kind.empty()) kind = KindOfRow(t, row);
    const auto add = [&](KindTotals& of) {
      of.ops += 1.0 / static_cast<double>(steps);
      of.bytes += static_cast<double>(t.bytes[i]) / static_cast<double>(steps);
      of.busy += t.duration[i];
    };
    add(summary.kinds[kind]);
    if (t.bytes[i] > 0 && !t.names[t.name[i]].starts_with("Memset")) {
      add(summary.copies[fmt::format("{} on {}", t.names[t.name[i]], t.lanes[t.lane[i]].name)]);
    }
  }
  for (auto* all : {&summary.kinds, &summary.copies}) {
    for (auto& [kind, of] : *all) of.busy /= steps;
  }
  Picoseconds whole{0};
  for (const auto& [step, exposed] : ExposedBySteps(t)) {
    whole += spans.at(step).end - spans.at(step).start;
    summary.exposed += exposed.total;
    summary.nothing += exposed.nothing;
    for (int role = 0; role < traces::kRoles; ++role) {
      const Picoseconds time = exposed.role(static_cast<Role>(role));
      if (time.count() == 0) continue;
      summary.kinds[KindOfRole(static_cast<Role>(role), imported)].exposed += time / steps;
    }
  }
  summary.computing = (whole - summary.exposed) / steps;
  summary.exposed /= steps;
  summary.nothing /= steps;
  return summary;
}

}  // namespace stallcast::sim
