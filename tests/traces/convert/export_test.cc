// What other tools see of a timeline.
#include "traces/convert/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/traces/convert/written.h"
#include "tests/traces/sample.h"
#include "traces/common/error.h"
#include "traces/convert/perfetto_subset.pb.h"

namespace stallcast::traces {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A slice as a Perfetto reader puts it together from its begin and its end.
struct Slice {
  uint64_t track = 0;
  std::string name, category;
  uint64_t start_ns = 0, end_ns = 0;
  std::map<std::string, int64_t> annotations;
  std::vector<uint64_t> flows_out, flows_in;
};

struct Track {
  std::string name;
  uint64_t parent = 0;
  int32_t rank = 0;
};

struct PerfettoTrace {
  std::vector<Slice> slices;  // in order of start
  std::map<uint64_t, Track> tracks;
};

PerfettoTrace ParsePerfetto(const std::string& bytes) {
  perfetto::Trace trace;
  EXPECT_TRUE(trace.ParseFromString(bytes));
  PerfettoTrace parsed;
  std::map<uint32_t, std::map<uint64_t, std::string>> names, categories, annotations;
  std::map<uint64_t, std::vector<size_t>> open;  // a stack a track
  std::map<uint32_t, uint64_t> last_time;        // a sequence
  for (const perfetto::TracePacket& packet : trace.packet()) {
    const uint32_t sequence = packet.trusted_packet_sequence_id();
    EXPECT_NE(sequence, 0u);
    for (const auto& entry : packet.interned_data().event_names()) {
      names[sequence][entry.iid()] = entry.name();
    }
    for (const auto& entry : packet.interned_data().event_categories()) {
      categories[sequence][entry.iid()] = entry.name();
    }
    for (const auto& entry : packet.interned_data().debug_annotation_names()) {
      annotations[sequence][entry.iid()] = entry.name();
    }
    if (packet.has_track_descriptor()) {
      const auto& track = packet.track_descriptor();
      EXPECT_TRUE(parsed.tracks
                      .emplace(track.uuid(),
                               Track{track.name(), track.parent_uuid(), track.sibling_order_rank()})
                      .second);
    }
    if (!packet.has_track_event()) continue;
    const uint64_t now = packet.timestamp();
    EXPECT_GE(now, std::exchange(last_time[sequence], now));
    const perfetto::TrackEvent& event = packet.track_event();
    EXPECT_TRUE(parsed.tracks.contains(event.track_uuid()));
    std::vector<size_t>& stack = open[event.track_uuid()];
    if (event.type() == perfetto::TrackEvent::SLICE_BEGIN) {
      EXPECT_TRUE(stack.empty());  // slices of one track do not overlap
      Slice slice;
      slice.track = event.track_uuid();
      slice.name = names[sequence].at(event.name_iid());
      slice.category = categories[sequence].at(event.category_iids(0));
      slice.start_ns = now;
      for (const auto& annotation : event.debug_annotations()) {
        slice.annotations[annotations[sequence].at(annotation.name_iid())] = annotation.int_value();
      }
      slice.flows_out.assign(event.flow_ids().begin(), event.flow_ids().end());
      slice.flows_in.assign(event.terminating_flow_ids().begin(),
                            event.terminating_flow_ids().end());
      stack.push_back(parsed.slices.size());
      parsed.slices.push_back(slice);
    } else {
      EXPECT_FALSE(stack.empty());
      parsed.slices[stack.back()].end_ns = now;
      stack.pop_back();
    }
  }
  for (const auto& [track, stack] : open) EXPECT_TRUE(stack.empty());
  return parsed;
}

const Slice& Named(const PerfettoTrace& trace, const std::string& name, int64_t op) {
  for (const Slice& slice : trace.slices) {
    if (slice.name == name && slice.annotations.contains("op") &&
        slice.annotations.at("op") == op) {
      return slice;
    }
  }
  throw std::runtime_error("no slice " + name);
}

PerfettoTrace Perfetto(std::span<const Timeline> timelines) {
  return ParsePerfetto(Written([&](const auto& path) { ExportPerfetto(timelines, path); }));
}

TEST(PerfettoTest, LanesAreTracksUnderTheTimeline) {
  const Timeline timeline = SampleTimeline();
  const PerfettoTrace trace = Perfetto(std::span(&timeline, 1));
  ASSERT_EQ(trace.tracks.size(), 4u);
  const Slice recall = Named(trace, "recall", 2);
  const Track& lane = trace.tracks.at(recall.track);
  EXPECT_EQ(lane.name, "copy");
  EXPECT_EQ(lane.rank, 2);
  EXPECT_EQ(trace.tracks.at(lane.parent).name, "predicted: freekv, tiny, 8K");
  EXPECT_EQ(trace.tracks.at(lane.parent).parent, 0u);
}

TEST(PerfettoTest, SlicesCarryTimesRolesAndAnnotations) {
  const Timeline timeline = SampleTimeline();
  const PerfettoTrace trace = Perfetto(std::span(&timeline, 1));
  ASSERT_EQ(std::ssize(trace.slices), timeline.rows());
  const Slice recall = Named(trace, "recall", 2);
  EXPECT_EQ(recall.category, "recall");
  EXPECT_EQ(recall.start_ns, 9000u);
  EXPECT_EQ(recall.end_ns, 29000u);
  EXPECT_EQ(recall.annotations, (std::map<std::string, int64_t>{
                                    {"op", 2}, {"step", 0}, {"layer", 0}, {"bytes", 1 << 20}}));
  // 4000.5 ns ends one call and begins the next: both are rounded to the same nanosecond.
  EXPECT_EQ(Named(trace, "launch", 1).end_ns, 4001u);
  EXPECT_EQ(Named(trace, "launch", 2).start_ns, 4001u);
}

TEST(PerfettoTest, WaitsAreFlowsBetweenRunsNotLaunches) {
  const Timeline timeline = SampleTimeline();
  const PerfettoTrace trace = Perfetto(std::span(&timeline, 1));
  const Slice recall = Named(trace, "recall", 2);
  const Slice first = Named(trace, "attention", 1);
  const Slice second = Named(trace, "attention", 3);
  ASSERT_EQ(recall.flows_out.size(), 1u);
  EXPECT_EQ(first.flows_in, recall.flows_out);
  ASSERT_EQ(first.flows_out.size(), 1u);
  EXPECT_EQ(second.flows_in, first.flows_out);
  EXPECT_NE(first.flows_in, first.flows_out);
  EXPECT_TRUE(Named(trace, "launch", 2).flows_out.empty());
}

TEST(PerfettoTest, TwoTimelinesAreTwoGroupsFromTimeZero) {
  std::vector<Timeline> timelines = {SampleTimeline(), SampleTimeline()};
  timelines[1].origin = Timeline::Origin::kMeasured;
  timelines[1].names = {"cuLaunch", "flash", "memcpy"};
  for (Picoseconds& start : timelines[1].start) start += Picoseconds(1'700'000'000'000'000'000);
  const PerfettoTrace trace = Perfetto(timelines);
  std::vector<std::string> groups;
  for (const auto& [id, track] : trace.tracks) {
    if (track.parent == 0) groups.push_back(track.name);
  }
  EXPECT_THAT(groups, ElementsAre("predicted: freekv, tiny, 8K", "measured: freekv, tiny, 8K"));
  EXPECT_EQ(Named(trace, "memcpy", 2).start_ns, Named(trace, "recall", 2).start_ns);
  EXPECT_NE(Named(trace, "memcpy", 2).track, Named(trace, "recall", 2).track);
  EXPECT_NE(Named(trace, "memcpy", 2).flows_out, Named(trace, "recall", 2).flows_out);
}

// Slices at random, many of them overlapping, some empty.
Timeline RandomTimeline(unsigned seed) {
  std::mt19937_64 random(seed);
  Timeline timeline;
  timeline.lanes = {{"a", LaneKind::kStream, true}, {"b", LaneKind::kHost, false}};
  timeline.names = {"x"};
  for (int i = 0; i < 500; ++i) {
    timeline.lane.push_back(random() % 2);
    timeline.op.push_back(i);
    timeline.step.push_back(0);
    timeline.layer.push_back(0);
    timeline.role.push_back(Role::kOther);
    timeline.name.push_back(0);
    timeline.start.emplace_back(random() % 50'000);
    timeline.duration.emplace_back(random() % 4 == 0 ? 0 : random() % 3000);
    timeline.bytes.push_back(0);
    timeline.flows.push_back(
        {static_cast<int64_t>(random() % 520), static_cast<int64_t>(random() % 520)});
  }
  return timeline;
}

TEST(PerfettoTest, NothingIsDroppedWhateverOverlaps) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Timeline timeline = RandomTimeline(seed);
    if (seed % 2 == 1) {  // the ends of time
      timeline.start[7] = Picoseconds(std::numeric_limits<int64_t>::min());
      timeline.start[8] = Picoseconds(std::numeric_limits<int64_t>::max());
      timeline.duration[8] = Picoseconds(0);
    }
    const PerfettoTrace trace = Perfetto(std::span(&timeline, 1));  // checks order and nesting
    ASSERT_EQ(std::ssize(trace.slices), timeline.rows());
    std::map<uint64_t, size_t> sources;  // flow id to slice
    size_t ends = 0;
    for (size_t i = 0; i < trace.slices.size(); ++i) {
      for (const uint64_t id : trace.slices[i].flows_out) sources[id] = i;
      for (const uint64_t id : trace.slices[i].flows_in) {
        ASSERT_TRUE(sources.contains(id)) << "a flow that ends before it begins";
        ++ends;
      }
    }
    EXPECT_EQ(ends, sources.size());
    EXPECT_GT(ends, 300u);
  }
}

