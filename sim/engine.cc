#include "sim/engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>

#include "models/hardware/background_ticks.h"
#include "sim/compiled_plan.h"
#include "sim/fair_share.h"

namespace stallcast::sim {
namespace {

using hardware::How;
using hardware::OpCost;
using hardware::Site;
using plan::LaneId;
using plan::OpId;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// To the nearest, of what is not negative: std::llround() is a call.
int64_t Rounded(double time) {
  return static_cast<int64_t>(time + 0.5);  // NOLINT(bugprone-incorrect-roundings)
}

// One run of the event loop. Every lane has at most one op under way, so the pending events are one
// time a lane: the next is found by a scan, which beats any heap at the few lanes that a plan has.
class EventLoop {
 public:
  /// `factors`, by op kind, multiply device times; empty: all 1.
  EventLoop(const plan::Plan& plan, const CompiledPlan& compiled, const hardware::CostModel& model,
            std::span<const double> factors)
      : plan_(plan),
        compiled_(compiled),
        latency_(model.latencies()),
        factors_(factors),
        model_(model),
        share_(model.capacity()),
        lanes_(plan.lanes.size()),
        event_(plan.lanes.size(), kNever),
        boost_left_(BoostOf(plan, model.profile())) {
    for (size_t lane = 0; lane < plan.lanes.size(); ++lane) {
      const bool host = plan.lanes[lane].kind == traces::LaneKind::kHost;
      (host ? threads_ : streams_).push_back(lane);
      lanes_[lane].host = host;
      lanes_[lane].queue = compiled.queue[lane];
    }
    for (const auto direction : {plan::Direction::kHostToDevice, plan::Direction::kDeviceToHost}) {
      const auto background = model.BackgroundOf(direction);
      const bool h2d = direction == plan::Direction::kHostToDevice;
      if (background.period.count() > 0) {
        AddBackground(background, direction, h2d ? &out_.background_h2d : &out_.background_d2h);
      }
    }
    const size_t ops = plan.ops.size();
    out_.start.resize(ops);
    out_.end.resize(ops);
    out_.call_end.resize(ops);
    out_.cause.resize(ops);
    missing_.resize(ops);
    carried_.resize(ops);
    called_.resize(ops);
    for (size_t i = 0; i < ops; ++i) {
      // A stream op also waits for its own call.
      const plan::Op& op = plan.ops[i];
      missing_[i] = static_cast<uint16_t>(op.waits_count + (IsHostWork(op) ? 0 : 1));
    }
  }

  Execution Go() {
    for (const size_t lane : threads_) MakeCalls(lane);
    while (done_ < plan_.ops.size()) {
      const auto next = std::min_element(event_.begin(), event_.end());
      if (next == event_.end() || *next == kNever || OnlyBackground()) {
        ThrowDeadlock();
      }
      now_ = *next;
      *next = kNever;
      OnEvent(static_cast<size_t>(next - event_.begin()));
    }
    return std::move(out_);
  }

 private:
  // An op goes through these in turn; kArrival and kTail are often instants.
  enum class Phase : uint8_t {
    kNone,
    kCall,     // of a host thread: the call before, on whose end the next one's time depends
    kArrival,  // its lane, waits and call allow it to start
    kQueued,   // waits for the copy engine
    kFixed,    // its time that shares nothing; load may stretch it
    kFlow,     // shares what it uses
    kTail,     // its last piece, which the host has handed over late
  };

