#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "traces/common/error.h"
#include "traces/convert/categories.h"
#include "traces/convert/importers.h"
#include "traces/convert/names.h"
#include "traces/convert/perfetto_subset.pb.h"
#include "traces/convert/slice_set.h"

namespace stallcast::traces::convert {
namespace {

constexpr uint64_t kLongestPacket = uint64_t{256} << 20;
constexpr size_t kMostDecompressed = size_t{16} << 20;  // of one packet; Perfetto writes 512 KiB

// Field 1 of the trace, packet by packet.
class Packets {
 public:
  explicit Packets(Input* input) : input_(*input) {}

  // False at the end or where the bytes are no packet, see fault().
  bool Next(std::string_view* packet) {
    const std::optional<uint64_t> tag = Varint();
    if (!tag) return ended_ ? false : Fault("no packet");
    constexpr uint64_t kPacketTag = 1 << 3 | 2;
    const std::optional<uint64_t> size = *tag == kPacketTag ? Varint() : std::nullopt;
    if (!size || *size > kLongestPacket) return Fault(ended_ ? "cut off" : "no packet");
    if (!Ensure(*size)) return Fault("cut off");
    *packet = std::string_view(buffer_).substr(at_, *size);
    at_ += *size;
    return true;
  }
  const std::string& fault() const { return fault_; }

 private:
  bool Fault(std::string_view what) {
    fault_ = fmt::format("at byte {}: {}", before_ + at_, what);
    return false;
  }

  // Whether `count` more bytes are in the buffer, which grows with what is there and not with what
  // is asked for.
  bool Ensure(uint64_t count) {
    constexpr size_t kPiece = size_t{1} << 20;
    while (buffer_.size() - at_ < count && !ended_) {
      buffer_.erase(0, at_);
      before_ += at_;
      at_ = 0;
      const size_t old = buffer_.size();
      buffer_.resize(old + kPiece);
      const size_t got = input_.Read(std::span(buffer_).subspan(old));
      buffer_.resize(old + got);
      ended_ = got < kPiece;
    }
    return buffer_.size() - at_ >= count;
  }

  // Nothing where the input ends or the varint does not.
  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (!Ensure(1)) return std::nullopt;
      const auto byte = static_cast<unsigned char>(buffer_[at_++]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    ended_ = false;
    return std::nullopt;
  }

  Input& input_;
  std::string buffer_;
  size_t at_ = 0;
  uint64_t before_ = 0;
  bool ended_ = false;
  std::string fault_;
};

class InMemory : public Input {
 public:
  explicit InMemory(std::string_view bytes) : bytes_(bytes) {}
  size_t Read(std::span<char> buffer) override {
    const size_t count = std::min(buffer.size(), bytes_.size());
    std::copy_n(bytes_.data(), count, buffer.data());
    bytes_.remove_prefix(count);
    return count;
  }
  double share() const override { return 0; }
  std::string fault() const override { return ""; }

 private:
  std::string_view bytes_;
};

std::optional<std::string> Inflate(std::string_view packed) {
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) throw std::bad_alloc();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string bytes;
  int status = Z_OK;
  while (status == Z_OK && bytes.size() < kMostDecompressed) {
    const size_t old = bytes.size();
    bytes.resize(old + std::max<size_t>(64 << 10, old));
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data() + old);
    stream.avail_out = static_cast<uInt>(bytes.size() - old);
    status = inflate(&stream, Z_NO_FLUSH);
    bytes.resize(bytes.size() - stream.avail_out);
    if (stream.avail_in == 0 && stream.avail_out > 0) break;
  }
  inflateEnd(&stream);
  return status == Z_STREAM_END ? std::optional(std::move(bytes)) : std::nullopt;
}

std::optional<std::string> Unzstd(std::string_view packed) {
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  std::string bytes(std::min<unsigned long long>(size, kMostDecompressed), '\0');
  const size_t got = ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size());
  if (ZSTD_isError(got)) return std::nullopt;
  bytes.resize(got);
  return bytes;
}

// Perfetto's ids of clocks.
constexpr uint32_t kBootTime = 6;
constexpr uint32_t kFirstOfSequence = 64;
constexpr uint32_t kFirstGlobal = 128;

