#include "tests/sim/simgrid/simgrid_run.h"

#include <fmt/format.h>
#include <xbt/log.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/hardware/profile.h"
#include "models/plan/events.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

namespace s4u = simgrid::s4u;
using hardware::How;
using hardware::OpCost;
using hardware::Resource;
using hardware::Site;
using plan::OpId;

constexpr double kExact = 1e-9;     // relative
constexpr double kInstant = 1e-13;  // s: rounding of a clock that counts seconds

[[noreturn]] void CannotMap(const std::string& what) {
  throw Error(what, "SimGrid", "leave it out of the plan or use EqualWeights()");
}

Site SiteOf(const plan::Op& op) {
  if (IsHostWork(op)) return Site::kHost;
  const auto* copy = std::get_if<plan::Copy>(&op.work);
  if (copy == nullptr) return Site::kKernel;
  return copy->direction == plan::Direction::kHostToDevice ? Site::kH2D : Site::kD2H;
}

// Of a stream, between the end of an op and the start of the next.
Picoseconds GapBetween(const plan::Op& before, const plan::Op& op,
                       const hardware::Latencies& latency) {
  return op.graph_node && before.graph_node
             ? latency.handoff(Site::kKernel, Site::kKernel, How::kGraph)
             : latency.handoff(SiteOf(before), SiteOf(op), How::kStream);
}

}  // namespace

SimGridMachine::SimGridMachine(std::span<const Simulation* const> simulations, int* argc,
                               char** argv)
    : engine_(argc, argv), capacity_(simulations.front()->model().capacity()) {
  xbt_log_control_set("root.thresh:warning");
  // Plain max-min sharing: no latency or TCP effect, no factor. A clock of seconds in double keeps
  // 1e-14 for a minute and a half. The optimisations are the fastest of those that there are.
  for (const char* option :
       {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0", "network/weight-S:0",
        "network/latency-factor:1", "network/bandwidth-factor:1", "surf/precision:1e-14",
        "maxmin/precision:1e-9", "cpu/optim:TI", "network/optim:Full"}) {
    s4u::Engine::set_config(option);
  }
  zone_ = s4u::create_full_zone("machine");
  std::vector<s4u::Link*> links;
  for (size_t r = 0; r < capacity_.size(); ++r) {
    links.push_back(
        zone_->create_link(fmt::format("resource {}", r), capacity_[r])->set_latency(0)->seal());
  }
  double weight = 0;
  for (const Simulation* simulation : simulations) {
    const plan::Plan& plan = simulation->plan();
    while (lane_hosts_.size() < plan.lanes.size()) {
      lane_hosts_.push_back(
          zone_->create_host(fmt::format("lane {}", lane_hosts_.size()), 1.0)->seal());
    }
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      const OpCost& cost = simulation->Cost(OpId{static_cast<int32_t>(i)});
      if (cost.amount == 0) continue;
      if (weight == 0) weight = cost.weight;
      if (std::abs(cost.weight - weight) > kExact * weight) CannotMap("weights differ");
      const Use use = UseOf(cost);
      if (!routes_.contains(use)) routes_[use] = AddRoute(use, links);
    }
  }
  zone_->seal();
  s4u::Activity::on_completion_cb([this](const s4u::Activity& activity) {
    if (running_ != nullptr) running_->OnEnd(*activity.get_data<SimGridRun::Lane>());
  });
}

SimGridMachine::Use SimGridMachine::UseOf(const OpCost& flow) const {
  Use use;
  double least = std::numeric_limits<double>::infinity();
  for (const hardware::Demand& d : std::span(flow.demand).first(flow.demands)) {
    const double capacity = capacity_[static_cast<size_t>(d.resource)];
    if (d.resource == Resource::kSms) {
      constexpr double kStreams = 16;
      if (d.per_unit * flow.rate * kStreams > capacity) CannotMap("multiprocessors may run out");
      continue;
    }
    if (std::abs(d.per_unit - 1) > kExact) CannotMap("a flow takes other than 1 a byte");
    use.first.push_back(d.resource);
    least = std::min(least, capacity);
  }
  if (flow.rate < least * (1 - kExact)) use.second = flow.rate;
  return use;
}