  struct Lane {
    const OpCost* cost = nullptr;  // of what is under way
    std::span<const OpId> queue;   // what it calls and does, in order
    size_t next = 0;               // of its queue; a stream has started those before
    size_t issued = 0;             // calls made for a stream's ops
    OpId current = OpId::kNone;    // under way
    OpId previous = OpId::kNone;   // the last op; of a host lane, or call
    Phase phase = Phase::kNone;
    bool host = false;           // a thread's
    int64_t free_at = 0;         // end of the previous op or call
    int64_t since = 0;           // `remaining` is of this time
    double remaining = 0;        // units; of a fixed time that load stretches, ps
    double rate = 0;             // of `remaining` a ps
    double fixed = 0;            // the stretchable fixed time unloaded, ps; 0: it is not under way
    int64_t others_called = 0;   // when the engine can know of what its first call does not carry
    bool carried_first = false;  // that is done, of the copy under way
    bool queued_behind_background = false;
    OpId until_called = OpId::kNone;  // a thread waits until another has made the call of this
    double cold = 0;                  // what calls of a thread that has slept take longer, ps
  };

  // Copies of others. Two lanes: `timer` has the next one's time as its event, `timer` + 1 is the
  // copy under way.
  struct Background {
    OpCost copy;
    hardware::BackgroundTicks ticks;
    Bytes* copied = nullptr;
    size_t timer = 0;
    int pending = 0;
    int in_a_row = 0;  // copies since its stream got the engine
  };

  struct Server {
    bool busy = false;
    OpId holder = OpId::kNone;       // none: background traffic
    std::optional<size_t> kept_for;  // the lane whose next copy follows its last one
    std::deque<size_t> waiting;      // lanes, by arrival
  };

  bool IsHost(size_t lane) const { return lanes_[lane].host; }
  bool IsBackground(size_t lane) const { return lane >= plan_.lanes.size(); }

  void AddBackground(const hardware::CostModel::Background& of, plan::Direction direction,
                     Bytes* copied) {
    background_.push_back({.copy = of.copy,
                           .ticks = hardware::BackgroundTicks(direction, of.period),
                           .copied = copied,
                           .timer = lanes_.size()});
    lanes_.resize(lanes_.size() + 2);
    event_.resize(lanes_.size(), kNever);
    event_[background_.back().timer] = background_.back().ticks.Next().count();
  }

  /// Whether nothing of the plan is under way, so that nothing of it can ever happen.
  bool OnlyBackground() const {
    return !background_.empty() &&
           std::all_of(lanes_.begin(),
                       lanes_.begin() + static_cast<std::ptrdiff_t>(plan_.lanes.size()),
                       [](const Lane& lane) { return lane.phase == Phase::kNone; });
  }

  [[noreturn]] void ThrowDeadlock() const {
    size_t op = 0;
    while (op + 1 < missing_.size() && missing_[op] == 0) ++op;
    throw std::logic_error("deadlock: op " + std::to_string(op) +
                           " waits for an op that never runs");
  }

  double Factor(OpId id) const {
    return factors_.empty() || id == OpId::kNone ? 1.0 : factors_[plan_.ops[At(id)].work.index()];
  }
  int64_t Stretch(Picoseconds t, OpId id) const {
    return factors_.empty() ? t.count() : Rounded(static_cast<double>(t.count()) * Factor(id));
  }
  Server& ServerOf(const OpCost& cost) { return servers_[static_cast<size_t>(cost.engine)]; }

  /// Until an op starts, its start says how long it has been held back.
  int64_t Earliest(OpId id) const { return out_.start[At(id)].count(); }
  /// The op cannot start before `time`; remembers what holds it back longest.
  void HoldBack(OpId id, int64_t time, Cause cause) {
    if (time < Earliest(id)) return;
    out_.start[At(id)] = Picoseconds(time);
    out_.cause[At(id)] = cause;
  }

  /// Lets a host thread make its calls until it blocks.
  void MakeCalls(size_t lane) {
    Lane& host = lanes_[lane];
    for (; host.phase == Phase::kNone && host.next < host.queue.size(); ++host.next) {
      const OpId id = host.queue[host.next];
      const plan::Op& op = plan_.ops[At(id)];
      if (IsHostWork(op)) {
        if (missing_[At(id)] > 0) return;
        DoHostWork(lane, id);
      } else if (!OthersHaveCalled(host, id)) {
        return;
      } else if (host.free_at > now_ && !op.graph_node && DependsOnState(id)) {
        host.phase = Phase::kCall;
        event_[lane] = host.free_at;
        return;
      } else {
        Issue(lane, id, op);
      }
    }
  }

