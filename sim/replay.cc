#include "sim/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <deque>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "models/hardware/profile.h"
#include "sim/exposed_time.h"
#include "sim/predict.h"
#include "sim/replay_changes.h"
#include "sim/replay_plan.h"
#include "traces/common/error.h"
#include "traces/reorder.h"
#include "traces/step_spans.h"

namespace stallcast::sim {
namespace {

using traces::LaneKind;
using traces::Timeline;

// A part of an op: most have one. Of a synchronisation the first is the call, the second its end;
// of a collective the first is its begin, the second its end.
struct Node {
  int64_t op = -1;
  int64_t duration = 0;
};

struct Edge {
  uint32_t to = 0;
  int64_t lag = 0;
};

// A plan's ops as nodes and edges, ready to run.
class Graph {
 public:
  explicit Graph(const ReplayPlan& plan) : plan_(plan) {
    CollectCalls();
    AddNodes();
    AddEdges();
  }

  size_t size() const { return nodes_.size(); }
  const Node& node(size_t n) const { return nodes_[n]; }
  size_t First(int64_t op) const { return first_[static_cast<size_t>(op)]; }
  size_t Last(int64_t op) const { return first_[static_cast<size_t>(op) + 1] - 1; }
  std::span<const Edge> FromBegin(size_t n) const { return from_begin_.Of(n); }
  std::span<const Edge> FromEnd(size_t n) const { return from_end_.Of(n); }
  const std::vector<uint32_t>& missing() const { return missing_; }

 private:
  struct Pending {
    uint32_t from;
    Edge edge;
  };
  struct Lists {
    std::vector<uint32_t> begin;
    std::vector<Edge> edges;
    std::span<const Edge> Of(size_t n) const {
      return {edges.data() + begin[n], begin[n + 1] - begin[n]};
    }
    void Fill(size_t nodes, std::vector<Pending>* pending) {
      std::ranges::stable_sort(*pending, {}, &Pending::from);
      begin.assign(nodes + 1, 0);
      for (const Pending& p : *pending) ++begin[p.from + 1];
      for (size_t n = 0; n < nodes; ++n) begin[n + 1] += begin[n];
      edges.reserve(pending->size());
      for (const Pending& p : *pending) edges.push_back(p.edge);
      *pending = {};
    }
  };

  // Calls of which all that they launch is gone take no time.
  void CollectCalls() {
    std::vector<uint8_t> calls(plan_.ops.size());  // 1: some run is gone; 2: some stays
    for (const ReplayOp& op : plan_.ops) {
      if (op.call >= 0) calls[static_cast<size_t>(op.call)] |= op.calls_kept ? 2 : 1;
    }
    idle_call_.resize(plan_.ops.size());
    for (size_t k = 0; k < calls.size(); ++k) idle_call_[k] = calls[k] == 1;
  }

  void AddNodes() {
    for (size_t k = 0; k < plan_.ops.size(); ++k) {
      const ReplayOp& op = plan_.ops[k];
      first_.push_back(nodes_.size());
      const auto id = static_cast<int64_t>(k);
      const int64_t duration = idle_call_[k] ? 0 : op.duration;
      if (op.host && op.sync) {
        nodes_.push_back({id, duration});
        nodes_.push_back({id, 0});
      } else if (op.meeting >= 0) {
        nodes_.push_back({id, 0});
        nodes_.push_back({id, 0});
      } else {
        for (int32_t i = 0; i < op.chunks; ++i) nodes_.push_back({id, duration / op.chunks});
      }
    }
    first_.push_back(nodes_.size());
    missing_.assign(nodes_.size(), 0);
  }

  void Add(std::vector<Pending>* list, size_t from, size_t to, int64_t lag) {
    list->push_back({static_cast<uint32_t>(from), {static_cast<uint32_t>(to), lag}});
    ++missing_[to];
  }

