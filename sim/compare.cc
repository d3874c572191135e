#include "sim/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "sim/quantile.h"
#include "traces/common/error.h"
#include "traces/step_spans.h"

namespace stallcast::sim {
namespace {

using traces::Timeline;

struct OpKey {
  int32_t step;
  int64_t op;
  bool call;
  bool operator==(const OpKey&) const = default;
  bool operator<(const OpKey& other) const {
    return std::tie(step, op, call) < std::tie(other.step, other.op, other.call);
  }
};

// What one side knows of an op.
struct Span {
  int64_t row;  // the first one
  Picoseconds start, end;
  Picoseconds idle;  // of the lane before the first row
};

struct Side {
  std::vector<std::pair<OpKey, Span>> ops;  // ascending by key
  std::map<int32_t, traces::StepSpan> steps;
  std::map<std::string, int64_t> unmatched;
};

bool IsCall(const Timeline& t, int64_t row) {
  return t.lanes[t.lane[row]].kind == traces::LaneKind::kHost;
}

std::string RowName(const Timeline& t, int64_t row) {
  std::string name = t.names[t.name[row]];
  return IsCall(t, row) ? name + " (call)" : name;
}

bool OfOnePlan(const Timeline& a, int64_t i, const Timeline& b, int64_t j) {
  using traces::Role;
  const bool roles =
      a.role[i] == b.role[j] || a.role[i] == Role::kOther || b.role[j] == Role::kOther;
  return roles && (a.layer[i] == b.layer[j] || a.layer[i] < 0 || b.layer[j] < 0);
}

// Lane idle time just before each row.
std::vector<Picoseconds> IdleBefore(const Timeline& t) {
  std::vector<int64_t> order(t.rows());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::tie(t.lane[a], t.start[a]) < std::tie(t.lane[b], t.start[b]);
  });
  std::vector<Picoseconds> idle(t.rows(), Picoseconds{0});
  Picoseconds lane_end{0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t row = order[i];
    const bool first = i == 0 || t.lane[order[i - 1]] != t.lane[row];
    if (!first && t.start[row] > lane_end) idle[row] = t.start[row] - lane_end;
    const Picoseconds end = t.start[row] + t.duration[row];
    lane_end = first ? end : std::max(lane_end, end);
  }
  return idle;
}

Side Collect(const Timeline& t) {
  Side side;
  const std::vector<Picoseconds> idle = IdleBefore(t);
  std::vector<std::pair<OpKey, int64_t>> rows;
  rows.reserve(t.rows());
  for (int64_t row = 0; row < t.rows(); ++row) {
    if (t.op[row] < 0) {
      ++side.unmatched[RowName(t, row) + " (no op id)"];
    } else {
      rows.push_back({{t.step[row], t.op[row], IsCall(t, row)}, row});
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : t.start[a.second] < t.start[b.second];
  });
  for (const auto& [key, row] : rows) {
    const Picoseconds end = t.start[row] + t.duration[row];
    if (!side.ops.empty() && side.ops.back().first == key) {
      side.ops.back().second.end = std::max(side.ops.back().second.end, end);
    } else {
      side.ops.push_back({key, {row, t.start[row], end, idle[row]}});
    }
  }
  side.steps = traces::StepSpans(t);
  return side;
}

void Add(TimePair& sum, const TimePair& t) {
  sum.predicted.value += t.predicted.value;
  sum.measured.value += t.measured.value;
}

std::optional<ExposedPair> MeanExposed(const std::map<int32_t, ExposedTime>& predicted,
                                       const std::map<int32_t, ExposedTime>& measured) {
  ExposedPair mean;
  int64_t steps = 0;
  for (const auto& [step, p] : predicted) {
    const auto other = measured.find(step);
    if (other == measured.end()) continue;
    const ExposedTime& m = other->second;
    ++steps;
    for (size_t role = 0; role < mean.roles.size(); ++role) {
      Add(mean.roles[role], {{p.roles[role]}, {m.roles[role]}});
    }
    Add(mean.nothing, {{p.nothing}, {m.nothing}});
    Add(mean.total, {{p.total}, {m.total}});
  }
  if (steps == 0) return std::nullopt;
  const auto divide = [&](TimePair& sum) {
    sum.predicted.value /= steps;
    sum.measured.value /= steps;
  };
  std::ranges::for_each(mean.roles, divide);
  divide(mean.nothing);
  divide(mean.total);
  return mean;
}

std::string GroupOf(const MatchedOp& op, GroupBy by) {
  std::string group;
  switch (by) {
    case GroupBy::kName:
      group = op.name;
      break;
    case GroupBy::kRole:
      group = Name(op.role);
      break;
    case GroupBy::kLayer:
      group = op.layer < 0 ? "no layer" : fmt::format("layer {}", op.layer);
      break;
  }
  return op.call ? group + " (call)" : group;
}

}  // namespace