  /// The calls of others that come before its own; else the thread waits for the first that has not
  /// been made.
  bool OthersHaveCalled(Lane& host, OpId id) {
    if (compiled_.called_first.ids.empty()) return true;
    for (const OpId first : compiled_.called_first[At(id)]) {
      if (called_[At(first)]) {
        host.free_at = std::max(host.free_at, out_.call_end[At(first)].count());
      } else {
        host.until_called = first;
        return false;
      }
    }
    return true;
  }

  void ReportCalled(OpId id) {
    called_[At(id)] = true;
    for (const size_t i : threads_) {
      Lane& other = lanes_[i];
      if (other.until_called != id) continue;
      other.until_called = OpId::kNone;
      other.free_at = std::max(other.free_at, out_.call_end[At(id)].count());
      other.phase = Phase::kCall;
      event_[i] = std::max(other.free_at, now_);
    }
  }

  /// Whether what a call takes depends on what others are at when it begins.
  bool DependsOnState(OpId id) const { return compiled_.NatureOf(id).may_inline; }

  void Issue(size_t lane, OpId id, const plan::Op& op) {
    Lane& host = lanes_[lane];
    Lane& stream = lanes_[At(op.lane)];
    // The op's own call is what is missing, and nothing else is under way.
    carried_[At(id)] = compiled_.NatureOf(id).may_inline && missing_[At(id)] == 1 &&
                       stream.phase == Phase::kNone && stream.issued == stream.next;
    const OpCost& cost = CostOf(id);
    int64_t first = 0, all = 0;
    if (!op.graph_node) {
      // The waits are enqueued before the op, the event that others wait for behind it.
      const hardware::Latencies::Calls& of_events = latency_.Of(op.from_pytorch);
      int64_t waits = int64_t{op.waits_count} * of_events.stream_wait.count();
      if (!compiled_.enters.empty() && compiled_.enters[At(id)]) waits += of_events.enter.count();
      // When so many of its calls are made, that alone take so long.
      const auto made = [&](int calls, Picoseconds time) {
        const int64_t at = waits + time.count();
        return host.cold >= 1 ? at + Rounded(host.cold - std::ldexp(host.cold, -calls)) : at;
      };
      first = made(std::min(cost.calls, 1), cost.first_call);
      if (cost.second_call.count() > 0) {
        const int64_t second = made(2, cost.second_call);
        stream.others_called =
            host.free_at + second + latency_.handoff(Site::kHost, Site::kH2D, How::kStream).count();
      }
      all = made(cost.calls, cost.host + (compiled_.recorded[At(id)] ? of_events.event_record
                                                                     : Picoseconds{0}));
      if (host.cold >= 1) host.cold = std::ldexp(host.cold, -cost.calls);
    }
    out_.call_end[At(id)] = Picoseconds(host.free_at + all);
    // An inline copy comes with the commands of kernels.
    const Site site = carried_[At(id)] ? Site::kKernel : compiled_.NatureOf(id).site;
    const Picoseconds latency = latency_.handoff(Site::kHost, site, How::kStream);
    HoldBack(id, host.free_at + first + latency.count(), {CauseKind::kIssue, id});
    host.free_at += all;
    host.previous = id;
    ++stream.issued;
    if (!compiled_.called_first.ids.empty()) ReportCalled(id);
    Satisfy(id);
  }

  const OpCost& CostOf(OpId id) const {
    return carried_[At(id)] ? *compiled_.Inlined(id) : compiled_.Cost(id);
  }
  /// Whether all of a copy goes in its call: then it is no copy to the streams.
  bool IsCarried(OpId id) const { return carried_[At(id)] && compiled_.Inlined(id)->calls == 1; }

