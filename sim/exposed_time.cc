#include "sim/exposed_time.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <vector>

#include "traces/step_spans.h"

namespace stallcast::sim {
namespace {

using traces::LaneKind;
using traces::Role;
using traces::Timeline;

struct Span {
  Picoseconds start, end;
};
// In time order, apart from each other.
using Spans = std::vector<Span>;

Spans Union(std::vector<Span> spans) {
  std::ranges::sort(spans, {}, &Span::start);
  Spans joined;
  for (const Span& span : spans) {
    if (span.end <= span.start) continue;
    if (joined.empty() || span.start > joined.back().end) {
      joined.push_back(span);
    } else {
      joined.back().end = std::max(joined.back().end, span.end);
    }
  }
  return joined;
}

Spans Outside(const Spans& spans, const Spans& others) {
  Spans outside;
  auto other = others.begin();
  for (auto [start, end] : spans) {
    while (other != others.end() && other->end <= start) ++other;
    for (auto at = other; at != others.end() && at->start < end; ++at) {
      if (at->start > start) outside.push_back({start, at->start});
      start = at->end;
    }
    if (start < end) outside.push_back({start, end});
  }
  return outside;
}

Picoseconds Inside(const Spans& spans, const traces::StepSpan& step) {
  auto span = std::ranges::upper_bound(spans, step.start, {}, &Span::end);
  Picoseconds inside{0};
  for (; span != spans.end() && span->start < step.end; ++span) {
    inside += std::min(span->end, step.end) - std::max(span->start, step.start);
  }
  return inside;
}

struct OpRow {
  int32_t step;
  int64_t op;
  bool host;
  int64_t row;
  bool OfOp() const { return step >= 0 && op >= 0; }
  bool SameOp(const OpRow& other) const { return OfOp() && step == other.step && op == other.op; }
};

// Rows that run: of each op together, device rows before those of the host.
std::vector<OpRow> RunningRows(const Timeline& t) {
  std::vector<OpRow> rows;
  rows.reserve(t.start.size());
  for (int64_t row = 0; row < t.rows(); ++row) {
    const traces::TimelineLane& lane = t.lanes[t.lane[row]];
    if (lane.kind == LaneKind::kOther && !lane.compute) continue;  // ranges and waits run nothing
    const OpRow of{t.step[row], t.op[row], lane.kind == LaneKind::kHost, row};
    const bool works = t.role[row] != Role::kHost && t.role[row] != Role::kSync;
    if (!of.host || (works && of.OfOp())) rows.push_back(of);
  }
  std::ranges::sort(rows, [](const OpRow& a, const OpRow& b) {
    return std::tie(a.step, a.op, a.host, a.row) < std::tie(b.step, b.op, b.host, b.row);
  });
  return rows;
}

// When the compute lanes compute, and when other ops run.
struct Activity {
  std::vector<Span> computing;
  std::array<std::vector<Span>, traces::kRoles> others;
};

Activity ActivityOf(const Timeline& t) {
  const std::vector<OpRow> rows = RunningRows(t);
  Activity activity;
  for (auto row = rows.begin(); row != rows.end();) {
    const OpRow& first = *row;
    const Role role = t.role[first.row];
    Span run{t.start[first.row], t.start[first.row]};
    bool computes = false;
    const auto take = [&](const OpRow& of) {
      if (of.host != first.host) return;  // a call
      run.start = std::min(run.start, t.start[of.row]);
      run.end = std::max(run.end, t.start[of.row] + t.duration[of.row]);
      computes |= t.lanes[t.lane[of.row]].compute && !MovesData(role);
    };
    take(*row++);
    while (row != rows.end() && row->SameOp(first)) take(*row++);
    (computes ? activity.computing : activity.others[static_cast<size_t>(role)]).push_back(run);
  }
  return activity;
}

}  // namespace

ComputingTime::ComputingTime(const Timeline& t) {
  Picoseconds before{0};
  for (const auto& [start, end] : Union(ActivityOf(t).computing)) {
    spans_.push_back({start, end, before});
    before += end - start;
  }
}

Picoseconds ComputingTime::Outside(Picoseconds start, Picoseconds end) const {
  return end - start - (Until(end) - Until(start));
}

Picoseconds ComputingTime::Until(Picoseconds time) const {
  const auto after = std::ranges::upper_bound(spans_, time, {}, &Span::start);
  if (after == spans_.begin()) return Picoseconds(0);
  const Span& last = *std::prev(after);
  return last.before + std::min(time, last.end) - last.start;
}

std::map<int32_t, ExposedTime> ExposedBySteps(const Timeline& t) {
  std::map<int32_t, ExposedTime> exposed;
  if (!traces::HasCompute(t)) return exposed;
  Activity activity = ActivityOf(t);
  const Spans computing = Union(std::move(activity.computing));
  std::array<Spans, traces::kRoles> roles;
  Spans any;
  for (size_t role = 0; role < roles.size(); ++role) {
    roles[role] = Outside(Union(std::move(activity.others[role])), computing);
    any.insert(any.end(), roles[role].begin(), roles[role].end());
  }
  any = Union(std::move(any));
  for (const auto& [step, span] : StepSpans(t)) {
    ExposedTime& of = exposed[step];
    for (size_t role = 0; role < roles.size(); ++role) of.roles[role] = Inside(roles[role], span);
    of.total = span.end - span.start - Inside(computing, span);
    of.nothing = of.total - Inside(any, span);
  }
  return exposed;
}

}  // namespace stallcast::sim
