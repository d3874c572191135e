#include "models/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>

#include "traces/common/error.h"

namespace stallcast::plan {
namespace {

void Require(bool condition, std::string_view what) {
  if (!condition) throw std::logic_error(fmt::format("plan builder: {}", what));
}

}  // namespace

LaneId PlanBuilder::AddLane(Lane lane, LaneId issuer) {
  Require(plan_.lanes.size() < std::numeric_limits<int16_t>::max(), "too many lanes");
  const LaneId id{static_cast<int16_t>(plan_.lanes.size())};
  plan_.lanes.push_back(std::move(lane));
  last_.push_back(OpId::kNone);
  issuer_.push_back(issuer == LaneId::kNone ? id : issuer);
  for (auto& seen : seen_) seen.push_back(OpId::kNone);
  seen_.emplace_back(plan_.lanes.size(), OpId::kNone);
  return id;
}

LaneId PlanBuilder::AddHost(std::string name, Host host) {
  return AddLane({.name = std::move(name), .kind = traces::LaneKind::kHost, .host = host},
                 LaneId::kNone);
}

LaneId PlanBuilder::AddStream(std::string name, LaneId issuer, bool compute) {
  Require(IsHost(issuer), "a stream's issuer must be a host lane");
  Require(!compute || std::none_of(plan_.lanes.begin(), plan_.lanes.end(),
                                   [](const Lane& lane) { return lane.compute; }),
          "a plan has one compute stream");
  return AddLane({.name = std::move(name), .kind = traces::LaneKind::kStream, .compute = compute},
                 issuer);
}

bool PlanBuilder::IsLane(LaneId lane) const {
  return Index(lane) >= 0 && static_cast<size_t>(Index(lane)) < plan_.lanes.size();
}

bool PlanBuilder::IsHost(LaneId lane) const {
  return IsLane(lane) &&
         plan_.lanes[static_cast<size_t>(Index(lane))].kind == traces::LaneKind::kHost;
}

OpId PlanBuilder::Last(LaneId lane) const {
  Require(IsLane(lane), "no such lane");
  return last_[static_cast<size_t>(Index(lane))];
}

size_t PlanBuilder::WorkHash::operator()(const Work& work) const {
  const WorkCounts counts = Count(work);
  size_t hash = work.index();
  for (const Bytes bytes : {counts.device_read, counts.device_written, counts.link_h2d,
                            counts.link_d2h, counts.host_memory}) {
    hash = 31 * hash + std::hash<Bytes>()(bytes);
  }
  return hash;
}

uint32_t PlanBuilder::WorkId(const Work& work) {
  std::vector<Work>& works = plan_.ops.works_;
  const auto [id, fresh] = work_ids_.try_emplace(work, static_cast<uint32_t>(works.size()));
  if (fresh) works.push_back(work);
  return id->second;
}

OpId PlanBuilder::Run(LaneId lane, const Work& work, std::span<const OpId> waits, LaneId issuer) {
  Require(IsLane(lane), "no such lane");
  Require(plan_.ops.size() < std::numeric_limits<int32_t>::max(), "too many ops");
  const bool host = IsHost(lane);
  Require(host == IsHostWork(work),
          host ? "a host lane runs host work only" : "host work runs on host lanes only");
  const auto at = static_cast<size_t>(Index(lane));
  if (issuer == LaneId::kNone) issuer = issuer_[at];
  Require(IsHost(issuer), "an issuer must be a host lane");
  Require(!host || issuer == lane, "host work issues itself");
  if (issuer == graphs_of_) BreakGraphs(issuer, work);

  const bool in_graph = graph_ != OpId::kNone && issuer == plan_[graph_].lane;
  Require(!(in_graph && host), "the host lane that captures a graph runs nothing until EndGraph()");
  if (const auto* copy = std::get_if<Copy>(&work);
      in_graph && copy != nullptr && copy->path == CopyPath::kBatched) {
    throw UsageError("a batched copy cannot be a node of a CUDA graph", "plan",
                     "turn CUDA graphs off or choose another copy path");
  }

  const bool from_pytorch =
      plan_.lanes[static_cast<size_t>(Index(issuer))].host == Host::kPyTorch && !in_extension_;
  const OpId id{static_cast<int32_t>(plan_.ops.size())};
  const size_t waits_before = plan_.waits.size();
  for (const OpId wait : waits) {
    if (wait == OpId::kNone) continue;
    Require(Index(wait) >= 0 && wait < id, "a wait must name an earlier op");
    const LaneId other = plan_[wait].lane;
    if (other == lane) continue;
    if (!host && other == issuer) {
      Require(!in_graph || wait < graph_, "a graph node cannot wait for its host");
      continue;
    }
    OpId& seen = seen_[at][static_cast<size_t>(Index(other))];
    if (wait <= seen) continue;
    seen = wait;
    plan_.waits.push_back(wait);
  }
  Require(plan_.waits.size() - waits_before < std::numeric_limits<uint16_t>::max() &&
              plan_.waits.size() <= std::numeric_limits<uint32_t>::max(),
          "too many waits");
  plan_.ops.rows_.push_back(OpTable::Row{.work = WorkId(work),
                                         .waits_end = static_cast<uint32_t>(plan_.waits.size()),
                                         .step = step_,
                                         .layer = static_cast<int16_t>(layer_),
                                         .lane = lane,
                                         .issuer = issuer,
                                         .role = role_,
                                         .purpose = std::exchange(purpose_, Purpose::kOnly),
                                         .graph_node = in_graph,
                                         .from_pytorch = from_pytorch});
  last_[at] = id;
  if (in_graph) ++graph_nodes_;
  return id;
}

OpId PlanBuilder::SyncStream(LaneId host, LaneId stream) {
  Require(IsLane(stream) && !IsHost(stream), "SyncStream() needs a stream");
  return Run(host, HostSync{}, {Last(stream)});
}

OpId PlanBuilder::SyncDevice(LaneId host) {
  std::vector<OpId> waits;
  for (size_t i = 0; i < plan_.lanes.size(); ++i) {
    if (plan_.lanes[i].kind == traces::LaneKind::kStream) waits.push_back(last_[i]);
  }
  return Run(host, HostSync{.device = true}, waits);
}

void PlanBuilder::BeginStep(int step) {
  Require(graph_ == OpId::kNone, "a graph does not span steps");
  Require(step == static_cast<int>(plan_.step_ends.size()),
          "steps are numbered from 0 and each is ended before the next begins");
  step_ = step;
}

void PlanBuilder::EndStep(OpId op) {
  Require(step_ == static_cast<int>(plan_.step_ends.size()), "EndStep() without BeginStep()");
  Require(Index(op) >= 0 && Index(op) < size() && plan_[op].step == step_,
          "a step ends with one of its own ops");
  plan_.step_ends.push_back(op);
}

void PlanBuilder::BeginGraph(LaneId host) {
  Require(graph_ == OpId::kNone, "graphs do not nest");
  const Role role = std::exchange(role_, Role::kHost);
  const int layer = std::exchange(layer_, -1);
  graph_ = Run(host, GraphLaunch{}, {});
  graph_nodes_ = 0;
  layer_ = layer;
  role_ = role;
}

void PlanBuilder::EndGraph() {
  Require(graph_ != OpId::kNone, "EndGraph() without BeginGraph()");
  plan_.ops.rows_[static_cast<size_t>(Index(graph_))].work = WorkId(GraphLaunch{graph_nodes_});
  graph_ = OpId::kNone;
}

void PlanBuilder::BeginGraphs(LaneId host) {
  Require(graph_ == OpId::kNone && graphs_of_ == LaneId::kNone, "graphs do not nest");
  graphs_of_ = host;
}

void PlanBuilder::EndGraphs() {
  if (graph_ != OpId::kNone) EndGraph();
  graphs_of_ = LaneId::kNone;
}

void PlanBuilder::BreakGraphs(LaneId issuer, const Work& work) {
  const auto* copy = std::get_if<Copy>(&work);
  const bool late =
      copy != nullptr &&
      (copy->path == CopyPath::kBatched ||
       (copy->path == CopyPath::kPerPiece && copy->direction == Direction::kHostToDevice) ||
       copy->host_memory == Copy::HostMemory::kPageable);
  // Its library waits for the GPU.
  const bool waits = std::holds_alternative<FactorizeKeys>(work);
  if (IsHostWork(work) || late || waits) {
    if (graph_ != OpId::kNone) EndGraph();
  } else if (graph_ == OpId::kNone) {
    const LaneId graphs_of = std::exchange(graphs_of_, LaneId::kNone);
    const Purpose purpose = std::exchange(purpose_, Purpose::kOnly);
    BeginGraph(issuer);
    purpose_ = purpose;
    graphs_of_ = graphs_of;
  }
}

void PlanBuilder::ReserveSteps(int steps) {
  if (plan_.step_ends.empty()) return;
  // Steps differ; room that no op ever takes stays untouched.
  const auto room = [&](size_t size) {
    return size / plan_.step_ends.size() * static_cast<size_t>(steps) * 3 / 2;
  };
  plan_.ops.rows_.reserve(room(plan_.ops.size()));
  plan_.waits.reserve(room(plan_.waits.size()));
  plan_.step_ends.reserve(static_cast<size_t>(steps));
}

Plan PlanBuilder::Finish() {
  Require(graph_ == OpId::kNone && graphs_of_ == LaneId::kNone, "a graph is open");
  return std::exchange(*this, PlanBuilder()).plan_;
}

}  // namespace stallcast::plan