SimGridMachine::Route SimGridMachine::AddRoute(const Use& use,
                                               const std::vector<s4u::Link*>& links) {
  const std::string name = fmt::format("route {}", routes_.size());
  const Route route{zone_->create_host(name + " from", 1.0)->seal(),
                    zone_->create_host(name + " to", 1.0)->seal()};
  std::vector<s4u::LinkInRoute> path;
  for (Resource resource : use.first) path.emplace_back(links[static_cast<size_t>(resource)]);
  if (use.second > 0) {
    // Comm::set_rate() has no effect on host-to-host communications in SimGrid 3.32; a link that
    // each flow has for itself does the same.
    path.emplace_back(zone_->create_link(name, use.second)
                          ->set_latency(0)
                          ->set_sharing_policy(s4u::Link::SharingPolicy::FATPIPE)
                          ->seal());
  }
  zone_->add_route(route.from->get_netpoint(), route.to->get_netpoint(), nullptr, nullptr, path,
                   false);
  return route;
}

SimGridRun::SimGridRun(SimGridMachine& machine, const Simulation& simulation)
    : machine_(machine), simulation_(simulation) {
  const plan::Plan& plan = simulation.plan();
  const hardware::Latencies& latency = simulation.model().latencies();
  const size_t ops = plan.ops.size();
  route_.resize(ops);
  gap_.resize(ops);
  recorded_ = plan::FindEvents(plan).recorded;
  dependents_.resize(ops);
  called_first_.resize(ops);
  lanes_.resize(plan.lanes.size());
  for (size_t l = 0; l < lanes_.size(); ++l) lanes_[l].index = l;
  for (size_t i = 0; i < ops; ++i) {
    const plan::Op& op = plan.ops[i];
    const OpId id{static_cast<int32_t>(i)};
    const OpCost& cost = simulation.Cost(id);
    if (cost.amount > 0) {
      if (IsHostWork(op)) CannotMap("a host gather");
      route_[i] = machine.routes_.at(machine.UseOf(cost));
    }
    for (OpId wait : plan.Waits(op)) dependents_[At(wait)].push_back(id);
    lanes_[At(op.issuer)].queue.push_back(id);
    if (IsHostWork(op)) continue;
    auto& queue = lanes_[At(op.lane)].queue;
    const auto call_first = [&](OpId first) {
      if (plan[first].issuer != op.issuer) called_first_[i].push_back(first);
    };
    for (OpId wait : plan.Waits(op)) call_first(wait);
    if (!queue.empty()) call_first(queue.back());
    if (!queue.empty()) {
      const plan::Op& before = plan[queue.back()];
      gap_[i] = Seconds(GapBetween(before, op, latency));
    }
    queue.push_back(id);
  }
}

std::vector<double> SimGridRun::Run() {
  const plan::Plan& plan = simulation_.plan();
  const size_t ops = plan.ops.size();
  const double start = Now();
  missing_.resize(ops);
  for (size_t i = 0; i < ops; ++i) {
    missing_[i] = plan.ops[i].waits_count + (IsHostWork(plan.ops[i]) ? 0 : 1);
  }
  earliest_.assign(ops, start);
  call_end_.assign(ops, -1);
  end_.assign(ops, -1);
  called_.assign(ops, false);
  for (Lane& lane : lanes_) lane.next = 0;
  machine_.running_ = this;
  for (size_t l = 0; l < lanes_.size(); ++l) {
    if (plan.lanes[l].kind == traces::LaneKind::kHost) Issue(lanes_[l]);
  }
  machine_.engine_.run();
  machine_.running_ = nullptr;
  for (double& end : end_) end -= start;
  return std::move(end_);
}

void SimGridRun::Issue(Lane& host) {
  if (host.issuing) return;
  host.issuing = true;
  const plan::Plan& plan = simulation_.plan();
  const hardware::Latencies& latency = simulation_.model().latencies();
  while (host.phase == Phase::kIdle && host.next < host.queue.size()) {
    const OpId id = host.queue[host.next];
    const plan::Op& op = plan[id];
    const OpCost& cost = simulation_.Cost(id);
    if (IsHostWork(op)) {
      if (missing_[At(id)] > 0) break;
      ++host.next;
      host.current = id;
      After(host, Phase::kHostWork,
            std::max(0.0, earliest_[At(id)] - Now()) + Seconds(cost.host + cost.fixed));
    } else {
      if (!OthersHaveCalled(id)) break;
      ++host.next;
      host.current = id;
      const Picoseconds waits = op.waits_count * latency.cpp.stream_wait;
      After(host, Phase::kFirstCall, op.graph_node ? 0 : Seconds(waits + cost.first_call));
    }
  }
  host.issuing = false;
}