  void DoHostWork(size_t lane, OpId id) {
    Lane& host = lanes_[lane];
    const OpCost& cost = compiled_.Cost(id);
    const int64_t begin = host.free_at;
    HoldBack(id, begin,
             {host.previous == OpId::kNone ? CauseKind::kNone : CauseKind::kLane, host.previous});
    event_[lane] = Earliest(id) + cost.host.count() + Stretch(cost.fixed, id);
    out_.start[At(id)] = Picoseconds(begin);
    host.current = id;
    host.cost = &cost;
    host.phase = Phase::kFixed;
  }

  /// One of the things that the op waits for is done or known.
  void Satisfy(OpId id) {
    if (--missing_[At(id)] > 0) return;
    const plan::Op& op = plan_.ops[At(id)];
    if (IsHostWork(op)) {
      MakeCalls(At(op.lane));
    } else {
      Advance(At(op.lane));
    }
  }

  /// Starts a stream's next op, as soon as time allows, if nothing else holds it back.
  void Advance(size_t lane) {
    Lane& stream = lanes_[lane];
    if (stream.phase != Phase::kNone) return;
    if (stream.next == stream.queue.size() || missing_[At(stream.queue[stream.next])] > 0) return;
    const OpId id = stream.queue[stream.next++];
    if (stream.previous != OpId::kNone) {
      HoldBack(id, stream.free_at + GapBehind(stream.previous, id),
               {CauseKind::kLane, stream.previous});
    }
    stream.current = id;
    stream.cost = &CostOf(id);
    stream.phase = Phase::kArrival;
    event_[lane] = Earliest(id);
  }

  int64_t GapBehind(OpId previous, OpId id) const {
    if (compiled_.in_graph[At(id)]) {
      return latency_.handoff(Site::kKernel, Site::kKernel, How::kGraph).count();
    }
    Site from = compiled_.NatureOf(previous).site, to = compiled_.NatureOf(id).site;
    if (from != to) {
      // An inline copy comes with the commands of kernels.
      if (IsCarried(previous)) from = Site::kKernel;
      if (carried_[At(id)]) to = Site::kKernel;
    }
    return latency_.handoff(from, to, How::kStream).count();
  }

  void OnEvent(size_t index) {
    Lane& lane = lanes_[index];
    switch (lane.phase) {
      case Phase::kArrival:
        return Arrive(index);
      case Phase::kFixed:
        lane.fixed = 0;
        if (lane.cost->amount > 0 && !lane.cost->streams_weights) return BeginFlow(index);
        return EndFlow(index);
      case Phase::kFlow:
        share_.Remove(static_cast<int>(index));
        UpdateRates();
        if (lane.cost->streams_weights) return BeginFixed(index, lane.cost->fixed);
        return EndFlow(index);
      case Phase::kTail:
        return Finish(index);
      case Phase::kCall:
        lane.phase = Phase::kNone;
        return MakeCalls(index);
      case Phase::kNone:
        if (IsBackground(index)) return OnTimer(index);
        [[fallthrough]];
      case Phase::kQueued:
        throw std::logic_error("event on a lane that expects none");
    }
  }

  void OnTimer(size_t timer) {
    Background& of = BackgroundAt(timer);
    event_[timer] = now_ + of.ticks.Next().count();
    if (of.pending == hardware::kBackgroundCopies) return;
    if (++of.pending == 1) StartBackground(of);
  }

  void StartBackground(const Background& of) {
    lanes_[of.timer + 1].cost = &of.copy;
    Arrive(of.timer + 1);
  }

  Background& BackgroundAt(size_t index) { return background_[(index - plan_.lanes.size()) / 2]; }