  void AddEdges() {
    std::vector<Pending> begins, ends;
    std::unordered_map<int32_t, std::vector<int64_t>> meetings;
    for (size_t k = 0; k < plan_.ops.size(); ++k) {
      const ReplayOp& op = plan_.ops[k];
      const auto id = static_cast<int64_t>(k);
      for (size_t n = First(id); n < Last(id); ++n) {
        if (op.meeting < 0) Add(&ends, n, n + 1, 0);
      }
      if (op.meeting >= 0) meetings[op.meeting].push_back(id);
      if (op.behind >= 0) {
        if (op.behind_start) {
          Add(&begins, First(op.behind), First(id), op.behind_lag);
        } else {
          Add(&ends, Last(op.behind), First(id), op.behind_lag);
        }
      }
      if (op.call >= 0) Add(&begins, First(op.call), First(id), op.call_lag);
      for (uint32_t w = op.first_wait; w < op.first_wait + op.waits; ++w) {
        const ReplayWait& wait = plan_.waits[w];
        const ReplayOp& of = plan_.ops[static_cast<size_t>(wait.op)];
        if (of.removed) continue;
        if (op.chunks > 1 && of.chunks == op.chunks) {
          for (size_t i = 0; i < static_cast<size_t>(op.chunks); ++i) {
            Add(&ends, First(wait.op) + i, First(id) + i, wait.lag);
          }
        } else {
          Add(&ends, Last(wait.op), op.sync ? Last(id) : First(id), wait.lag);
        }
      }
    }
    for (const auto& [meeting, ops] : meetings) {
      for (const int64_t from : ops) {
        for (const int64_t to : ops) {
          const int64_t duration = plan_.ops[static_cast<size_t>(to)].duration;
          Add(&begins, First(from), Last(to), duration);
        }
      }
    }
    from_begin_.Fill(nodes_.size(), &begins);
    from_end_.Fill(nodes_.size(), &ends);
  }

  const ReplayPlan& plan_;
  std::vector<bool> idle_call_;
  std::vector<Node> nodes_;
  std::vector<size_t> first_;  // by op, and one behind
  std::vector<uint32_t> missing_;
  Lists from_begin_, from_end_;
};

// What let a node begin.
struct Cause {
  int64_t node = -1;
  bool begin = false;  // its begin, and not its end
};

struct Times {
  std::vector<int64_t> start, end;
  std::vector<Cause> cause;
};

// Runs a graph: copies share the link with those of the other direction, and queue for an engine.
class Runner {
 public:
  Runner(const ReplayPlan& plan, const Graph& graph)
      : plan_(plan), graph_(graph), missing_(graph.missing()) {
    const size_t nodes = graph.size();
    out_.start.assign(nodes, 0);
    out_.end.assign(nodes, 0);
    out_.cause.assign(nodes, {});
    version_.assign(nodes, 0);
  }

  Times Run(const std::stop_token& stop) {
    constexpr size_t kLook = 4096;  // events between two looks whether to stop
    size_t seen = 0;
    for (size_t n = 0; n < graph_.size(); ++n) {
      if (missing_[n] > 0) continue;
      const ReplayOp& op = OpOf(n);
      out_.start[n] = op.behind < 0 ? std::max<int64_t>(0, op.behind_lag) : 0;
      Push(out_.start[n], n, false);
    }
    size_t done = 0;
    while (!events_.empty()) {
      if (++seen % kLook == 0 && stop.stop_requested()) throw Cancelled();
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      if (!event.end) {
        Arrive(event.node);
      } else if (event.version == version_[event.node]) {
        End(event.node);
        ++done;
      }
    }
    if (done < graph_.size()) {
      throw Error("what its ops wait for goes round in a circle", plan_.recording->title,
                  "leave out the last change, or record again");
    }
    return std::move(out_);
  }

 private:
  struct Event {
    int64_t time;
    uint32_t node;
    uint32_t version;
    bool end;
    bool operator>(const Event& other) const {
      return std::tie(time, node, end) > std::tie(other.time, other.node, other.end);
    }
  };
  struct Flow {
    uint32_t node;
    double left;  // ps alone on the link
    double rate;
    int64_t since;
  };
  struct Server {
    int64_t holder = -1;
    std::deque<uint32_t> waiting;
  };

  const ReplayOp& OpOf(size_t n) const { return plan_.ops[static_cast<size_t>(graph_.node(n).op)]; }
  void Push(int64_t time, size_t node, bool end) {
    events_.push({time, static_cast<uint32_t>(node), version_[node], end});
  }
  static size_t LinkOf(const ReplayOp& op) {
    return size_t{op.gpu} * 2 + (op.way == CopyWay::kToHost ? 1 : 0);
  }

  void Arrive(size_t n) {
    const ReplayOp& op = OpOf(n);
    if (op.engine && graph_.node(n).duration > 0) {
      Server& server = servers_[LinkOf(op)];
      if (server.holder >= 0) {
        server.waiting.push_back(static_cast<uint32_t>(n));
        return;
      }
      server.holder = static_cast<int64_t>(n);
    }
    Begin(n);
  }