void SimGridRun::Begin(Lane& stream) {
  if (stream.phase != Phase::kIdle || stream.next == stream.queue.size()) return;
  const OpId id = stream.queue[stream.next];
  if (missing_[At(id)] > 0) return;
  double start = earliest_[At(id)];
  if (stream.next > 0) start = std::max(start, stream.free_at + gap_[At(id)]);
  ++stream.next;
  stream.current = id;
  const OpCost& cost = simulation_.Cost(id);
  const double delay = std::max(0.0, start - Now());
  if (cost.engine == hardware::Engine::kNone && !cost.streams_weights) {
    After(stream, Phase::kFixed, delay + Seconds(cost.fixed));
  } else {
    After(stream, Phase::kArrival, delay);
  }
}

void SimGridRun::After(Lane& lane, Phase phase, double seconds) {
  lane.phase = phase;
  if (seconds <= kInstant) return OnEnd(lane);
  s4u::ExecPtr exec = s4u::Exec::init();
  exec->set_data(&lane);
  exec->set_flops_amount(seconds)->set_host(machine_.lane_hosts_[lane.index]);
  lane.ended = std::exchange(lane.activity, exec);
  exec->start();
}

void SimGridRun::Flow(Lane& stream) {
  stream.phase = Phase::kFlow;
  const OpCost& cost = simulation_.Cost(stream.current);
  if (!(cost.amount > 0)) return OnEnd(stream);
  const SimGridMachine::Route& route = route_[At(stream.current)];
  s4u::CommPtr comm = s4u::Comm::sendto_init();
  comm->set_data(&stream);
  comm->set_payload_size(static_cast<uint64_t>(cost.amount));
  stream.ended = std::exchange(stream.activity, comm);
  comm->set_source(route.from)->set_destination(route.to);  // which starts it
}

void SimGridRun::OnEnd(Lane& lane) {
  const OpCost& cost = simulation_.Cost(lane.current);
  switch (lane.phase) {
    case Phase::kFirstCall: {
      const plan::Op& op = simulation_.plan()[lane.current];
      const hardware::Latencies& latency = simulation_.model().latencies();
      Satisfy(lane.current,
              Now() + Seconds(latency.handoff(Site::kHost, SiteOf(op), How::kStream)));
      const Picoseconds record =
          recorded_[At(lane.current)] ? latency.cpp.event_record : Picoseconds{0};
      return After(lane, Phase::kRestOfCall,
                   op.graph_node ? 0 : Seconds(cost.host - cost.first_call + record));
    }
    case Phase::kRestOfCall:
      return OnCallEnd(lane);
    case Phase::kHostWork:
      lane.phase = Phase::kIdle;
      Complete(lane.current);
      ReportCalled(lane.current);
      return Issue(lane);
    case Phase::kArrival: {
      if (cost.engine == hardware::Engine::kNone) return Flow(lane);  // its fixed time comes last
      CopyEngine& engine = engines_[static_cast<size_t>(cost.engine)];
      if (engine.busy && engine.kept_for != &lane) {
        lane.phase = Phase::kQueued;
        engine.waiting.push_back(&lane);
        return;
      }
      engine.busy = true;
      engine.kept_for = nullptr;
      return After(lane, Phase::kFixed, Seconds(cost.fixed));
    }
    case Phase::kFixed:
      return Flow(lane);
    case Phase::kFlow:
      if (cost.streams_weights) return After(lane, Phase::kTail, Seconds(cost.fixed));
      if (cost.last_piece.count() == 0) return EndStreamOp(lane);
      lane.phase = Phase::kHandOver;
      if (call_end_[At(lane.current)] >= 0) HandOver(lane);
      return;
    case Phase::kTail:
      return EndStreamOp(lane);
    case Phase::kIdle:
    case Phase::kQueued:
    case Phase::kHandOver:
      throw std::logic_error("an activity of SimGrid ends that nobody started");
  }
}

void SimGridRun::OnCallEnd(Lane& host) {
  const OpId id = host.current;
  host.phase = Phase::kIdle;
  call_end_[At(id)] = Now();
  Lane& stream = lanes_[At(simulation_.plan()[id].lane)];
  if (stream.phase == Phase::kHandOver && stream.current == id) HandOver(stream);
  ReportCalled(id);
  Issue(host);
}

bool SimGridRun::OthersHaveCalled(OpId id) const {
  return std::ranges::all_of(called_first_[At(id)], [&](OpId first) { return called_[At(first)]; });
}

void SimGridRun::ReportCalled(OpId id) {
  called_[At(id)] = true;
  const plan::Plan& plan = simulation_.plan();
  for (size_t l = 0; l < lanes_.size(); ++l) {
    if (plan.lanes[l].kind == traces::LaneKind::kHost) Issue(lanes_[l]);
  }
}

