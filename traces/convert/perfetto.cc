#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>

#include <algorithm>
#include <vector>

#include "traces/convert/export.h"
#include "traces/convert/layout.h"
#include "traces/convert/output_file.h"
#include "traces/convert/perfetto_subset.pb.h"

namespace stallcast::traces {
namespace {

// Values of TracePacket.sequence_flags.
constexpr uint32_t kStateCleared = 1;
constexpr uint32_t kNeedsState = 2;

// Ids of annotation names.
enum : uint64_t { kOp = 1, kStep, kLayer, kBytes };

// Ids are unique in the file: the timeline in the upper half, a counter in the lower. 0 is not
// used.
uint64_t Id(size_t timeline, uint64_t counter) { return (uint64_t{timeline} + 1) << 32 | counter; }

// Unsigned, because starts may lie further apart than a signed difference holds.
uint64_t Nanoseconds(Picoseconds time, Picoseconds origin) {
  const uint64_t since =
      static_cast<uint64_t>(time.count()) - static_cast<uint64_t>(origin.count());
  return since / 1000 + (since % 1000 >= 500 ? 1 : 0);
}

// The trace message packet by packet, so that it need not fit into memory.
class PacketStream {
 public:
  explicit PacketStream(std::ostream* stream) : bytes_(stream), coded_(&bytes_) {}

  void Add(const perfetto::TracePacket& packet) {
    constexpr uint32_t kPacketTag = 1 << 3 | 2;  // field 1, length-delimited
    coded_.WriteTag(kPacketTag);
    coded_.WriteVarint32(static_cast<uint32_t>(packet.ByteSizeLong()));
    packet.SerializeWithCachedSizes(&coded_);
  }

 private:
  google::protobuf::io::OstreamOutputStream bytes_;
  google::protobuf::io::CodedOutputStream coded_;
};

class TimelineExport {
 public:
  TimelineExport(const Timeline& timeline, size_t index, PacketStream* packets)
      : timeline_(timeline),
        index_(index),
        packets_(packets),
        layout_(LayOut(timeline)),
        origin_(FirstStart(timeline)) {}

  void Run() {
    WriteNames();
    WriteTracks();
    WriteSlices();
  }

 private:
  perfetto::TracePacket Packet(uint32_t flags) const {
    perfetto::TracePacket packet;
    packet.set_trusted_packet_sequence_id(static_cast<uint32_t>(index_) + 1);
    packet.set_sequence_flags(flags);
    return packet;
  }

  void WriteNames() {
    perfetto::TracePacket packet = Packet(kStateCleared);
    perfetto::InternedData* data = packet.mutable_interned_data();
    const auto add = [](perfetto::InternedString* entry, uint64_t id, std::string_view name) {
      entry->set_iid(id);
      entry->set_name(std::string(name));
    };
    for (int role = 0; role < kRoles; ++role) {
      add(data->add_event_categories(), static_cast<uint64_t>(role) + 1,
          Name(static_cast<Role>(role)));
    }
    for (size_t i = 0; i < timeline_.names.size(); ++i) {
      add(data->add_event_names(), i + 1, timeline_.names[i]);
    }
    add(data->add_debug_annotation_names(), kOp, "op");
    add(data->add_debug_annotation_names(), kStep, "step");
    add(data->add_debug_annotation_names(), kLayer, "layer");
    add(data->add_debug_annotation_names(), kBytes, "bytes");
    packets_->Add(packet);
  }

  uint64_t GroupId() const { return Id(index_, 1); }
  uint64_t TrackId(uint64_t track) const { return Id(index_, 2 + track); }

