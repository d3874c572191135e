#include "sim/metrics.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <variant>

#include "models/plan/graph.h"
#include "sim/quantile.h"

namespace stallcast::sim {
namespace {

using hardware::OpCost;
using plan::Op;
using plan::OpId;
using traces::Role;

bool IsTransfer(const plan::Work& work) {
  return std::holds_alternative<plan::Copy>(work) ||
         std::holds_alternative<plan::ZeroCopyGather>(work);
}

bool OnlyWaits(const plan::Work& work) {
  return std::holds_alternative<plan::HostSync>(work) ||
         std::holds_alternative<plan::HostHandoff>(work);
}

using RoleTimes = std::array<int64_t, traces::kRoles>;

// Charges the time (from, to] before an event to roles, walking back along what the event waited
// for. `previous` names the op before each on its lane.
class Blame {
 public:
  Blame(const Simulation& simulation, const Execution& execution)
      : simulation_(simulation), execution_(execution) {}

  // The time before `op` started on its lane.
  void BeforeStart(OpId op, int64_t from, int64_t to, RoleTimes& times) {
    Begin(from, to, times);
    Walk(op);
  }

  // The time before `op` ended.
  void BeforeEnd(OpId op, int64_t from, int64_t to, RoleTimes& times) {
    Begin(from, to, times);
    Walk(Through(op));
  }

 private:
  void Begin(int64_t from, int64_t to, RoleTimes& times) {
    from_ = from;
    at_ = to;
    times_ = &times;
  }

  void Walk(OpId op) {
    while (at_ > from_ && op != OpId::kNone) {
      const Cause cause = execution_.cause[At(op)];
      switch (cause.kind) {
        case CauseKind::kWait:
          Until(End(cause.op), IsHostWork(Get(op)) ? Role::kSync : Get(cause.op).role);
          op = Through(cause.op);
          break;
        case CauseKind::kEngine:
          Until(End(cause.op), Get(cause.op).role);
          op = Through(cause.op);
          break;
        case CauseKind::kLane:
          if (IsHostWork(Get(op))) {
            op = ThroughCalls(op);
            break;
          }
          Until(End(cause.op), Role::kHost);
          op = Through(cause.op);
          break;
        case CauseKind::kIssue:
          Until(simulation_.CallStart(op, execution_).count(), Role::kHost);
          op = ThroughCalls(op);
          break;
        case CauseKind::kNone:
          op = OpId::kNone;
          break;
      }
    }
    Until(from_, Role::kHost);
  }

  // The calls that the host thread made before `op`'s turn, back to its last own work.
  OpId ThroughCalls(OpId op) {
    OpId call = simulation_.PreviousCall(op);
    while (call != OpId::kNone && !IsHostWork(Get(call)) && at_ > from_) {
      Until(simulation_.CallStart(call, execution_).count(), Role::kHost);
      call = simulation_.PreviousCall(call);
    }
    return call == OpId::kNone ? call : Through(call);
  }

  Op Get(OpId id) const { return simulation_.plan()[id]; }
  int64_t End(OpId id) const { return execution_.end[At(id)].count(); }

  void Until(int64_t time, Role role) {
    const int64_t stop = std::max(time, from_);
    if (stop >= at_) return;
    (*times_)[static_cast<size_t>(role)] += at_ - stop;
    at_ = stop;
  }

  // Charges the op's own run; the walk goes on at its start. Host work begins when what it waited
  // for has ended; what remains of work that only waits is the time to go on.
  OpId Through(OpId id) {
    const Op& op = Get(id);
    const Cause& cause = execution_.cause[At(id)];
    int64_t begin = execution_.start[At(id)].count();
    Role role = op.role;
    if (IsHostWork(op) && cause.kind == CauseKind::kWait) {
      begin = std::max(begin, End(cause.op));
      if (OnlyWaits(op.work)) role = Role::kSync;
    }
    Until(begin, role);
    return id;
  }