int64_t Wrapped(uint64_t value) { return static_cast<int64_t>(value); }

// How readings of a clock become nanoseconds of the trace's clock. Arithmetic wraps: a reading that
// is wrong gives a time that is wrong, and SliceSet leaves out times far from the others.
struct Clock {
  bool incremental = false;
  uint64_t last = 0;
  uint64_t unit_ns = 1;
  uint64_t offset_ns = 0;

  int64_t Time(uint64_t reading) {
    last = incremental ? last + reading : reading;
    return Wrapped(last * unit_ns + offset_ns);
  }
};

using Strings = std::unordered_map<uint64_t, std::string>;

// What packets of one writer share.
struct Sequence {
  bool begun = false, valid = true;
  Strings names, categories, annotations, specifications;
  std::unordered_map<uint32_t, Clock> clocks;
  uint32_t default_clock = kBootTime;
  uint64_t default_track = 0;

  void Clear() {
    valid = true;
    names.clear();
    categories.clear();
    annotations.clear();
    specifications.clear();
    default_clock = kBootTime;
    default_track = 0;
  }
};

struct TrackFacts {
  perfetto::TrackDescriptor descriptor;
  int lane = -1;  // in the set, once it has one
  bool host = false;
  bool calls = false;   // of the GPU's API are on it
  int async_lane = -1;  // of its asynchronous slices
};

// "lane 2: stream, compute" of a lane in a file of ours.
struct LaneMark {
  int64_t lane = 0;
  LaneKind kind = LaneKind::kOther;
  bool compute = false;
};

std::optional<LaneMark> ParseLaneMark(std::string_view text) {
  constexpr std::string_view kLane = "lane ", kCompute = ", compute";
  if (!text.starts_with(kLane)) return std::nullopt;
  text.remove_prefix(kLane.size());
  LaneMark mark;
  mark.compute = text.ends_with(kCompute);
  if (mark.compute) text.remove_suffix(kCompute.size());
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), mark.lane);
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  if (error != std::errc() || mark.lane < 0 || !text.starts_with(": ")) return std::nullopt;
  const std::optional<LaneKind> kind = LaneKindNamed(text.substr(2));
  if (!kind) return std::nullopt;
  mark.kind = *kind;
  return mark;
}

class PerfettoImport {
 public:
  explicit PerfettoImport(const ImportOptions& options) : options_(options) {}

  void Run(Input* input, const std::string& name, Trace* trace, ReadReport* report) {
    const google::protobuf::LogSilencer silence;  // faults are reported by us
    Packets packets(input);
    std::string_view packet;
    while (packets.Next(&packet)) {
      TakePacket(packet, /*compressed=*/false);
      constexpr int64_t kPackets = 65'536;
      if (options_.progress && packets_ % kPackets == 0) options_.progress(input->share());
    }
    if (packets_ == 0 && damaged_ <= 1) {
      throw Error("is of no format that stallcast knows", name, kFormatsRead);
    }
    if (!any_of_perfetto_) {
      throw Error("is a protobuf of another kind: no part of it is a packet of Perfetto", name,
                  kFormatsRead);
    }
    Report(packets.fault().empty() ? input->fault() : packets.fault(), report);
    set_.PairEnds();
    JoinGpu();
    JoinFlows();
    NameLanes();
    trace->timelines = set_.Finish(options_, report);
  }

 private:
  void Report(const std::string& fault, ReadReport* report) {
    if (!fault.empty()) {
      report->truncated = true;
      report->problems.push_back(
          fmt::format("{}; read up to there, {}", fault, Counted(packets_, "packet")));
    }
    report->damaged += damaged_;
    report->dropped += losses_;
    const auto say = [&](int64_t count, const std::string& what, std::string_view rest) {
      if (count > 0) report->problems.push_back(Counted(count, what) + std::string(rest));
    };
    say(damaged_, "packet", " damaged and left out");
    say(losses_, "time", " the writer dropped packets");
    say(stateless_, "packet", " left out that refer to what was dropped");
    say(unusable_, "event", " without a time left out");
    if (others_ > 0) {
      set_.head(0).notes.push_back(
          fmt::format("{} (instants, counters, system tracing, ...) left out: a timeline holds "
                      "slices",
                      Counted(others_, "packet")));
    }
  }