  void WriteTracks() {
    perfetto::TracePacket group = Packet(0);
    perfetto::TrackDescriptor* descriptor = group.mutable_track_descriptor();
    descriptor->set_uuid(GroupId());
    descriptor->set_name(GroupName(timeline_));
    descriptor->set_child_ordering(perfetto::TrackDescriptor::EXPLICIT);
    descriptor->set_sibling_merge_behavior(perfetto::TrackDescriptor::NONE);
    std::string notes;
    for (const std::string& note : timeline_.notes) notes += (notes.empty() ? "" : "\n") + note;
    descriptor->set_description(notes);
    packets_->Add(group);
    for (size_t track = 0; track < layout_.tracks.size(); ++track) {
      perfetto::TracePacket packet = Packet(0);
      descriptor = packet.mutable_track_descriptor();
      descriptor->set_uuid(TrackId(track));
      descriptor->set_parent_uuid(GroupId());
      descriptor->set_name(TrackName(timeline_, layout_.tracks[track]));
      const TimelineLane& lane = timeline_.lanes[layout_.tracks[track].lane];
      descriptor->set_description(fmt::format("lane {}: {}{}", layout_.tracks[track].lane,
                                              Name(lane.kind), lane.compute ? ", compute" : ""));
      descriptor->set_sibling_order_rank(static_cast<int32_t>(track));
      descriptor->set_sibling_merge_behavior(perfetto::TrackDescriptor::NONE);
      packets_->Add(packet);
    }
  }

  struct Event {
    uint64_t time;
    size_t row;
    bool begin;
  };

  // In order of time; within a track at one time, in the order in which its slices follow.
  std::vector<Event> Events() const {
    std::vector<Event> events;
    events.reserve(2 * timeline_.start.size());
    for (const size_t row : InOrder(timeline_)) {
      const Picoseconds start = timeline_.start[row];
      events.push_back({Nanoseconds(start, origin_), row, true});
      events.push_back({Nanoseconds(start + timeline_.duration[row], origin_), row, false});
    }
    std::ranges::stable_sort(events, {}, &Event::time);
    return events;
  }

  void WriteSlices() {
    struct Ends {
      std::vector<uint64_t> from, to;  // flow ids
    };
    std::vector<Ends> flows_of(timeline_.start.size());
    uint64_t flow_id = 0;
    for (const RowFlow& flow : FlowsBetweenRows(timeline_)) {
      ++flow_id;
      flows_of[static_cast<size_t>(flow.from)].from.push_back(Id(index_, flow_id));
      flows_of[static_cast<size_t>(flow.to)].to.push_back(Id(index_, flow_id));
    }
    perfetto::TracePacket packet = Packet(kNeedsState);
    for (const Event& event : Events()) {
      packet.set_timestamp(event.time);
      perfetto::TrackEvent* out = packet.mutable_track_event();
      out->Clear();
      out->set_track_uuid(TrackId(layout_.track_of_row[event.row]));
      if (event.begin) {
        Describe(event.row, out);
        for (const uint64_t id : flows_of[event.row].from) out->add_flow_ids(id);
        for (const uint64_t id : flows_of[event.row].to) out->add_terminating_flow_ids(id);
      } else {
        out->set_type(perfetto::TrackEvent::SLICE_END);
      }
      packets_->Add(packet);
    }
  }

  void Describe(size_t row, perfetto::TrackEvent* event) const {
    event->set_type(perfetto::TrackEvent::SLICE_BEGIN);
    event->set_name_iid(uint64_t{timeline_.name[row]} + 1);
    event->add_category_iids(static_cast<uint64_t>(timeline_.role[row]) + 1);
    const auto annotate = [&](uint64_t name, int64_t value) {
      perfetto::DebugAnnotation* annotation = event->add_debug_annotations();
      annotation->set_name_iid(name);
      annotation->set_int_value(value);
    };
    if (timeline_.op[row] >= 0) annotate(kOp, timeline_.op[row]);
    if (timeline_.step[row] >= 0) annotate(kStep, timeline_.step[row]);
    if (timeline_.layer[row] >= 0) annotate(kLayer, timeline_.layer[row]);
    if (timeline_.bytes[row] != 0) annotate(kBytes, timeline_.bytes[row]);
  }

  const Timeline& timeline_;
  size_t index_;
  PacketStream* packets_;
  Layout layout_;
  Picoseconds origin_;
};

}  // namespace

void ExportPerfetto(std::span<const Timeline> timelines, const std::filesystem::path& path) {
  for (const Timeline& timeline : timelines) RequireNoFault(timeline);
  OutputFile file(path);
  {
    PacketStream packets(&file.stream());
    for (size_t i = 0; i < timelines.size(); ++i) {
      TimelineExport(timelines[i], i, &packets).Run();
    }
  }
  file.Close();
}

}  // namespace stallcast::traces
