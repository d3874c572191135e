#include "capture/timeline_assembler.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

namespace stallcast::capture {
namespace {

using traces::LaneKind;
using traces::Role;

// Templates make names of any length; the beginning tells kernels apart.
constexpr size_t kMaxName = 512;
// A stamp further from the beginning is no time: 100 days.
constexpr int64_t kMaxDistanceNs = int64_t{100} * 24 * 3600 * 1'000'000'000;
constexpr int64_t kPicosecondsPerNs = 1000;

std::string Readable(std::string_view name) {
  std::string text(name);
  if (text.starts_with("_Z")) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> plain(
        abi::__cxa_demangle(text.c_str(), nullptr, nullptr, &status), &std::free);
    if (status == 0) text = plain.get();
  }
  if (text.size() > kMaxName) text.resize(kMaxName);
  return text;
}

}  // namespace

TimelineAssembler::TimelineAssembler(const GpuRecorderOptions& options, int64_t origin_ns,
                                     Emit emit)
    : options_(options), origin_ns_(origin_ns), emit_(std::move(emit)) {
  part_.origin = traces::Timeline::Origin::kMeasured;
  part_.title = options_.title;
  part_.notes = options_.notes;
}

void TimelineAssembler::Add(const DeviceRecord& record) {
  const bool copy = record.kind == DeviceRecord::Kind::kCopy;
  const bool on_engine =
      copy && record.copy_channel >= 0 && options_.copy_lanes == CopyLanes::kEngines;
  Take({.subject = Subject::kDevice,
        .lane = on_engine ? EngineLane(record.device, record.copy_channel)
                          : StreamLane(record.stream, !copy),
        .name = NameOf(record.name),
        .correlation = record.correlation,
        .start_ns = record.start_ns,
        .end_ns = record.end_ns,
        .bytes = record.bytes,
        .graph_node = record.graph_node});
}

void TimelineAssembler::Add(const CallRecord& record) {
  const uint16_t lane = ThreadLane(record.thread);
  if (CallTable::Call* call = calls_.At(record.correlation)) {
    call->called = true;
    call->lane = lane;
  }
  Take({.subject = Subject::kCall,
        .role = Role::kHost,
        .lane = lane,
        .name = NameOf(record.name),
        .correlation = record.correlation,
        .start_ns = record.start_ns,
        .end_ns = record.end_ns});
}

void TimelineAssembler::Add(const WaitRecord& record) {
  Take({.subject = Subject::kWait,
        .role = Role::kSync,
        .name = NameOf(record.name),
        .correlation = record.correlation,
        .start_ns = record.start_ns,
        .end_ns = record.end_ns});
}

void TimelineAssembler::Add(const ExternalRecord& record) {
  if (CallTable::Call* call = calls_.At(record.correlation)) {
    call->pushed = true;
    call->id = record.id;
  }
}

void TimelineAssembler::Add(const RangeRecord& record) {
  if (record.begin) {
    if (ranges_.size() >= kMaxOpenRanges) {
      ++stats_.dropped;
      return;
    }
    ranges_[record.range] = {NameOf(record.name), record.at_ns, record.thread};
    return;
  }
  const auto open = ranges_.find(record.range);
  if (open == ranges_.end()) return;  // it began before the recording
  Take({.lane = RangeLane(open->second.thread),
        .name = open->second.name,
        .start_ns = open->second.start_ns,
        .end_ns = record.at_ns});
  ranges_.erase(open);
}

void TimelineAssembler::Add(const GraphNodeRecord& record) {
  uint64_t id = record.id;
  if (record.original != 0) {
    const auto original = node_ids_.find(record.original);
    if (original == node_ids_.end()) return;
    id = original->second;
  }
  if (node_ids_.size() < kMaxNodes || node_ids_.contains(record.node)) node_ids_[record.node] = id;
}

void TimelineAssembler::Add(const SpanRecord& record) {
  Take({.role = Role::kHost,
        .lane = ThreadLane(record.thread),
        .name = NameOf(record.name),
        .start_ns = record.start_ns,
        .end_ns = record.end_ns,
        .bytes = record.bytes,
        .id = record.id});
}