  void TakePacket(std::string_view bytes, bool compressed) {
    packet_.Clear();
    if (!packet_.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      ++damaged_;
      return;
    }
    ++packets_;
    any_of_perfetto_ |= packet_.has_timestamp() || packet_.has_trusted_packet_sequence_id() ||
                        packet_.has_track_descriptor() || packet_.has_compressed_packets() ||
                        packet_.has_zstd_compressed_packets();
    if (packet_.has_compressed_packets() || packet_.has_zstd_compressed_packets()) {
      if (compressed) {
        ++damaged_;
      } else {
        TakeCompressed();
      }
      return;
    }
    Sequence& sequence = sequences_[packet_.trusted_packet_sequence_id()];
    constexpr uint32_t kCleared = 1, kNeedsState = 2;
    if (packet_.previous_packet_dropped() != 0 && sequence.begun) {
      ++losses_;
      sequence.valid = false;
    }
    sequence.begun = true;
    if ((packet_.sequence_flags() & kCleared) != 0 || packet_.incremental_state_cleared()) {
      sequence.Clear();
    }
    Learn(&sequence);
    if (packet_.has_track_descriptor()) return TakeDescriptor();
    const bool stateless = (packet_.sequence_flags() & kNeedsState) != 0 && !sequence.valid;
    if (packet_.has_track_event() || packet_.has_gpu_render_stage_event()) {
      if (stateless) {
        ++stateless_;
      } else if (packet_.has_track_event()) {
        TakeEvent(packet_.track_event(), &sequence);
      } else {
        TakeGpuEvent(packet_.gpu_render_stage_event(), &sequence);
      }
    } else if (!packet_.has_clock_snapshot() && !packet_.has_interned_data() &&
               !packet_.has_trace_packet_defaults()) {
      ++others_;
    }
  }

  void TakeCompressed() {
    const std::optional<std::string> bytes = packet_.has_compressed_packets()
                                                 ? Inflate(packet_.compressed_packets())
                                                 : Unzstd(packet_.zstd_compressed_packets());
    if (!bytes) {
      ++damaged_;
      return;
    }
    InMemory input(*bytes);
    Packets packets(&input);
    std::string_view packet;
    while (packets.Next(&packet)) TakePacket(packet, /*compressed=*/true);
    if (!packets.fault().empty()) ++damaged_;
  }

  // What a packet says for later ones.
  void Learn(Sequence* sequence) {
    const auto learn = [](const auto& entries, Strings* strings) {
      for (const perfetto::InternedString& entry : entries) (*strings)[entry.iid()] = entry.name();
    };
    const perfetto::InternedData& data = packet_.interned_data();
    learn(data.event_names(), &sequence->names);
    learn(data.event_categories(), &sequence->categories);
    learn(data.debug_annotation_names(), &sequence->annotations);
    learn(data.gpu_specifications(), &sequence->specifications);
    const perfetto::TracePacketDefaults& defaults = packet_.trace_packet_defaults();
    if (defaults.has_timestamp_clock_id()) sequence->default_clock = defaults.timestamp_clock_id();
    if (defaults.track_event_defaults().has_track_uuid()) {
      sequence->default_track = defaults.track_event_defaults().track_uuid();
    }
    if (packet_.has_clock_snapshot()) LearnClocks(packet_.clock_snapshot(), sequence);
  }

  std::unordered_map<uint32_t, Clock>& ClocksOf(uint32_t id, Sequence* sequence) {
    return id >= kFirstOfSequence && id < kFirstGlobal ? sequence->clocks : clocks_;
  }

  void LearnClocks(const perfetto::ClockSnapshot& snapshot, Sequence* sequence) {
    // The reading of the trace's clock: its own, or that of a clock whose offset is known.
    std::optional<uint64_t> now;
    for (const auto& reading : snapshot.clocks()) {
      if (reading.clock_id() == kBootTime) now = reading.timestamp();
    }
    for (const auto& reading : snapshot.clocks()) {
      const auto known = clocks_.find(reading.clock_id());
      if (now || known == clocks_.end() || reading.clock_id() >= kFirstOfSequence) continue;
      now = reading.timestamp() + known->second.offset_ns;
    }
    for (const auto& reading : snapshot.clocks()) {
      const uint32_t id = reading.clock_id();
      if (id == kBootTime) continue;
      auto& clocks = ClocksOf(id, sequence);
      // Clocks of the system keep the offset that they have first: they are corrected meanwhile.
      if (id < kFirstOfSequence && clocks.contains(id)) continue;
      Clock clock;
      clock.incremental = reading.is_incremental();
      clock.unit_ns = reading.has_unit_multiplier_ns() ? reading.unit_multiplier_ns() : 1;
      clock.last = reading.timestamp();
      clock.offset_ns = now ? *now - clock.last * clock.unit_ns : 0;
      clocks[id] = clock;
    }
  }