  void Arrive(size_t index) {
    Lane& lane = lanes_[index];
    const OpCost& cost = *lane.cost;
    if (cost.kernel && now_ < front_end_until_) {
      event_[index] = front_end_until_;
      return;
    }
    if (cost.engine == hardware::Engine::kNone) return Start(index, cost.fixed);
    if (cost.second_call.count() > 0 && !std::exchange(lane.carried_first, true)) {
      out_.start[At(lane.current)] = Picoseconds(now_);
      const int64_t between = latency_.handoff(Site::kKernel, Site::kH2D, How::kStream).count();
      event_[index] = std::max(MoveCarried(cost) + between, lane.others_called);
      return;
    }
    Server& server = ServerOf(cost);
    if (!server.busy || server.kept_for == index) {
      server.busy = true;
      server.kept_for.reset();
      server.holder = lane.current;
      return Start(index, EngineTime(index));
    }
    lane.phase = Phase::kQueued;
    server.waiting.push_back(index);
    if (server.holder == OpId::kNone) WaitBehindBackground(lane);
  }

  /// Others' copies are no ops of the plan: the wait for them is part of the op that waits.
  void WaitBehindBackground(Lane& lane) {
    if (lane.current == OpId::kNone || lane.carried_first || lane.queued_behind_background) return;
    lane.queued_behind_background = true;
    out_.start[At(lane.current)] = Picoseconds(now_);
  }

  /// The GPU's front end moves what a call has brought: until when.
  int64_t MoveCarried(const OpCost& cost) {
    const int64_t moved = now_ + cost.front_end.count();
    front_end_until_ = std::max(front_end_until_, moved);
    return moved;
  }

  void Start(size_t index, Picoseconds fixed) {
    Lane& lane = lanes_[index];
    const bool has_begun = std::exchange(lane.carried_first, false);
    if (has_begun) {
      const Picoseconds moved = out_.start[At(lane.current)] + lane.cost->front_end;
      out_.carried_first.push_back({lane.current, moved, Picoseconds(now_)});
    }
    const bool queued = std::exchange(lane.queued_behind_background, false);
    if (lane.current != OpId::kNone && !has_begun && !queued) {
      out_.start[At(lane.current)] = Picoseconds(now_);
    }
    if (!has_begun) MoveCarried(*lane.cost);
    written_ += lane.cost->written;
    if (lane.cost->streams_weights && lane.cost->amount > 0) return BeginFlow(index);
    BeginFixed(index, fixed);
  }

  void BeginFixed(size_t index, Picoseconds fixed) {
    Lane& lane = lanes_[index];
    lane.phase = Phase::kFixed;
    const Picoseconds stretched(Stretch(fixed, lane.current));
    if (!lane.cost->kernel || model_.start_beside_gemm() == 0) {
      event_[index] = now_ + stretched.count();
      return;
    }
    lane.fixed = lane.remaining = std::max(1.0, static_cast<double>(stretched.count()));
    lane.since = now_;
    lane.rate = StartSpeed(lane);
    event_[index] = now_ + Rounded(lane.remaining / lane.rate);
  }

  /// How fast a kernel's fixed time passes.
  double StartSpeed(const Lane& lane) const {
    if (!weights_flow_) return 1;
    const double longer = lane.cost->calls * model_.start_beside_gemm();
    return lane.fixed / (lane.fixed + longer * 1e12);
  }

  void BeginFlow(size_t index) {
    Lane& lane = lanes_[index];
    lane.phase = Phase::kFlow;
    lane.remaining =
        lane.cost->amount * Factor(lane.current) * Dragged(*lane.cost) * Boosted(*lane.cost);
    lane.rate = 0;
    lane.since = now_;
    share_.Add(static_cast<int>(index), *lane.cost);
    UpdateRates();
  }

  /// How many times as long a product streams behind what other kernels have written; that much of
  /// it is written back then.
  double Dragged(const OpCost& cost) {
    if (written_ == 0 || !cost.streams_weights) return 1;
    const hardware::WriteBack& write_back = model_.write_back();
    const double alone = cost.amount / cost.rate, owed = write_back.Seconds(written_);
    const double paid = std::min(owed, model_.profile().memory.drag_share * alone);
    written_ = write_back.Bytes(owed - paid);
    return 1 + paid / alone;
  }