void TimelineAssembler::NameStream(StreamKey stream, const std::string& lane, bool compute) {
  if (stream_names_.size() >= kMaxLanes) return;
  stream_names_[stream] = {lane, compute};
  compute_named_ = true;
}

void TimelineAssembler::NameThread(uint32_t thread, const std::string& lane) {
  if (thread_names_.size() < kMaxLanes) thread_names_[thread] = lane;
}

void TimelineAssembler::Take(const Row& row) {
  const auto in_range = [&](int64_t ns) {
    return ns > 0 && std::abs(ns - origin_ns_) < kMaxDistanceNs;
  };
  if (!in_range(row.start_ns) || !in_range(row.end_ns) || row.end_ns < row.start_ns) {
    ++stats_.zero_stamps;
    return;
  }
  latest_ns_ = std::max(latest_ns_, row.end_ns);
  waiting_.push_back(row);
  if (waiting_.size() >= kMaxWaiting) EmitReady(/*all=*/true);
}

void TimelineAssembler::Flush() { EmitReady(/*all=*/false); }

void TimelineAssembler::Finish() {
  EmitReady(/*all=*/true);
  stats_.zero_stamps += std::ssize(ranges_);  // they never ended
  ranges_.clear();
  const auto note = [&](int64_t count, const char* what) {
    if (count > 0) part_.notes.push_back(fmt::format("{} {}", count, what));
  };
  note(stats_.dropped, "records dropped");
  note(stats_.zero_stamps, "records without a usable time");
  note(stats_.unmatched, "rows whose CUDA call is not known");
  EmitPart();
}

bool TimelineAssembler::Ready(const Row& row) const {
  if (row.subject == Subject::kOther || row.subject == Subject::kCall) return true;
  const CallTable::Call* call = calls_.Find(row.correlation);
  if (call != nullptr && (call->called || (call->pushed && row.subject == Subject::kDevice))) {
    return true;
  }
  return calls_.Forgotten(row.correlation) || latest_ns_ - row.end_ns > kPatienceNs;
}

void TimelineAssembler::EmitReady(bool all) {
  size_t kept = 0;
  for (const Row& row : waiting_) {
    if (all || Ready(row)) {
      AppendRow(row);
    } else {
      waiting_[kept++] = row;
    }
  }
  waiting_.resize(kept);
  if (part_.rows() > 0) EmitPart();
}

void TimelineAssembler::AppendRow(const Row& row) {
  ExternalId id = row.id;
  uint16_t lane = row.lane;
  const CallTable::Call* call = calls_.Find(row.correlation);
  if (call != nullptr && call->pushed) id = ExternalId::Unpack(call->id);
  if (row.graph_node != 0) {
    const auto node = node_ids_.find(row.graph_node);
    if (node != node_ids_.end()) id.op = ExternalId::Unpack(node->second).op;
  }
  if (row.subject == Subject::kWait) {
    lane = call != nullptr && call->called ? call->lane : WaitLane();
  }
  if (row.subject == Subject::kDevice && (call == nullptr || !(call->called || call->pushed))) {
    ++stats_.unmatched;
  }

  Role role = row.role;
  int16_t layer = -1;
  if (options_.label && id.op >= 0) {
    const OpLabel label = options_.label(id.step, id.op);
    layer = label.layer;
    if (row.subject == Subject::kDevice || row.subject == Subject::kOther) role = label.role;
  }
  int64_t op = id.op;
  if (op < 0 && options_.op_ids == OpIds::kCorrelation && row.correlation != 0) {
    op = row.correlation;
  }
  part_.lane.push_back(lane);
  part_.op.push_back(op);
  part_.step.push_back(id.step);
  part_.layer.push_back(layer);
  part_.role.push_back(role);
  part_.name.push_back(row.name);
  part_.start.emplace_back((row.start_ns - origin_ns_) * kPicosecondsPerNs);
  part_.duration.emplace_back((row.end_ns - row.start_ns) * kPicosecondsPerNs);
  part_.bytes.push_back(row.bytes);
  part_.graph_node.push_back(static_cast<int64_t>(row.graph_node));
}

