#include "sim/timeline_summary.h"

#include <fmt/format.h>

#include <array>

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