  /// A prompt finds an idle GPU. Steps do not: a prompt came before them.
  static double BoostOf(const plan::Plan& plan, const hardware::Profile& profile) {
    return plan.step_ends.empty() && profile.device.boost > 1 ? profile.device.boost_time : 0;
  }

  /// Of the time of a kernel that computes, what is left of it while the GPU has not computed so
  /// long that the power limit sets the clock.
  double Boosted(const OpCost& cost) {
    if (!cost.boosted || boost_left_ <= 0) return 1;
    const double faster = model_.profile().device.boost;
    const double whole = cost.amount / cost.rate / faster;
    const double boosted = std::min(whole, boost_left_);
    boost_left_ -= boosted;
    return 1 - (1 - 1 / faster) * boosted / whole;
  }

  /// The set of flows has changed: flows whose rate is a new one get a new end.
  void UpdateRates() {
    share_.Solve();
    bool weights_flow = false;
    for (const FairShare::Flow& flow : share_.flows()) {
      SetRate(static_cast<size_t>(flow.id), lanes_[static_cast<size_t>(flow.id)],
              flow.rate * 1e-12);
      weights_flow |= flow.cost->streams_weights;
    }
    if (weights_flow == weights_flow_) return;
    weights_flow_ = weights_flow;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].fixed > 0) SetRate(i, lanes_[i], StartSpeed(lanes_[i]));
    }
  }

  void SetRate(size_t index, Lane& lane, double rate) {
    if (rate == lane.rate) return;
    lane.remaining =
        std::max(0.0, lane.remaining - lane.rate * static_cast<double>(now_ - lane.since));
    lane.rate = rate;
    lane.since = now_;
    event_[index] = now_ + Rounded(lane.remaining / rate);
  }

  void EndFlow(size_t index) {
    Lane& lane = lanes_[index];
    const Picoseconds last_piece = lane.cost->last_piece;
    if (last_piece.count() > 0) {
      const int64_t handed_over = (out_.call_end[At(lane.current)] + last_piece).count();
      if (handed_over > now_) {
        lane.phase = Phase::kTail;
        event_[index] = handed_over;
        return;
      }
    }
    Finish(index);
  }

  void Finish(size_t index) {
    Lane& lane = lanes_[index];
    const OpCost& cost = *lane.cost;
    const OpId id = lane.current;
    lane.phase = Phase::kNone;
    lane.current = OpId::kNone;
    lane.previous = id;
    lane.free_at = now_;
    if (IsBackground(index)) return FinishBackground(index);
    Complete(id, now_);
    if (IsHost(index)) {
      const plan::Op& op = plan_.ops[At(id)];
      if (op.waits_count > 0 && compiled_.NatureOf(id).handoff) {
        const Picoseconds asleep = Picoseconds(now_) - out_.start[At(id)] - cost.host;
        lane.cold = static_cast<double>(model_.Woken(asleep).count());
      }
      out_.call_end[At(id)] = Picoseconds(now_);
      if (!compiled_.called_first.ids.empty()) ReportCalled(id);
      MakeCalls(index);
    } else {
      Advance(index);
      if (cost.engine != hardware::Engine::kNone) HandOver(index, cost, id);
    }
  }

  /// The copy engine stays with a stream whose next copy only follows the one that is done.
  void HandOver(size_t index, const OpCost& done, OpId id) {
    Server& server = ServerOf(done);
    const Lane& lane = lanes_[index];
    const bool follows = lane.phase == Phase::kArrival && lane.cost->engine == done.engine &&
                         out_.cause[At(lane.current)].kind == CauseKind::kLane;
    if (!follows) return PassOn(server, id);
    server.kept_for = index;
  }

  /// Its stream keeps the engine too, but not for ever: more of its copies come all the time.
  void FinishBackground(size_t index) {
    Background& of = BackgroundAt(index);
    *of.copied += static_cast<Bytes>(of.copy.amount);
    const bool more = --of.pending > 0;
    const bool keeps = ++of.in_a_row < hardware::kBackgroundCopies;
    if (more && keeps) return Start(index, EngineTime(index));
    of.in_a_row = 0;
    PassOn(ServerOf(of.copy), OpId::kNone);
    if (more) StartBackground(of);
  }

  /// The copy engine's holder is done: the first in its queue goes on.
  void PassOn(Server& server, OpId holder) {
    server.busy = false;
    server.holder = OpId::kNone;
    if (server.waiting.empty()) return;
    const size_t index = server.waiting.front();
    server.waiting.pop_front();
    const OpId id = lanes_[index].current;
    server.busy = true;
    server.holder = id;
    if (id == OpId::kNone) {
      for (const size_t waiting : server.waiting) WaitBehindBackground(lanes_[waiting]);
    } else if (holder != OpId::kNone) {
      out_.cause[At(id)] = {CauseKind::kEngine, holder};
    }
    Start(index, EngineTime(index));
  }

  /// What an op that has the copy engine takes before its bytes flow.
  Picoseconds EngineTime(size_t index) {
    const OpCost& cost = *lanes_[index].cost;
    const Picoseconds crowded = cost.extra_if_three_streams_busy;
    if (crowded.count() > 0 && BusyStreamsBeside(index) >= 2) return cost.fixed + crowded;
    const Picoseconds extra = cost.extra_if_sibling_waits;
    return extra.count() > 0 && SiblingWaits(index) ? cost.fixed + extra : cost.fixed;
  }

  /// Streams that have been given work which is not done.
  int BusyStreamsBeside(size_t index) const {
    int busy = 0;
    for (const size_t i : streams_) {
      const Lane& lane = lanes_[i];
      if (i != index && (lane.phase != Phase::kNone || lane.issued > lane.next)) ++busy;
    }
    return busy;
  }

  /// Whether another stream of the same group has a kernel that waits, for an event or for the
  /// stream's copies. What computes is alone in its group (kernels/runtime/fast_streams.h).
  bool SiblingWaits(size_t index) const {
    if (plan_.lanes[index].compute) return false;
    return std::ranges::any_of(streams_, [&](size_t i) {
      return i != index && !plan_.lanes[i].compute && KernelWaits(i);
    });
  }

  bool KernelWaits(size_t index) const {
    const Lane& lane = lanes_[index];
    const bool follows = lane.issued > lane.next;
    if (lane.phase != Phase::kNone) {
      if (follows && compiled_.awaited_copy[At(lane.current)]) return true;
      return lane.phase == Phase::kArrival && lane.previous != OpId::kNone &&
             compiled_.awaited_copy[At(lane.previous)];
    }
    return follows && !compiled_.NatureOf(lane.queue[lane.next]).copy();
  }

  void Complete(OpId id, int64_t end) {
    out_.end[At(id)] = Picoseconds(end);
    out_.end_of_all = std::max(out_.end_of_all, Picoseconds(end));
    ++done_;
    // Host work that others wait for is noticed as a kernel's end is.
    const Site of = compiled_.NatureOf(id).site;
    const Site site = of == Site::kHost || IsCarried(id) ? Site::kKernel : of;
    for (OpId next : compiled_.dependents[At(id)]) {
      const plan::Op& op = plan_.ops[At(next)];
      const Picoseconds delay =
          compiled_.NatureOf(next).handoff
              ? Handoff(op, end)
              : latency_.handoff(site, compiled_.NatureOf(next).site, How::kEvent);
      HoldBack(next, end + delay.count(), {CauseKind::kWait, id});
      Satisfy(next);
    }
  }

  /// From then on until the thread of a handoff that waits for it goes on, which sleeps since it
  /// has nothing to do.
  Picoseconds Handoff(const plan::Op& op, int64_t end) const {
    const Lane& thread = lanes_[At(op.lane)];
    const int64_t asleep = thread.phase == Phase::kNone ? end - thread.free_at : 0;
    return model_.Handoff(Picoseconds(std::max<int64_t>(asleep, 0)));
  }

  const plan::Plan& plan_;
  const CompiledPlan& compiled_;
  const hardware::Latencies& latency_;
  std::span<const double> factors_;
  const hardware::CostModel& model_;
  FairShare share_;
  std::vector<Lane> lanes_;
  std::vector<size_t> threads_, streams_;  // of the plan's lanes
  std::vector<int64_t> event_;     // when each lane's phase ends; kNever: something else wakes it
  std::array<Server, 3> servers_;  // by hardware::Engine
  std::vector<Background> background_;
  double boost_left_ = 0;          // s that kernels may compute at the clock of an idle GPU
  bool weights_flow_ = false;      // of a GEMM that is bound by memory
  int64_t front_end_until_ = 0;    // no kernel starts before
  double written_ = 0;             // bytes that wait to be written back, as WriteBack has them
  std::vector<uint16_t> missing_;  // by op: waits and own call not yet done
  std::vector<bool> called_;       // by op: its call has been made
  std::vector<bool> carried_;      // by op: a copy whose call carried (the first of) it
  int64_t now_ = 0;
  size_t done_ = 0;
  Execution out_;
};

}  // namespace