  std::optional<Instant> Now(Sequence* sequence) {
    const uint32_t id =
        packet_.has_timestamp_clock_id() ? packet_.timestamp_clock_id() : sequence->default_clock;
    if (!packet_.has_timestamp()) {
      ++unusable_;
      return std::nullopt;
    }
    auto& clocks = ClocksOf(id, sequence);
    const auto clock = clocks.find(id);
    if (clock == clocks.end()) return Instant{Wrapped(packet_.timestamp()), 0};
    return Instant{clock->second.Time(packet_.timestamp()), 0};
  }

  void TakeDescriptor() {
    TrackFacts& track = tracks_[packet_.track_descriptor().uuid()];
    track.descriptor.MergeFrom(packet_.track_descriptor());
    if (ParseLaneMark(track.descriptor.description())) LaneOf(&track);
  }

  uint16_t LaneOf(TrackFacts* track, bool async = false) {
    int& lane = async ? track->async_lane : track->lane;
    if (lane < 0) {
      const int known = set_.lanes();
      lane = set_.AddLane({});
      if (set_.lanes() > known) tracks_in_order_.push_back({track, async});
    }
    return static_cast<uint16_t>(lane);
  }

  static std::string_view Find(const Strings& strings, uint64_t id) {
    const auto known = strings.find(id);
    return known == strings.end() ? std::string_view("(name lost)")
                                  : std::string_view(known->second);
  }

  void TakeEvent(const perfetto::TrackEvent& event, Sequence* sequence) {
    const std::optional<Instant> now = Now(sequence);
    if (!now) return;
    const uint64_t uuid = event.has_track_uuid() ? event.track_uuid() : sequence->default_track;
    const int32_t phase = event.has_type() ? 0 : event.legacy_event().phase();
    const bool async = phase == 'b' || phase == 'e' || phase == 'S' || phase == 'F';
    const bool begins = event.type() == perfetto::TrackEvent::SLICE_BEGIN || phase == 'B' ||
                        phase == 'b' || phase == 'S';
    const bool ends = event.type() == perfetto::TrackEvent::SLICE_END || phase == 'E' ||
                      phase == 'e' || phase == 'F';
    if (begins || phase == 'X') {
      TrackFacts& track = tracks_[uuid];
      Slice slice = Describe(event, *sequence);
      slice.start = *now;
      slice.lane = LaneOf(&track, async);
      track.calls |= slice.kind == SliceKind::kCall;
      slice.duration_ps = SliceSet::kOpen;
      const size_t row =
          begins ? set_.Begin(PairKey(event, *sequence, async, uuid), slice) : set_.Add(slice);
      NoteFlows(event, row, false);
      if (!begins) {
        const auto us = static_cast<uint64_t>(event.legacy_event().duration_us());
        set_.End(row, {Wrapped(static_cast<uint64_t>(now->ns) + us * 1000), 0});
      }
    } else if (ends) {
      const bool named =
          event.has_name() || event.has_name_iid() || event.legacy_event().has_name_iid();
      const std::optional<uint32_t> name =
          named ? std::optional(NameOf(event, *sequence)) : std::nullopt;
      NoteFlows(event, set_.EndOf(PairKey(event, *sequence, async, uuid), *now, name), true);
    } else {
      ++others_;
    }
  }