TEST(PerfettoTest, SlicesThatOnlyTouchShareATrack) {
  Timeline timeline = SampleTimeline();
  timeline.start[1] = timeline.start[0] + timeline.duration[0];
  timeline.start[4] = timeline.start[3];  // empty, where the longer one begins
  EXPECT_EQ(Perfetto(std::span(&timeline, 1)).tracks.size(), 4u);
  timeline.start[1] -= Picoseconds(1);
  const PerfettoTrace trace = Perfetto(std::span(&timeline, 1));
  EXPECT_EQ(trace.tracks.size(), 5u);
  EXPECT_EQ(trace.tracks.at(Named(trace, "launch", 2).track).name, "host (overlap 1)");
}

TEST(ChromeJsonTest, HoldsEverySliceLaneAndFlow) {
  Timeline timeline = SampleTimeline();
  timeline.names[2] = "re\"call\n\xff";
  const nlohmann::json trace =
      nlohmann::json::parse(Written([&](const auto& path) { ExportChromeJson(timeline, path); }));
  EXPECT_EQ(trace["displayTimeUnit"], "ns");
  std::map<std::string, int> phases;
  std::vector<std::string> lanes;
  nlohmann::json recall, start, finish;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    ++phases[event["ph"]];
    if (event["name"] == "thread_name") lanes.push_back(event["args"]["name"]);
    if (event["ph"] == "X" && event["cat"] == "recall") recall = event;
    if (event["ph"] == "s" && event["id"] == 1) start = event;
    if (event["ph"] == "f" && event["id"] == 1) finish = event;
  }
  EXPECT_EQ(phases, (std::map<std::string, int>{{"M", 1 + 2 * 3}, {"X", 6}, {"s", 2}, {"f", 2}}));
  EXPECT_THAT(lanes, ElementsAre("host", "compute", "copy"));
  EXPECT_EQ(recall["ts"], 9.0);
  EXPECT_EQ(recall["dur"], 20.0);
  EXPECT_EQ(recall["name"], "re\"call\n\xef\xbf\xbd");
  EXPECT_EQ(recall["args"],
            (nlohmann::json{{"op", 2}, {"step", 0}, {"layer", 0}, {"bytes", 1 << 20}}));
  EXPECT_EQ(start["tid"], recall["tid"]);
  EXPECT_EQ(start["ts"], recall["ts"]);
  EXPECT_EQ(finish["ts"], 29.5);
  EXPECT_EQ(finish["bp"], "e");
}

