#include "traces/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "traces/reorder.h"

namespace stallcast::traces {
namespace {

bool InOrder(const Timeline& timeline) {
  std::vector<Picoseconds> last(timeline.lanes.size(), Picoseconds::min());
  for (size_t row = 0; row < timeline.start.size(); ++row) {
    Picoseconds& before = last[timeline.lane[row]];
    if (timeline.start[row] < before) return false;
    before = timeline.start[row];
  }
  return true;
}

}  // namespace

std::string_view Name(Role role) {
  switch (role) {
    case Role::kOther:
      return "other";
    case Role::kProjection:
      return "projection";
    case Role::kAttention:
      return "attention";
    case Role::kMlp:
      return "mlp";
    case Role::kIndex:
      return "index";
    case Role::kSelection:
      return "selection";
    case Role::kRecall:
      return "recall";
    case Role::kLayout:
      return "layout";
    case Role::kOffload:
      return "offload";
    case Role::kSync:
      return "sync";
    case Role::kHost:
      return "host";
  }
  return "unknown";
}

std::string_view Name(LaneKind kind) {
  switch (kind) {
    case LaneKind::kOther:
      return "other";
    case LaneKind::kHost:
      return "host";
    case LaneKind::kStream:
      return "stream";
    case LaneKind::kCopyEngine:
      return "copy engine";
  }
  return "unknown";
}

std::string_view Name(Timeline::Origin origin) {
  switch (origin) {
    case Timeline::Origin::kImported:
      return "imported";
    case Timeline::Origin::kPredicted:
      return "predicted";
    case Timeline::Origin::kMeasured:
      return "measured";
  }
  return "unknown";
}

std::string FirstFault(const Timeline& timeline) {
  const size_t rows = timeline.start.size();
  if (timeline.lane.size() != rows || timeline.op.size() != rows || timeline.step.size() != rows ||
      timeline.layer.size() != rows || timeline.role.size() != rows ||
      timeline.name.size() != rows || timeline.duration.size() != rows ||
      timeline.bytes.size() != rows ||
      (!timeline.graph_node.empty() && timeline.graph_node.size() != rows)) {
    return "columns differ in length";
  }
  for (size_t row = 0; row < rows; ++row) {
    if (timeline.lane[row] >= timeline.lanes.size())
      return fmt::format("row {}: no such lane", row);
    if (timeline.name[row] >= timeline.names.size())
      return fmt::format("row {}: no such name", row);
    if (static_cast<int>(timeline.role[row]) >= kRoles) {
      return fmt::format("row {}: no such role", row);
    }
    const int64_t start = timeline.start[row].count();
    const int64_t duration = timeline.duration[row].count();
    if (duration < 0) return fmt::format("row {}: negative duration", row);
    if (start > std::numeric_limits<int64_t>::max() - duration) {
      return fmt::format("row {}: ends after the largest time", row);
    }
  }
  return "";
}

void RestoreOrder(Timeline* timeline) {
  if (InOrder(*timeline)) return;
  std::vector<uint32_t> order(timeline->start.size());
  std::iota(order.begin(), order.end(), uint32_t{0});
  std::ranges::stable_sort(order, {}, [&](uint32_t row) { return timeline->start[row]; });
  Reorder(*timeline, order);
}

}  // namespace stallcast::traces