  // Slices of a track nest; asynchronous ones of Chrome's kind belong together by their id.
  static uint64_t PairKey(const perfetto::TrackEvent& event, const Sequence& sequence, bool async,
                          uint64_t track) {
    std::string key = fmt::format("{}", track);
    if (async) {
      const perfetto::TrackEvent::LegacyEvent& legacy = event.legacy_event();
      if (legacy.has_global_id()) {
        key = fmt::format("global {}", legacy.global_id());
      } else if (legacy.has_local_id()) {
        key = fmt::format("local {} {}", legacy.local_id(), track);
      } else {
        key = fmt::format("id {}", legacy.unscoped_id());
      }
      key += '\n' + legacy.id_scope();
      for (const std::string& category : event.categories()) key += '\n' + category;
      for (const uint64_t iid : event.category_iids()) {
        key += '\n' + std::string(Find(sequence.categories, iid));
      }
    }
    return XXH3_64bits(key.data(), key.size());
  }

  uint32_t NameOf(const perfetto::TrackEvent& event, const Sequence& sequence) {
    if (event.has_name()) return set_.Intern(event.name());
    const uint64_t iid = event.has_name_iid() ? event.name_iid() : event.legacy_event().name_iid();
    return set_.Intern(iid == 0 ? "" : Find(sequence.names, iid));
  }

  Slice Describe(const perfetto::TrackEvent& event, const Sequence& sequence) {
    Slice slice;
    slice.name = NameOf(event, sequence);
    const auto categorise = [&](std::string_view category) {
      const Category* known = FindCategory(category);
      if (known == nullptr) return;
      slice.role = known->role;
      slice.kind = known->kind;
    };
    for (const uint64_t iid : event.category_iids()) categorise(Find(sequence.categories, iid));
    for (const std::string& category : event.categories()) categorise(category);
    for (const perfetto::DebugAnnotation& annotation : event.debug_annotations()) {
      const std::string_view name = annotation.has_name()
                                        ? std::string_view(annotation.name())
                                        : Find(sequence.annotations, annotation.name_iid());
      const int64_t value = annotation.has_int_value()    ? annotation.int_value()
                            : annotation.has_uint_value() ? Wrapped(annotation.uint_value())
                                                          : -1;
      Annotate(name, value, &slice);
    }
    if (event.gpu_correlation().render_stage_submission_event_ids_size() > 0) {
      slice.kind = SliceKind::kCall;
      slice.role = Role::kHost;
    }
    if (slice.kind == SliceKind::kCall &&
        set_.NameAt(slice.name).find("Synchronize") != std::string_view::npos) {
      slice.role = Role::kSync;
    }
    return slice;
  }

  static void Annotate(std::string_view name, int64_t value, Slice* slice) {
    if (value < 0) return;
    if (name == "op" && value < kMaxOp) slice->op = value;
    if (name == "step" && std::in_range<int32_t>(value)) slice->step = static_cast<int32_t>(value);
    if (name == "layer" && std::in_range<int16_t>(value)) {
      slice->layer = static_cast<int16_t>(value);
    }
    if (name == "bytes") slice->bytes = value;
    if (name == "correlation") slice->correlation = value;
  }

  // `row`: of an event that ends a slice, the number of that end.
  void NoteFlows(const perfetto::TrackEvent& event, size_t row, bool of_end) {
    for (const uint64_t id : event.flow_ids()) flows_.push_back({id, row, false, of_end});
    for (const uint64_t id : event.terminating_flow_ids()) {
      flows_.push_back({id, row, true, of_end});
    }
    const perfetto::TrackEvent::GpuCorrelation& gpu = event.gpu_correlation();
    for (const uint64_t id : gpu.render_stage_submission_event_ids()) {
      gpu_links_.push_back({id, row, false, of_end});
    }
    for (const uint64_t id : gpu.render_stage_wait_event_ids()) {
      gpu_links_.push_back({id, row, true, of_end});
    }
  }