void TimelineAssembler::EmitPart() {
  if (std::ranges::all_of(part_.graph_node, [](int64_t node) { return node == 0; })) {
    part_.graph_node.clear();
  }
  emit_(part_);
  stats_.rows += part_.rows();
  part_.lane.clear();
  part_.op.clear();
  part_.step.clear();
  part_.layer.clear();
  part_.role.clear();
  part_.name.clear();
  part_.start.clear();
  part_.duration.clear();
  part_.bytes.clear();
  part_.graph_node.clear();
}

uint32_t TimelineAssembler::NameOf(std::string_view name) {
  const auto known = name_index_.find(name);
  if (known != name_index_.end()) return known->second;
  const bool room = name_bytes_ + name.size() <= kMaxNameBytes;
  if (!room) name = "(more names)";
  const auto [entry, fresh] =
      name_index_.try_emplace(std::string(name), static_cast<uint32_t>(part_.names.size()));
  if (fresh) {
    part_.names.push_back(Readable(name));
    name_bytes_ += name.size() + part_.names.back().size();
  }
  return entry->second;
}

template <typename Key, typename Make>
uint16_t TimelineAssembler::LaneOf(std::map<Key, uint16_t>& lanes, const Key& key,
                                   const Make& make) {
  const auto known = lanes.find(key);
  if (known != lanes.end()) return known->second;
  const size_t next = part_.lanes.size();
  if (next > kMaxLanes) return static_cast<uint16_t>(kMaxLanes);
  part_.lanes.push_back(next < kMaxLanes ? make()
                                         : traces::TimelineLane{"(more lanes)", LaneKind::kOther});
  if (next < kMaxLanes) lanes.emplace(key, static_cast<uint16_t>(next));
  return static_cast<uint16_t>(next);
}

uint16_t TimelineAssembler::StreamLane(StreamKey stream, bool computes) {
  return LaneOf(stream_lanes_, stream, [&] {
    const auto named = stream_names_.find(stream);
    if (named != stream_names_.end()) {
      return traces::TimelineLane{named->second.name, LaneKind::kStream, named->second.compute};
    }
    const bool several =
        !stream_lanes_.empty() && stream_lanes_.begin()->first.context != stream.context;
    const bool compute = computes && !compute_named_;
    compute_named_ |= compute;
    return traces::TimelineLane{
        several ? fmt::format("stream {} of context {}", stream.stream, stream.context)
                : fmt::format("stream {}", stream.stream),
        LaneKind::kStream, compute};
  });
}

uint16_t TimelineAssembler::EngineLane(uint32_t device, int32_t channel) {
  return LaneOf(engine_lanes_, std::pair(device, channel), [&] {
    return traces::TimelineLane{
        device == 0 ? fmt::format("copy engine, channel {}", channel)
                    : fmt::format("copy engine, channel {} of device {}", channel, device),
        LaneKind::kCopyEngine};
  });
}

uint16_t TimelineAssembler::ThreadLane(uint32_t thread) {
  return LaneOf(thread_lanes_, thread, [&] {
    const auto named = thread_names_.find(thread);
    return traces::TimelineLane{
        named != thread_names_.end() ? named->second : fmt::format("thread {}", thread),
        LaneKind::kHost};
  });
}

uint16_t TimelineAssembler::RangeLane(uint32_t thread) {
  return LaneOf(range_lanes_, thread, [&] {
    const auto named = thread_names_.find(thread);
    return traces::TimelineLane{
        fmt::format("NVTX, {}", named != thread_names_.end() ? named->second
                                                             : fmt::format("thread {}", thread)),
        LaneKind::kOther};
  });
}

uint16_t TimelineAssembler::WaitLane() {
  return LaneOf(other_lanes_, 0, [] {
    return traces::TimelineLane{"waits of unknown threads", LaneKind::kOther};
  });
}

}  // namespace stallcast::capture