  const Simulation& simulation_;
  const Execution& execution_;
  int64_t from_ = 0, at_ = 0;
  RoleTimes* times_ = nullptr;
};

// Of [begin, end), the time in which one of `ops`, which follow on one another, runs.
int64_t Inside(const std::vector<OpId>& ops, const Execution& execution, int64_t begin,
               int64_t end) {
  const auto ends = [&](OpId op) { return execution.end[At(op)].count(); };
  const auto begins = [&](OpId op) { return execution.start[At(op)].count(); };
  auto it = std::lower_bound(ops.begin(), ops.end(), begin,
                             [&](OpId op, int64_t t) { return ends(op) <= t; });
  int64_t inside = 0;
  for (; it != ops.end() && begins(*it) < end; ++it) {
    inside += std::min(ends(*it), end) - std::max(begins(*it), begin);
  }
  return inside;
}

}  // namespace

Picoseconds Ceiling(const Simulation& simulation) {
  const plan::Plan& plan = simulation.plan();
  if (plan.step_ends.empty()) return Picoseconds{0};
  int64_t compute = 0;
  std::array<double, hardware::kResources> used{};
  std::array<int64_t, 3> engines{};  // by hardware::Engine
  const OpId last = plan.step_ends.back();
  const std::vector<OpId> needed = plan::NeededUntil(plan, last);
  for (OpId id{0}; id <= last; id = OpId{plan::Index(id) + 1}) {
    const Op& op = plan[id];
    if (id > needed[static_cast<size_t>(plan::Index(op.lane))]) continue;
    const OpCost& cost = simulation.LeastCost(id);
    if (plan.lanes[static_cast<size_t>(plan::Index(op.lane))].compute && !IsTransfer(op.work)) {
      compute += cost.Alone().count();
    }
    for (int d = 0; d < cost.demands; ++d) {
      used[static_cast<size_t>(cost.demand[d].resource)] += cost.amount * cost.demand[d].per_unit;
    }
    if (cost.engine != hardware::Engine::kNone) {
      engines[static_cast<size_t>(cost.engine)] += cost.Alone().count();
    }
  }
  int64_t longest = std::max(compute, *std::max_element(engines.begin(), engines.end()));
  for (size_t r = 0; r < used.size(); ++r) {
    const double capacity = simulation.model().capacity()[r];
    if (capacity <= 0) continue;
    longest = std::max(longest, FromSeconds(used[r] / capacity).count());
  }
  return Picoseconds(longest / std::ssize(plan.step_ends));
}

Metrics Measure(const Simulation& simulation, const Execution& execution, int32_t batch) {
  const plan::Plan& plan = simulation.plan();
  Metrics metrics;
  const auto steps = static_cast<int64_t>(plan.step_ends.size());
  if (steps == 0) return metrics;

  Picoseconds previous{0};
  for (OpId end : plan.step_ends) {
    metrics.step_times.push_back(execution.end[At(end)] - previous);
    previous = execution.end[At(end)];
  }
  const int64_t total = previous.count();
  metrics.step_mean = Picoseconds(total / steps);
  std::vector<Picoseconds> times = metrics.step_times;
  metrics.step_p50 = Quantile(times, 0.50);
  metrics.step_p95 = Quantile(times, 0.95);
  metrics.tokens_per_second = batch / Seconds(metrics.step_mean);
  metrics.ceiling = Ceiling(simulation);

  const double run = Seconds(execution.end_of_all);
  metrics.background_h2d = static_cast<double>(execution.background_h2d) / run;
  metrics.background_d2h = static_cast<double>(execution.background_d2h) / run;

  // The compute lane: when it computes, and whom its other time is charged to.
  const auto computes = [&](const Op& op) {
    return plan.lanes[static_cast<size_t>(plan::Index(op.lane))].compute;
  };
  std::vector<OpId> computing;
  int64_t computed = 0;
  computing.reserve(static_cast<size_t>(std::ranges::count_if(plan.ops, computes)));
  RoleTimes exposed{};
  Blame blame(simulation, execution);
  int64_t free_at = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (!computes(op)) continue;
    const OpId id{static_cast<int32_t>(i)};
    const int64_t begin = execution.start[i].count(), end = execution.end[i].count();
    blame.BeforeStart(id, free_at, begin, exposed);
    if (IsTransfer(op.work)) {
      exposed[static_cast<size_t>(op.role)] += end - begin;
    } else {
      computing.push_back(id);
      computed += end - begin;
    }
    free_at = end;
  }
  // After the compute lane's last op the host still takes its time to end the step.
  const OpId last = plan.step_ends.back();
  if (total > free_at) {
    exposed[static_cast<size_t>(Role::kSync)] += total - free_at;
  }