  void TakeGpuEvent(const perfetto::GpuRenderStageEvent& event, Sequence* sequence) {
    for (const auto& queue : event.specifications().hw_queue()) queues_.push_back(queue.name());
    for (const auto& stage : event.specifications().stage()) stages_.push_back(stage.name());
    if (event.has_specifications() && !event.has_event_id()) return;
    const std::optional<Instant> now = Now(sequence);
    if (!now) return;
    const auto of_list = [](const std::vector<std::string>& list, int32_t index) {
      return index >= 0 && index < std::ssize(list) ? list[static_cast<size_t>(index)]
                                                    : std::to_string(index);
    };
    const std::string queue =
        event.has_hw_queue_iid() ? std::string(Find(sequence->specifications, event.hw_queue_iid()))
                                 : of_list(queues_, event.hw_queue_id());
    Slice slice;
    slice.kind = SliceKind::kRun;
    slice.start = *now;
    slice.lane = GpuLane(event.gpu_id(), queue);
    if (event.has_name()) {
      slice.name = set_.Intern(event.name());
    } else if (event.has_name_iid()) {
      slice.name = set_.Intern(Find(sequence->names, event.name_iid()));
    } else {
      slice.name =
          set_.Intern(event.has_stage_iid() ? Find(sequence->specifications, event.stage_iid())
                                            : std::string_view(of_list(stages_, event.stage_id())));
    }
    constexpr uint64_t kMostNs = std::numeric_limits<int64_t>::max() / 1000;
    slice.duration_ps = static_cast<int64_t>(std::min(event.duration(), kMostNs)) * 1000;
    const size_t row = set_.Add(slice);
    if (event.has_event_id()) gpu_row_.emplace(event.event_id(), row);
    for (const uint64_t id : event.event_wait_ids()) gpu_links_.push_back({id, row, true, false});
  }

  uint16_t GpuLane(int64_t gpu, const std::string& queue) {
    const auto [known, fresh] = gpu_lanes_.try_emplace(fmt::format("GPU {} {}", gpu, queue), 0);
    if (fresh) {
      Lane lane;
      lane.name = known->first;
      lane.kind = LaneKind::kStream;
      lane.order = StreamOrder(gpu, 0);
      lane.gpu = gpu;
      known->second = set_.AddLane(lane);
    }
    return known->second;
  }

  struct Link {
    uint64_t id;
    size_t row;
    bool ends;    // the flow ends here; or, of GPU work, the row waited for it
    bool of_end;  // `row` is the number of an event that ends one
  };

  // Once ends are paired; those without a begin have no row.
  void FindRows(std::vector<Link>* links) const {
    for (Link& link : *links) {
      if (link.of_end) link.row = set_.RowOfEnd(link.row);
      link.of_end = false;
    }
    std::erase_if(*links, [](const Link& link) { return link.row == SliceSet::kNoRow; });
  }

  // Calls that submitted GPU work, and what waited for it.
  void JoinGpu() {
    FindRows(&gpu_links_);
    for (const Link& link : gpu_links_) {
      const auto gpu = gpu_row_.find(link.id);
      if (gpu == gpu_row_.end()) continue;
      if (link.ends) {
        set_.AddFlow(gpu->second, link.row);
      } else {
        set_.Join(link.row, gpu->second);
      }
    }
  }

  // Slices with one flow id follow each other in time, until the flow is terminated.
  void JoinFlows() {
    FindRows(&flows_);
    std::ranges::stable_sort(flows_, [&](const Link& a, const Link& b) {
      return a.id != b.id ? a.id < b.id : set_.start(a.row) < set_.start(b.row);
    });
    for (size_t i = 1; i < flows_.size(); ++i) {
      const Link& from = flows_[i - 1];
      const Link& to = flows_[i];
      if (from.id == to.id && !from.ends && from.row != to.row) set_.AddFlow(from.row, to.row);
    }
  }