Simulation::Simulation(const plan::Plan& plan, const hardware::CostModel& model)
    : plan_(plan), model_(model), compiled_(std::make_unique<CompiledPlan>(plan, model_)) {}

Simulation::~Simulation() = default;

Execution Simulation::Run() const { return EventLoop(plan_, *compiled_, model_, {}).Go(); }

Execution Simulation::Sample(uint64_t seed) const {
  // The spread of a kind is that of its widest cost.
  std::array<double, plan::kOpKinds> spread{};
  for (size_t i = 0; i < plan_.ops.size(); ++i) {
    double& s = spread[plan_.ops[i].work.index()];
    s = std::max(s, Cost(OpId{static_cast<int32_t>(i)}).spread);
  }
  std::mt19937_64 generator(seed);
  // Box-Muller by hand: the standard's normal_distribution may differ between libraries.
  auto uniform = [&] { return (static_cast<double>(generator() >> 11) + 0.5) * 0x1p-53; };
  std::array<double, plan::kOpKinds> factors;
  for (size_t kind = 0; kind < factors.size(); ++kind) {
    const double u = uniform(), v = uniform();
    const double z = std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
    const double sigma2 = std::log1p(spread[kind] * spread[kind]);
    factors[kind] = std::exp(std::sqrt(sigma2) * z - sigma2 / 2);
  }
  return EventLoop(plan_, *compiled_, model_, factors).Go();
}

const hardware::OpCost& Simulation::Cost(OpId id) const { return compiled_->Cost(id); }

const hardware::OpCost& Simulation::LeastCost(OpId id) const {
  const auto& inlined = compiled_->Inlined(id);
  return inlined ? *inlined : compiled_->Cost(id);
}

OpId Simulation::PreviousCall(OpId id) const {
  const LaneId issuer = plan_[id].issuer;
  do {
    id = OpId{plan::Index(id) - 1};
  } while (id != OpId::kNone && plan_[id].issuer != issuer);
  return id;
}

Picoseconds Simulation::CallStart(OpId id, const Execution& execution) const {
  const OpId previous = PreviousCall(id);
  Picoseconds start = previous == OpId::kNone ? Picoseconds{0} : execution.call_end[At(previous)];
  if (compiled_->called_first.ids.empty()) return start;
  for (const OpId first : compiled_->called_first[At(id)]) {
    start = std::max(start, execution.call_end[At(first)]);
  }
  return start;
}

}  // namespace stallcast::sim