  void Begin(size_t n) {
    out_.start[n] = now_;
    for (const Edge& edge : graph_.FromBegin(n)) Satisfy(edge, n, true);
    const ReplayOp& op = OpOf(n);
    if (op.way == CopyWay::kNone || graph_.node(n).duration == 0 || op.meeting >= 0) {
      Push(now_ + graph_.node(n).duration, n, true);
      return;
    }
    flows_[LinkOf(op)].push_back(
        {static_cast<uint32_t>(n), static_cast<double>(graph_.node(n).duration), 1, now_});
    Retime(op.gpu);
  }

  // Rates of a GPU's copies, when one begins or ends.
  void Retime(uint8_t gpu) {
    for (size_t way = 0; way < 2; ++way) {
      auto& flows = flows_[size_t{gpu} * 2 + way];
      const bool both = !flows_[size_t{gpu} * 2 + 1 - way].empty();
      const double slow = way == 0 ? plan_.machine.both_h2d : plan_.machine.both_d2h;
      for (Flow& flow : flows) {
        const double rate = both ? slow : 1;
        if (flow.rate == rate && flow.since != now_) continue;
        flow.left -= flow.rate * static_cast<double>(now_ - flow.since);
        flow.since = now_;
        flow.rate = rate;
        ++version_[flow.node];
        Push(now_ + static_cast<int64_t>(std::max(0.0, flow.left) / rate + 0.5), flow.node, true);
      }
    }
  }

  void End(size_t n) {
    out_.end[n] = now_;
    const ReplayOp& op = OpOf(n);
    if (op.way != CopyWay::kNone && graph_.node(n).duration > 0 && op.meeting < 0) {
      auto& flows = flows_[LinkOf(op)];
      std::erase_if(flows, [&](const Flow& flow) { return flow.node == n; });
      Retime(op.gpu);
    }
    for (const Edge& edge : graph_.FromEnd(n)) Satisfy(edge, n, false);
    if (!op.engine || graph_.node(n).duration == 0) return;
    Server& server = servers_[LinkOf(op)];
    server.holder = -1;
    if (server.waiting.empty()) return;
    const uint32_t next = server.waiting.front();
    server.waiting.pop_front();
    server.holder = next;
    out_.cause[next] = {static_cast<int64_t>(n), false};
    Begin(next);
  }

  void Satisfy(const Edge& edge, size_t from, bool begin) {
    const int64_t time = std::max(now_, now_ + edge.lag);
    if (time >= out_.start[edge.to]) {
      out_.start[edge.to] = time;
      out_.cause[edge.to] = {static_cast<int64_t>(from), begin};
    }
    if (--missing_[edge.to] == 0) Push(out_.start[edge.to], edge.to, false);
  }

  const ReplayPlan& plan_;
  const Graph& graph_;
  std::vector<uint32_t> missing_;
  std::vector<uint32_t> version_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::unordered_map<size_t, std::vector<Flow>> flows_;
  std::unordered_map<size_t, Server> servers_;
  int64_t now_ = 0;
  Times out_;
};

// How a thread's or a stream's recorded times lie in the replay: between what is known, in
// proportion.
class Warp {
 public:
  void Add(int64_t recorded, int64_t replayed) {
    if (!anchors_.empty() && recorded <= anchors_.back().first) {
      anchors_.back().second = std::max(anchors_.back().second, replayed);
      return;
    }
    if (!anchors_.empty()) replayed = std::max(replayed, anchors_.back().second);
    anchors_.emplace_back(recorded, replayed);
  }
  bool empty() const { return anchors_.empty(); }
  int64_t At(int64_t time) const {
    const auto after = std::ranges::upper_bound(anchors_, time, {}, &Anchor::first);
    if (after == anchors_.begin()) {
      const int64_t shifted = time + after->second - after->first;
      return std::max<int64_t>(0, shifted);
    }
    const auto before = std::prev(after);
    if (after == anchors_.end()) return before->second + (time - before->first);
    const double share = static_cast<double>(time - before->first) /
                         static_cast<double>(after->first - before->first);
    return before->second +
           static_cast<int64_t>(share * static_cast<double>(after->second - before->second));
  }

 private:
  using Anchor = std::pair<int64_t, int64_t>;
  std::vector<Anchor> anchors_;
};

class Drawer {
 public:
  Drawer(const ReplayPlan& plan, const Graph& graph, const Times& times)
      : plan_(plan), graph_(graph), times_(times), t_(*plan.recording) {}