  // In a file of ours a track without a parent is a timeline; all others together are one more.
  void NameLanes() {
    std::unordered_map<uint64_t, int> timeline_of;
    bool foreign = !gpu_lanes_.empty();
    for (const auto& [track, async] : tracks_in_order_) foreign |= !Mark(*track);
    for (size_t i = 0; i < tracks_in_order_.size(); ++i) {
      const auto& [facts, async] = tracks_in_order_[i];
      const TrackFacts& track = *facts;
      Lane& lane = set_.lane(static_cast<uint16_t>(async ? track.async_lane : track.lane));
      const std::optional<LaneMark> mark = Mark(track);
      if (!mark || async) {
        lane.name = NameOf(track) + (async ? " (asynchronous)" : "");
        const bool host = track.descriptor.has_thread() || track.calls;
        lane.kind = host && !async ? LaneKind::kHost : LaneKind::kOther;
        lane.order = static_cast<int64_t>(i);
        const auto above = tracks_.find(track.descriptor.parent_uuid());
        const std::string parent =
            above == tracks_.end() ? std::string() : above->second.descriptor.name();
        if (!host && !async && NamesStream(parent, lane.name)) {
          lane.kind = LaneKind::kStream;
          lane.runs = true;
          lane.gpu = static_cast<int64_t>(track.descriptor.parent_uuid() >> 1);
        }
        continue;
      }
      const uint64_t parent = track.descriptor.parent_uuid();
      const auto [timeline, fresh] = timeline_of.try_emplace(parent, 0);
      if (fresh) {
        const bool first = timeline_of.size() == 1 && !foreign;
        timeline->second = first ? 0 : set_.AddTimeline();
        SetHead(tracks_[parent].descriptor, &set_.head(timeline->second));
      }
      lane = {.name = track.descriptor.name(),
              .kind = mark->kind,
              .compute = mark->compute,
              .timeline = timeline->second,
              .order = mark->lane,
              .part_of = mark->lane,
              .ours = true};
    }
  }

  std::optional<LaneMark> Mark(const TrackFacts& track) const {
    const auto parent = tracks_.find(track.descriptor.parent_uuid());
    if (parent == tracks_.end() || !OriginOf(parent->second.descriptor)) return std::nullopt;
    return ParseLaneMark(track.descriptor.description());
  }

  static std::optional<Timeline::Origin> OriginOf(const perfetto::TrackDescriptor& group) {
    const std::string_view name = group.name();
    return OriginNamed(name.substr(0, name.find(": ")));
  }

  static void SetHead(const perfetto::TrackDescriptor& group, Timeline* head) {
    const std::string_view name = group.name();
    head->origin = *OriginOf(group);
    if (const size_t colon = name.find(": "); colon != std::string_view::npos) {
      head->title = name.substr(colon + 2);
    }
    std::string_view notes = group.description();
    while (!notes.empty()) {
      const size_t line = std::min(notes.find('\n'), notes.size());
      head->notes.emplace_back(notes.substr(0, line));
      notes.remove_prefix(std::min(line + 1, notes.size()));
    }
  }

  std::string NameOf(const TrackFacts& track) const {
    const perfetto::TrackDescriptor& d = track.descriptor;
    if (d.has_thread()) {
      return d.thread().thread_name().empty()
                 ? fmt::format("thread {}", d.thread().tid())
                 : fmt::format("{} {}", d.thread().thread_name(), d.thread().tid());
    }
    if (d.has_process()) return fmt::format("{} {}", d.process().process_name(), d.process().pid());
    std::string name = d.has_name() ? d.name() : d.static_name();
    if (name.empty()) name = d.uuid() == 0 ? "trace" : fmt::format("track {}", d.uuid());
    const auto parent = tracks_.find(d.parent_uuid());
    if (d.parent_uuid() == 0 || d.parent_uuid() == d.uuid() || parent == tracks_.end()) return name;
    const std::string& above = parent->second.descriptor.name();
    return above.empty() ? name : above + " " + name;
  }

  const ImportOptions& options_;
  perfetto::TracePacket packet_;  // reused, with its memory
  SliceSet set_;
  std::unordered_map<uint32_t, Sequence> sequences_;
  std::unordered_map<uint32_t, Clock> clocks_;  // that all sequences share
  std::unordered_map<uint64_t, TrackFacts> tracks_;
  std::vector<std::pair<TrackFacts*, bool>> tracks_in_order_;  // with a lane; its asynchronous one
  std::unordered_map<std::string, uint16_t> gpu_lanes_;
  std::unordered_map<uint64_t, size_t> gpu_row_;  // by event id
  std::vector<std::string> queues_, stages_;
  std::vector<Link> flows_, gpu_links_;
  int64_t packets_ = 0, damaged_ = 0, losses_ = 0, stateless_ = 0, unusable_ = 0;
  int64_t others_ = 0;
  bool any_of_perfetto_ = false;
};

}  // namespace

void ImportPerfetto(Input* input, const std::string& name, const ImportOptions& options,
                    Trace* trace, ReadReport* report) {
  PerfettoImport(options).Run(input, name, trace, report);
}

}  // namespace stallcast::traces::convert