TEST(ChromeJsonTest, TimesAreExact) {
  Timeline timeline = SampleTimeline();
  timeline.start[0] = Picoseconds(-1);
  timeline.duration[0] = Picoseconds(1'000'000'000'000'001);
  const std::string json = Written([&](const auto& path) { ExportChromeJson(timeline, path); });
  EXPECT_THAT(json, HasSubstr("\"ts\": 0.000000, \"dur\": 1000000000.000001"));
  EXPECT_THAT(json, HasSubstr("\"ts\": 4.000501, "));
}

TEST(ChromeJsonTest, OverlapsGoToThreadsOfTheirOwn) {
  const Timeline timeline = RandomTimeline(3);
  const nlohmann::json trace =
      nlohmann::json::parse(Written([&](const auto& path) { ExportChromeJson(timeline, path); }));
  std::map<int, std::vector<std::pair<double, double>>> threads;  // start and end
  size_t slices = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++slices;
    const double start = event["ts"];
    threads[event["tid"]].emplace_back(start, start + event["dur"].get<double>());
  }
  EXPECT_EQ(slices, timeline.start.size());
  EXPECT_GT(threads.size(), 2u);
  for (auto& [thread, times] : threads) {
    std::ranges::sort(times);
    for (size_t i = 1; i < times.size(); ++i) {
      EXPECT_LE(times[i - 1].second, times[i].first + 1e-7);
    }
  }
}