  Timeline Draw() {
    Timeline out = t_;
    out.origin = Timeline::Origin::kPredicted;
    for (const std::string& name : plan_.new_lanes)
      out.lanes.push_back({name, LaneKind::kStream, false});
    std::vector<Warp> warps(t_.lanes.size());
    std::vector<bool> own(t_.start.size()), gone(t_.start.size());
    for (int64_t k = 0; k < std::ssize(plan_.ops); ++k) {
      const ReplayOp& op = plan_.ops[static_cast<size_t>(k)];
      const auto row = static_cast<size_t>(op.row);
      const int64_t start = times_.start[graph_.First(k)], end = times_.end[graph_.Last(k)];
      Warp& warp = warps[t_.lane[row]];
      warp.Add(op.start, start);
      warp.Add(op.end, end);
      own[row] = true;
      gone[row] = op.removed;
      out.lane[row] = op.lane;
      out.start[row] = Picoseconds(start);
      out.duration[row] = Picoseconds(end - start);
      if (op.moved != 1) {
        out.bytes[row] =
            static_cast<Bytes>(std::min(static_cast<double>(t_.bytes[row]) * op.moved, 4e18));
      }
      if (op.chunks > 1 && !op.removed) AddChunks(k, row, &out);
    }
    const std::vector<size_t> base = BaseLanes(warps);
    for (size_t row = 0; row < own.size(); ++row) {
      if (own[row]) continue;
      const Warp& warp = warps[base[t_.lane[row]]];
      if (warp.empty()) continue;
      const int64_t start = warp.At(t_.start[row].count());
      const int64_t end = warp.At((t_.start[row] + t_.duration[row]).count());
      out.start[row] = Picoseconds(start);
      out.duration[row] = Picoseconds(std::max<int64_t>(0, end - start));
    }
    std::vector<uint32_t> kept;
    for (size_t row = 0; row < out.start.size(); ++row) {
      if (row >= gone.size() || !gone[row]) kept.push_back(static_cast<uint32_t>(row));
    }
    if (kept.size() < out.start.size()) traces::Reorder(out, kept);
    traces::RestoreOrder(&out);
    return out;
  }

 private:
  // The row becomes that of the first chunk; others follow with a row each.
  void AddChunks(int64_t k, size_t row, Timeline* out) const {
    const int32_t chunks = plan_.ops[static_cast<size_t>(k)].chunks;
    const Bytes bytes = out->bytes[row] / chunks;
    const auto set = [&](size_t at, size_t node) {
      out->start[at] = Picoseconds(times_.start[node]);
      out->duration[at] = Picoseconds(times_.end[node] - times_.start[node]);
    };
    for (size_t node = graph_.First(k) + 1; node <= graph_.Last(k); ++node) {
      out->lane.push_back(out->lane[row]);
      out->op.push_back(-1);  // each by itself: the time between chunks is not the op's
      out->step.push_back(out->step[row]);
      out->layer.push_back(out->layer[row]);
      out->role.push_back(out->role[row]);
      out->name.push_back(out->name[row]);
      out->bytes.push_back(bytes);
      if (!out->graph_node.empty()) out->graph_node.push_back(out->graph_node[row]);
      out->start.emplace_back();
      out->duration.emplace_back();
      set(out->start.size() - 1, node);
    }
    out->bytes[row] -= bytes * (chunks - 1);
    set(row, graph_.First(k));
  }

  // By lane, the one whose times move its rows: itself, the stream that it stands beside, or a
  // thread.
  std::vector<size_t> BaseLanes(const std::vector<Warp>& warps) const {
    size_t fallback = 0;
    for (size_t lane = warps.size(); lane-- > 0;) {
      if (!warps[lane].empty()) fallback = lane;
    }
    for (size_t lane = warps.size(); lane-- > 0;) {
      if (!warps[lane].empty() && t_.lanes[lane].kind == LaneKind::kHost) fallback = lane;
    }
    std::vector<size_t> base(warps.size(), fallback);
    for (size_t lane = 0; lane < warps.size(); ++lane) {
      const std::string& name = t_.lanes[lane].name;
      if (!warps[lane].empty()) base[lane] = lane;
      if (!warps[lane].empty() || !name.ends_with(" annotations")) continue;
      for (size_t other = 0; other < warps.size(); ++other) {
        if (!warps[other].empty() && name == t_.lanes[other].name + " annotations") {
          base[lane] = other;
        }
      }
    }
    return base;
  }

