#include "traces/format/timeline_codec.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace stallcast::traces::format {
namespace {

constexpr int64_t kRowsPerChunk = 1 << 16;

// Differences wrap, so that any two values have one.
template <typename Integer>
Integer Difference(Integer value, Integer previous) {
  using Unsigned = std::make_unsigned_t<Integer>;
  return static_cast<Integer>(static_cast<Unsigned>(value) - static_cast<Unsigned>(previous));
}

template <typename Integer>
Integer Sum(Integer previous, Integer delta) {
  using Unsigned = std::make_unsigned_t<Integer>;
  return static_cast<Integer>(static_cast<Unsigned>(previous) + static_cast<Unsigned>(delta));
}

void EncodeTables(const Timeline& timeline, uint32_t id, proto::Timeline* message) {
  message->set_id(id);
  message->set_origin(static_cast<uint32_t>(timeline.origin));
  message->set_title(timeline.title);
  for (const std::string& note : timeline.notes) message->add_notes(note);
  for (const TimelineLane& lane : timeline.lanes) {
    proto::Lane* out = message->add_lanes();
    out->set_name(lane.name);
    out->set_kind(static_cast<uint32_t>(lane.kind));
    out->set_compute(lane.compute);
  }
  for (const std::string& name : timeline.names) message->add_names(name);
}

void EncodeRows(const Timeline& timeline, int64_t begin, int64_t end, proto::Timeline* message) {
  int64_t op = 0;
  int32_t step = 0;
  int64_t start = 0;
  for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
    message->add_lane(timeline.lane[row]);
    message->add_op_delta(Difference(timeline.op[row], std::exchange(op, timeline.op[row])));
    message->add_step_delta(
        Difference(timeline.step[row], std::exchange(step, timeline.step[row])));
    message->add_layer(timeline.layer[row]);
    message->add_role(static_cast<uint32_t>(timeline.role[row]));
    message->add_name(timeline.name[row]);
    const int64_t at = timeline.start[row].count();
    message->add_start_delta_ps(Difference(at, std::exchange(start, at)));
    message->add_duration_ps(timeline.duration[row].count());
    message->add_bytes(timeline.bytes[row]);
  }
  if (timeline.graph_node.empty()) return;
  int64_t node = 0;
  for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
    const int64_t next = timeline.graph_node[row];
    message->add_graph_node_delta(Difference(next, std::exchange(node, next)));
  }
}

void EncodeFlows(const Timeline& timeline, int64_t begin, int64_t end, proto::Timeline* message) {
  int64_t from = 0;
  for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
    const TimelineFlow& flow = timeline.flows[i];
    message->add_flow_from_delta(Difference(flow.from_op, std::exchange(from, flow.from_op)));
    message->add_flow_to_minus_from(Difference(flow.to_op, flow.from_op));
  }
}

bool SameLane(const TimelineLane& lane, const proto::Lane& message) {
  return lane.name == message.name() && static_cast<uint32_t>(lane.kind) == message.kind() &&
         lane.compute == message.compute();
}

std::string TableFault(const proto::Timeline& message, const Timeline& timeline) {
  const int known_lanes = std::min<int>(message.lanes_size(), std::ssize(timeline.lanes));
  for (int i = 0; i < known_lanes; ++i) {
    if (!SameLane(timeline.lanes[i], message.lanes(i))) return "its lanes are not the timeline's";
  }
  const int known_names = std::min<int>(message.names_size(), std::ssize(timeline.names));
  for (int i = 0; i < known_names; ++i) {
    if (timeline.names[i] != message.names(i)) return "its names are not the timeline's";
  }
  for (const proto::Lane& lane : message.lanes()) {
    if (lane.kind() > static_cast<uint32_t>(LaneKind::kCopyEngine)) return "unknown kind of lane";
  }
  if (message.origin() > static_cast<uint32_t>(Timeline::Origin::kMeasured)) {
    return "unknown origin";
  }
  return "";
}