void SimGridRun::HandOver(Lane& stream) {
  const double handed_over =
      call_end_[At(stream.current)] + Seconds(simulation_.Cost(stream.current).last_piece);
  After(stream, Phase::kTail, handed_over - Now());
}

void SimGridRun::EndStreamOp(Lane& stream) {
  const OpId id = stream.current;
  stream.free_at = Now();
  Complete(id);
  stream.phase = Phase::kIdle;
  if (const auto engine = simulation_.Cost(id).engine; engine != hardware::Engine::kNone) {
    Release(engines_[static_cast<size_t>(engine)], stream, engine);
  }
  Begin(stream);
}

// A stream keeps the engine for a copy that only follows its last one.
void SimGridRun::Release(CopyEngine& engine, Lane& stream, hardware::Engine kind) {
  if (stream.next < stream.queue.size()) {
    const OpId next = stream.queue[stream.next];
    if (missing_[At(next)] == 0 && earliest_[At(next)] <= stream.free_at + gap_[At(next)] &&
        simulation_.Cost(next).engine == kind) {
      engine.kept_for = &stream;
      return;
    }
  }
  engine.busy = !engine.waiting.empty();
  if (!engine.busy) return;
  Lane& next = *engine.waiting.front();
  engine.waiting.pop_front();
  const OpCost& its = simulation_.Cost(next.current);
  After(next, Phase::kFixed, Seconds(its.fixed));
}

void SimGridRun::Complete(OpId id) {
  const plan::Plan& plan = simulation_.plan();
  const hardware::Latencies& latency = simulation_.model().latencies();
  end_[At(id)] = Now();
  for (OpId next : dependents_[At(id)]) {
    const plan::Op& op = plan[next];
    const Site to = SiteOf(op);
    const bool notified = std::holds_alternative<plan::HostHandoff>(op.work);
    const Picoseconds delay = latency.handoff(notified                          ? Site::kHost
                                              : SiteOf(plan[id]) == Site::kHost ? Site::kKernel
                                                                                : SiteOf(plan[id]),
                                              to, How::kEvent);
    Satisfy(next, Now() + Seconds(delay));
  }
}

void SimGridRun::Satisfy(OpId id, double earliest) {
  earliest_[At(id)] = std::max(earliest_[At(id)], earliest);
  if (--missing_[At(id)] > 0) return;
  const plan::Op& op = simulation_.plan()[id];
  if (IsHostWork(op)) {
    Issue(lanes_[At(op.lane)]);
  } else {
    Begin(lanes_[At(op.lane)]);
  }
}

double WorstDifference(const Execution& execution, std::span<const double> ends) {
  double worst = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    worst = std::max(worst, std::abs(Seconds(execution.end[i]) - ends[i]));
  }
  return worst;
}

int64_t SlowedBySharing(const Simulation& simulation, const Execution& execution) {
  int64_t slowed = 0;
  for (size_t i = 0; i < execution.end.size(); ++i) {
    const OpId id{static_cast<int32_t>(i)};
    const OpCost& cost = simulation.Cost(id);
    if (IsHostWork(simulation.plan()[id]) || cost.engine != hardware::Engine::kNone) continue;
    slowed += execution.end[i] - execution.start[i] > cost.Alone() + Picoseconds(2);
  }
  return slowed;
}

hardware::Profile EqualWeights() {
  hardware::Profile p = hardware::FindProfile("h200");
  for (auto& [kind, fit] : p.kernels) {
    fit.bandwidth = p.memory.bandwidth;
    fit.flops_rate = 0;
    fit.serial_s = 0;
    fit.points.clear();
  }
  constexpr double kLinkPriority = 1e3;  // of the cost model, in favour of the link
  p.link.both_h2d = p.link.both_d2h = p.memory.bandwidth / kLinkPriority;
  p.copy.device_factor = 1;
  p.zero_copy.memory_loss = hardware::Curve({1, 100}, {1, 1});
  p.device.sms = 1e6;
  // What SimGrid is not told of.
  p.copy.h2d_inline_call = p.host.woken = p.host.handoff_asleep = {};
  p.copy.crowded_piece = p.copy.group_turn = p.memory.drag_share = p.gemm.delays_kernel = 0;
  p.handoff.SetEventToCopy(
      p.handoff.SetEventFromCopy(p.handoff(Site::kKernel, Site::kKernel, How::kEvent)));
  return p;
}

}  // namespace stallcast::sim