  const ReplayPlan& plan_;
  const Graph& graph_;
  const Times& times_;
  const Timeline& t_;
};

// A step's critical path, charged to kinds: from its end back along what let each op begin.
std::map<std::string, Picoseconds> CriticalPath(const ReplayPlan& plan, const Graph& graph,
                                                const Times& times, const Timeline& t) {
  std::map<std::string, Picoseconds> critical;
  const auto spans = traces::StepSpans(t);
  if (spans.empty()) return critical;
  std::vector<uint32_t> order;  // nodes that may end a step, by end
  for (size_t n = 0; n < graph.size(); ++n) {
    const ReplayOp& op = plan.ops[static_cast<size_t>(graph.node(n).op)];
    const bool ends = op.host || (op.lane < t.lanes.size() && t.lanes[op.lane].compute);
    if (ends && !op.removed) order.push_back(static_cast<uint32_t>(n));
  }
  std::ranges::sort(order, {}, [&](uint32_t n) { return times.end[n]; });
  for (const auto& [step, span] : spans) {
    const int64_t from = span.start.count();
    int64_t at = span.end.count();
    const auto charge = [&](int64_t until, const std::string& kind) {
      const int64_t stop = std::max(until, from);
      if (stop < at) critical[kind] += Picoseconds(at - stop), at = stop;
    };
    const auto after =
        std::ranges::upper_bound(order, at, {}, [&](uint32_t n) { return times.end[n]; });
    if (after == order.begin()) continue;
    int64_t node = *std::prev(after);
    charge(times.end[static_cast<size_t>(node)], "host");
    while (node >= 0 && at > from) {
      const auto n = static_cast<size_t>(node);
      const ReplayOp& op = plan.ops[static_cast<size_t>(graph.node(n).op)];
      charge(times.start[n], plan.kinds[op.kind]);
      const Cause cause = times.cause[n];
      if (cause.node < 0) {
        charge(from, op.host ? "host" : "not recorded");
        break;
      }
      const auto before = static_cast<size_t>(cause.node);
      const ReplayOp& of = plan.ops[static_cast<size_t>(graph.node(before).op)];
      const int64_t time = cause.begin ? times.start[before] : times.end[before];
      charge(time, op.host ? "host" : of.host ? "launch" : "gaps");
      node = cause.node;
    }
    charge(from, "host");
  }
  for (auto& [kind, time] : critical) time /= std::ssize(spans);
  return critical;
}

Picoseconds CeilingOf(const ReplayPlan& plan, const Timeline& t, int64_t steps) {
  std::map<uint16_t, int64_t> compute;
  std::map<std::pair<uint8_t, CopyWay>, int64_t> copies;
  for (const ReplayOp& op : plan.ops) {
    if (op.host || op.removed || t.step[static_cast<size_t>(op.row)] < 0) continue;
    if (op.way != CopyWay::kNone) {
      copies[{op.gpu, op.way}] += op.duration;
    } else {
      compute[op.lane] += op.duration;
    }
  }
  int64_t most = 0;
  for (const auto& [lane, time] : compute) most = std::max(most, time);
  for (const auto& [way, time] : copies) most = std::max(most, time);
  return Picoseconds(steps > 0 ? most / steps : 0);
}

Replayed RunPlan(const ReplayPlan& plan, const std::stop_token& stop) {
  if (stop.stop_requested()) throw Cancelled();
  const Graph graph(plan);
  const Times times = Runner(plan, graph).Run(stop);
  Replayed replayed;
  replayed.timeline = Drawer(plan, graph, times).Draw();
  replayed.summary = Summarize(replayed.timeline);
  replayed.critical = CriticalPath(plan, graph, times, replayed.timeline);
  replayed.ceiling = CeilingOf(plan, *plan.recording, std::ssize(replayed.summary.steps));
  return replayed;
}

}  // namespace

struct Replay::Plan {
  ReplayPlan plan;
};

ReplayMachine MakeReplayMachine(const hardware::Profile& profile) {
  ReplayMachine machine;
  machine.name = profile.title;
  const auto share = [](double part, double whole) {
    return part > 0 && whole > 0 ? std::min(1.0, part / whole) : 1.0;
  };
  machine.both_h2d = share(profile.link.both_h2d, profile.link.h2d);
  machine.both_d2h = share(profile.link.both_d2h, profile.link.d2h);
  using hardware::Site;
  machine.graph_gap =
      FromSeconds(profile.handoff(Site::kKernel, Site::kKernel, hardware::How::kGraph));
  if (!profile.zero_copy.rate.empty()) {
    constexpr double kPiece = 64 * 1024, kBlocks = 64;
    machine.zero_copy = share(profile.zero_copy.rate.At(kPiece, kBlocks), profile.link.h2d);
  }
  return machine;
}

std::string MachineOfRecording(std::string_view recorded) {
  std::string is(recorded);
  for (char& c : is) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::string best = "h200";
  size_t most = 0;
  for (const std::string& name : hardware::ProfileNames()) {
    // All words of a name but its memory's size, "a100-80gb", which tells equal ones apart. The
    // most letters: "h20" is in "h200" too.
    size_t letters = 0;
    bool all = true;
    for (size_t at = 0; at <= name.size();) {
      const size_t end = std::min(name.find('-', at), name.size());
      const std::string word = name.substr(at, end - at);
      const bool found = is.find(word) != std::string::npos;
      if (found) letters += word.size();
      all = all && (found || word.ends_with("gb"));
      at = end + 1;
    }
    if (all && letters > most) best = name, most = letters;
  }
  return best;
}

bool TakeAsOneStep(Timeline* recording) {
  if (!traces::StepSpans(*recording).empty()) return false;
  std::ranges::fill(recording->step, 0);
  return true;
}

Replay::Replay(const Timeline& recording, const ReplayMachine& machine)
    : plan_(std::make_unique<Plan>(Plan{MakeReplayPlan(recording, machine)})) {
  if (traces::StepSpans(recording).empty()) {
    throw Error("has no steps", recording.title,
                "name the range that is one with --step-range; `stallcast info` tells them");
  }
}
Replay::~Replay() = default;

const std::vector<std::string>& Replay::notes() const { return plan_->plan.notes; }

Replayed Replay::Run(std::span<const ReplayChange> changes, const std::stop_token& stop) const {
  if (changes.empty()) return RunPlan(plan_->plan, stop);
  ReplayPlan plan = plan_->plan;
  int64_t changed = 0;
  for (const ReplayChange& change : changes) changed = Apply(change, &plan);
  Replayed replayed = RunPlan(plan, stop);
  replayed.changed = changed;
  return replayed;
}

std::vector<ReplayTop> Replay::Top(size_t count, const Replayed& unchanged,
                                   const std::stop_token& stop) const {
  const ReplayPlan& plan = plan_->plan;
  const Timeline& t = *plan.recording;
  const auto steps = std::max<int64_t>(1, std::ssize(unchanged.summary.steps));
  const ComputingTime computing(t);
  struct Group {
    ReplayTop top;
    std::vector<int64_t> ops;
  };
  std::map<std::pair<uint32_t, uint16_t>, Group> groups;
  for (int64_t k = 0; k < std::ssize(plan.ops); ++k) {
    const ReplayOp& op = plan.ops[static_cast<size_t>(k)];
    const auto row = static_cast<size_t>(op.row);
    if (op.host || t.step[row] < 0) continue;
    Group& group = groups[{t.name[row], op.lane}];
    group.ops.push_back(k);
    group.top.name = t.names[t.name[row]];
    group.top.lane = t.lanes[op.lane].name;
    group.top.kind = plan.kinds[op.kind];
    group.top.ops += 1.0 / static_cast<double>(steps);
    group.top.busy += Picoseconds(op.end - op.start);
    group.top.exposed += computing.Outside(Picoseconds(op.start), Picoseconds(op.end));
  }
  std::vector<Group*> order;
  for (auto& [key, group] : groups) {
    group.top.busy /= steps;
    group.top.exposed /= steps;
    order.push_back(&group);
  }
  std::ranges::stable_sort(order, [](const Group* a, const Group* b) {
    return std::tie(a->top.exposed, a->top.busy) > std::tie(b->top.exposed, b->top.busy);
  });
  if (order.size() > count) order.resize(count);
  std::vector<ReplayTop> tops;
  for (Group* group : order) {
    ReplayPlan without = plan;
    for (const int64_t k : group->ops) RemoveOp(&without.ops[static_cast<size_t>(k)]);
    group->top.gain = unchanged.summary.step - RunPlan(without, stop).summary.step;
    tops.push_back(std::move(group->top));
  }
  return tops;
}

}  // namespace stallcast::sim