TEST(CsvTest, OneLineARow) {
  Timeline timeline = SampleTimeline();
  timeline.names[1] = "a,\"b\"";
  std::istringstream csv(Written([&](const auto& path) { ExportCsv(timeline, path); }));
  std::vector<std::string> lines;
  for (std::string line; std::getline(csv, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[0], "timeline,lane,lane_kind,op,step,layer,role,name,start_ps,duration_ps,bytes");
  EXPECT_EQ(lines[3],
            "\"predicted: freekv, tiny, 8K\",copy,copy engine,2,0,0,recall,recall,9000000,20000000,"
            "1048576");
  EXPECT_THAT(lines[4], HasSubstr(",attention,\"a,\"\"b\"\"\",29500000,"));
  EXPECT_THAT(lines[6], HasSubstr(",host,host,,,,other,launch,"));
}

TEST(ExportTest, EmptyTimelinesAndNone) {
  EXPECT_TRUE(Perfetto({}).slices.empty());
  const Timeline empty;
  EXPECT_EQ(Perfetto(std::span(&empty, 1)).tracks.size(), 1u);
  EXPECT_EQ(nlohmann::json::parse(
                Written([&](const auto& path) { ExportChromeJson(empty, path); }))["traceEvents"]
                .size(),
            1u);
}

TEST(ExportTest, FullDiskAndBadPathAndFaultAreErrors) {
  const Timeline timeline = SampleTimeline();
  Timeline faulty = timeline;
  faulty.name[0] = 9;
  using Export = void (*)(const Timeline&, const std::filesystem::path&);
  for (const Export write :
       {static_cast<Export>(ExportPerfetto), static_cast<Export>(ExportChromeJson),
        static_cast<Export>(ExportCsv)}) {
    EXPECT_THROW(write(timeline, "/dev/full"), Error);
    EXPECT_THROW(write(timeline, "/nowhere/x"), Error);
    EXPECT_THROW(write(faulty, "/dev/null"), Error);
  }
}

}  // namespace
}  // namespace stallcast::traces