// Checks everything that appending relies on, so that appending cannot fail half way.
std::string RowFault(const proto::Timeline& message) {
  const int rows = message.lane_size();
  if (message.op_delta_size() != rows || message.step_delta_size() != rows ||
      message.layer_size() != rows || message.role_size() != rows || message.name_size() != rows ||
      message.start_delta_ps_size() != rows || message.duration_ps_size() != rows ||
      message.bytes_size() != rows) {
    return "columns differ in length";
  }
  if (message.graph_node_delta_size() != 0 && message.graph_node_delta_size() != rows) {
    return "columns differ in length";
  }
  if (message.flow_from_delta_size() != message.flow_to_minus_from_size()) {
    return "flows differ in length";
  }
  int64_t start = 0;
  for (int row = 0; row < rows; ++row) {
    if (message.lane(row) >= static_cast<uint32_t>(message.lanes_size()) ||
        message.lane(row) > std::numeric_limits<uint16_t>::max()) {
      return "no such lane";
    }
    if (message.name(row) >= static_cast<uint32_t>(message.names_size())) return "no such name";
    if (message.role(row) >= static_cast<uint32_t>(kRoles)) return "no such role";
    if (!std::in_range<int16_t>(message.layer(row))) return "no such layer";
    start = Sum(start, message.start_delta_ps(row));
    const int64_t duration = message.duration_ps(row);
    if (duration < 0 || start > std::numeric_limits<int64_t>::max() - duration) {
      return "a duration is out of range";
    }
  }
  return "";
}

// The column appears with the first chunk that has it; rows without have node 0.
void AppendGraphNodes(const proto::Timeline& message, Timeline* timeline) {
  const auto rows = static_cast<size_t>(timeline->rows());
  if (message.graph_node_delta_size() > 0) {
    timeline->graph_node.resize(rows - static_cast<size_t>(message.graph_node_delta_size()));
    int64_t node = 0;
    for (const int64_t delta : message.graph_node_delta()) {
      timeline->graph_node.push_back(node = Sum(node, delta));
    }
  } else if (!timeline->graph_node.empty()) {
    timeline->graph_node.resize(rows);
  }
}

}  // namespace

void EncodeTimeline(const Timeline& timeline, uint32_t id,
                    const std::function<void(const proto::Timeline&, int64_t rows)>& emit) {
  const int64_t rows = timeline.rows();
  const int64_t flows = std::ssize(timeline.flows);
  const int64_t longest = std::max(rows, flows);
  for (int64_t begin = 0; begin == 0 || begin < longest; begin += kRowsPerChunk) {
    const int64_t end = begin + kRowsPerChunk;
    proto::Timeline message;
    EncodeTables(timeline, id, &message);
    EncodeRows(timeline, std::min(begin, rows), std::min(end, rows), &message);
    EncodeFlows(timeline, std::min(begin, flows), std::min(end, flows), &message);
    emit(message, std::min(end, rows) - std::min(begin, rows));
  }
}

std::string AppendTimeline(const proto::Timeline& message, Timeline* timeline) {
  if (std::string fault = TableFault(message, *timeline); !fault.empty()) return fault;
  if (std::string fault = RowFault(message); !fault.empty()) return fault;

  timeline->origin = static_cast<Timeline::Origin>(message.origin());
  timeline->title = message.title();
  timeline->notes.assign(message.notes().begin(), message.notes().end());
  for (int i = static_cast<int>(timeline->lanes.size()); i < message.lanes_size(); ++i) {
    const proto::Lane& lane = message.lanes(i);
    timeline->lanes.push_back({lane.name(), static_cast<LaneKind>(lane.kind()), lane.compute()});
  }
  for (int i = static_cast<int>(timeline->names.size()); i < message.names_size(); ++i) {
    timeline->names.push_back(message.names(i));
  }

  int64_t op = 0;
  int32_t step = 0;
  int64_t start = 0;
  for (int row = 0; row < message.lane_size(); ++row) {
    timeline->lane.push_back(static_cast<uint16_t>(message.lane(row)));
    timeline->op.push_back(op = Sum(op, message.op_delta(row)));
    timeline->step.push_back(step = Sum(step, message.step_delta(row)));
    timeline->layer.push_back(static_cast<int16_t>(message.layer(row)));
    timeline->role.push_back(static_cast<Role>(message.role(row)));
    timeline->name.push_back(message.name(row));
    timeline->start.emplace_back(start = Sum(start, message.start_delta_ps(row)));
    timeline->duration.emplace_back(message.duration_ps(row));
    timeline->bytes.push_back(message.bytes(row));
  }
  AppendGraphNodes(message, timeline);
  int64_t from = 0;
  for (int i = 0; i < message.flow_from_delta_size(); ++i) {
    from = Sum(from, message.flow_from_delta(i));
    timeline->flows.push_back({from, Sum(from, message.flow_to_minus_from(i))});
  }
  return "";
}

}  // namespace stallcast::traces::format