  std::array<RoleTime, traces::kRoles> roles{};
  int64_t recall_time = 0;
  double extrapolated = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const OpId id{static_cast<int32_t>(i)};
    const OpCost& cost = simulation.Cost(id);
    extrapolated += cost.extrapolated;
    RoleTime& role = roles[static_cast<size_t>(op.role)];
    const int64_t begin = execution.start[i].count(), end = execution.end[i].count();
    role.bytes += plan::MovedBytes(op.work);
    if (OnlyWaits(op.work) && op.waits_count > 0) continue;  // waiting is not work
    role.busy += Picoseconds(end - begin);
    if (!computes(op)) {
      role.overlapped += Picoseconds(Inside(computing, execution, begin, end));
    }
    if (op.role == Role::kRecall && IsTransfer(op.work)) {
      metrics.recall_bytes += plan::MovedBytes(op.work);
      recall_time += end - begin;
      if (const auto* copy = std::get_if<plan::Copy>(&op.work)) {
        metrics.recall_pieces += static_cast<double>(copy->pieces);
      } else {
        metrics.recall_pieces +=
            static_cast<double>(std::get<plan::ZeroCopyGather>(op.work).pieces);
      }
    }
  }
  for (size_t r = 0; r < roles.size(); ++r) {
    metrics.roles[r].busy = roles[r].busy / steps;
    metrics.roles[r].overlapped = roles[r].overlapped / steps;
    metrics.roles[r].bytes = roles[r].bytes / steps;
    metrics.roles[r].exposed = Picoseconds(exposed[r] / steps);
  }
  metrics.compute_busy = Picoseconds(computed / steps);
  metrics.exposed =
      Picoseconds(std::accumulate(exposed.begin(), exposed.end(), int64_t{0}) / steps);
  if (recall_time > 0) {
    metrics.recall_rate =
        static_cast<double>(metrics.recall_bytes) / Seconds(Picoseconds(recall_time));
  }
  metrics.recall_bytes /= steps;
  metrics.recall_pieces /= static_cast<double>(steps);
  metrics.extrapolated = extrapolated / static_cast<double>(plan.ops.size());

  RoleTimes critical{};
  blame.BeforeEnd(last, 0, total, critical);
  for (size_t r = 0; r < critical.size(); ++r)
    metrics.critical[r] = Picoseconds(critical[r] / steps);
  return metrics;
}

namespace {

// Mean of what is known.
class Mean {
 public:
  void Add(double value, int64_t times) {
    if (std::isnan(value)) return;
    sum_ += value * static_cast<double>(times);
    count_ += times;
  }
  double value() const {
    return count_ > 0 ? sum_ / static_cast<double>(count_)
                      : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace

SelectionMetrics Summarize(const traces::AccessLog& log, std::span<const int64_t> uses) {
  SelectionMetrics metrics;
  int64_t selected = 0, recalled = 0, corrected = 0, cells = 0, keeping = 0, evicted = 0;
  double kept = 0;
  Mean mass, error, similarity, evictions;
  const auto times = [&](size_t step) { return uses.empty() ? 1 : uses[step]; };
  // `heads` values a step.
  const auto add = [&](const auto& values, size_t heads, Mean& to) {
    for (size_t i = 0; i < values.size(); ++i) to.Add(values[i], times(i / heads));
  };
  for (const traces::LayerAccess& layer : log.layers) {
    add(layer.attention_mass, 1, mass);
    add(layer.output_error, 1, error);
    if (layer.dense) continue;
    const auto heads = static_cast<size_t>(layer.heads);
    add(layer.similarity, heads, similarity);
    add(layer.evicted, heads, evictions);
    for (size_t step = 0; step * heads < layer.flags.size(); ++step) {
      bool selects = false;
      for (size_t cell = step * heads; cell < (step + 1) * heads; ++cell) {
        const auto id = static_cast<int64_t>(cell);
        const auto count = [id](const traces::IdLists& lists) { return std::ssize(lists[id]); };
        selected += times(step) * count(layer.selected);
        recalled += times(step) * (count(layer.recalled_now) + count(layer.recalled_ahead));
        selects |= (layer.flags[cell] & traces::kSelectedNow) != 0;
        if (layer.cached_tokens.empty()) continue;
        keeping += times(step);
        kept += static_cast<double>(times(step)) * layer.cached_tokens[cell] /
                static_cast<double>(log.prompt_tokens + static_cast<int64_t>(step) + 1);
      }
      corrected += selects ? times(step) : 0;
      // All heads of a layer at once.
      evicted += (layer.flags[step * heads] & traces::kEvicted) != 0 ? times(step) : 0;
      cells += times(step);
    }
  }
  const auto share = [](double part, int64_t whole) {
    return whole > 0 ? part / static_cast<double>(whole) : std::numeric_limits<double>::quiet_NaN();
  };
  metrics.hit_rate =
      selected > 0 ? 1 - share(static_cast<double>(recalled), selected) : share(0, 0);
  metrics.correction_rate = share(static_cast<double>(corrected), cells);
  metrics.attention_mass = mass.value();
  metrics.output_error = error.value();
  metrics.similarity = similarity.value();
  metrics.evictions = evictions.value();
  metrics.kept = share(kept, keeping);
  metrics.eviction_rate = keeping > 0 ? share(static_cast<double>(evicted), cells) : share(0, 0);
  return metrics;
}

}  // namespace stallcast::sim