double TimePair::relative() const {
  if (measured.value.count() == 0) {
    return predicted.value.count() == 0 ? 0 : std::numeric_limits<double>::infinity();
  }
  return static_cast<double>(residual().count()) / static_cast<double>(measured.value.count());
}

bool WithinExposedGoal(const TimePair& exposed) {
  const Picoseconds off = std::chrono::abs(exposed.residual());
  return off <= kExposedGoalTime || std::abs(exposed.relative()) <= kExposedGoalShare;
}

Comparison Compare(Predicted<const Timeline*> predicted, Measured<const Timeline*> measured) {
  const Timeline& p = *predicted.value;
  const Timeline& m = *measured.value;
  for (const Timeline* t : {&p, &m}) {
    if (t->rows() == 0) {
      throw Error("the timeline has no rows", t->title, "compare timelines of at least one step");
    }
  }
  Side sides[] = {Collect(p), Collect(m)};
  Comparison result;
  auto a = sides[0].ops.begin();
  auto b = sides[1].ops.begin();
  while (a != sides[0].ops.end() || b != sides[1].ops.end()) {
    const bool a_left = a != sides[0].ops.end();
    const bool b_left = b != sides[1].ops.end();
    if (a_left && (!b_left || a->first < b->first)) {
      ++sides[0].unmatched[RowName(p, a++->second.row)];
    } else if (b_left && (!a_left || b->first < a->first)) {
      ++sides[1].unmatched[RowName(m, b++->second.row)];
    } else {
      const Span& x = a->second;
      const Span& y = b->second;
      result.ops.push_back({a->first.step,
                            a->first.op,
                            a->first.call,
                            p.layer[x.row],
                            p.role[x.row],
                            p.names[p.name[x.row]],
                            {{x.start}, {y.start}},
                            {{x.end - x.start}, {y.end - y.start}},
                            {{x.idle}, {y.idle}}});
      if (!a->first.call && !OfOnePlan(p, x.row, m, y.row)) ++result.of_other_plans;
      ++a, ++b;
    }
  }
  if (result.ops.empty()) {
    throw Error("no op of one timeline is in the other", p.title + " / " + m.title,
                "compare a prediction with a run of the same plan");
  }

  std::vector<double> errors;
  for (const auto& [step, span] : sides[0].steps) {
    const auto other = sides[1].steps.find(step);
    if (other == sides[1].steps.end()) continue;
    result.steps.push_back(
        {step, {{span.end - span.start}, {other->second.end - other->second.start}}});
    errors.push_back(std::abs(result.steps.back().time.relative()));
    if (errors.size() == 1 || errors.back() > result.worst_step_error) {
      result.worst_step_error = errors.back();
      result.worst_step = step;
    }
  }
  if (!errors.empty()) result.median_step_error = Quantile(errors, 0.5);
  result.exposed = MeanExposed(ExposedBySteps(p), ExposedBySteps(m));
  result.only_predicted.value = std::move(sides[0].unmatched);
  result.only_measured.value = std::move(sides[1].unmatched);
  return result;
}

std::vector<ResidualSummary> Summarize(const Comparison& comparison, GroupBy by) {
  std::map<std::string, std::vector<const MatchedOp*>> groups;
  for (const MatchedOp& op : comparison.ops) groups[GroupOf(op, by)].push_back(&op);

  std::vector<ResidualSummary> summaries;
  for (auto& [group, ops] : groups) {
    ResidualSummary s;
    s.group = group;
    s.ops = static_cast<int64_t>(ops.size());
    std::vector<double> relative;
    for (const MatchedOp* op : ops) {
      Add(s.total, op->duration);
      Add(s.idle, op->idle);
      relative.push_back(std::abs(op->duration.relative()));
    }
    const auto size = [](const MatchedOp* op) { return std::chrono::abs(op->duration.residual()); };
    s.median = size(Quantile(ops, 0.5, size));
    s.p90 = size(Quantile(ops, 0.9, size));
    const MatchedOp* worst = Quantile(ops, 1, size);
    s.worst = size(worst);
    s.worst_step = worst->step;
    s.worst_op = worst->op;
    s.median_relative = Quantile(relative, 0.5);
    s.p90_relative = Quantile(relative, 0.9);
    s.worst_relative = Quantile(relative, 1);
    summaries.push_back(std::move(s));
  }
  std::stable_sort(summaries.begin(), summaries.end(), [](const auto& a, const auto& b) {
    return a.total.measured.value > b.total.measured.value;
  });
  return summaries;
}

}  // namespace stallcast::sim
