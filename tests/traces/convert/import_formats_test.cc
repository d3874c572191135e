// What each format of other programs becomes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/comma_locale.h"
#include "tests/traces/convert/import_files.h"
#include "tests/traces/convert/timeline_rows.h"
#include "traces/common/error.h"
#include "traces/convert/perfetto_subset.pb.h"

namespace stallcast::traces {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Steps of a row named so; the only one of that name.
size_t RowNamed(const Timeline& t, const std::string& name) {
  std::vector<size_t> rows;
  for (size_t row = 0; row < t.start.size(); ++row) {
    if (t.names[t.name[row]] == name) rows.push_back(row);
  }
  if (rows.size() != 1) throw std::runtime_error(std::to_string(rows.size()) + " rows " + name);
  return rows[0];
}

const TimelineLane& LaneOf(const Timeline& t, const std::string& name) {
  return t.lanes[t.lane[RowNamed(t, name)]];
}

Timeline TheTimeline(const ImportedTrace& imported) {
  EXPECT_EQ(imported.trace.timelines.size(), 1u);
  EXPECT_EQ(FirstFault(imported.trace.timelines.at(0)), "");
  return imported.trace.timelines.at(0);
}

Timeline Chrome(const std::string& events) { return TheTimeline(ImportText("[" + events + "]")); }

// -- Kineto

TEST(KinetoTest, StreamsAndThreadsAreLanes) {
  const Timeline t = TheTimeline(ImportText(KinetoFile()));
  EXPECT_THAT(t.lanes,
              ElementsAre(TimelineLane{"main", LaneKind::kHost, false},
                          TimelineLane{"thread 43", LaneKind::kHost, false},
                          TimelineLane{"GPU 0 stream 7", LaneKind::kStream, true},
                          TimelineLane{"GPU 0 stream 7 annotations", LaneKind::kOther, false},
                          TimelineLane{"GPU 0 stream 7 waits", LaneKind::kOther, false},
                          TimelineLane{"GPU 0 stream 20", LaneKind::kStream, false}));
  EXPECT_EQ(LaneOf(t, "gemm<float>").name, "GPU 0 stream 7");
  EXPECT_EQ(t.rows(), 15);  // every X event
}

TEST(KinetoTest, TimesAreExactFromTheEarliest) {
  const Timeline t = TheTimeline(ImportText(KinetoFile()));
  const size_t kernel = RowNamed(t, "gemm<float>");
  EXPECT_EQ(t.start[kernel].count(), 40'001'000);
  EXPECT_EQ(t.duration[kernel].count(), 12'002'000);
  EXPECT_EQ(t.start[RowNamed(t, "ProfilerStep#4")].count(), 0);
}

TEST(KinetoTest, ACallAndItsKernelAreOneOp) {
  const Timeline t = TheTimeline(ImportText(KinetoFile()));
  const int64_t kernel = t.op[RowNamed(t, "gemm<float>")];
  EXPECT_GE(kernel, 0);
  EXPECT_EQ(t.op[RowNamed(t, "cudaLaunchKernel")], kernel);
  EXPECT_NE(t.op[RowNamed(t, "cudaMemcpyAsync")], kernel);
  EXPECT_EQ(t.bytes[RowNamed(t, "Memcpy HtoD (Pinned -> Device)")], 16384);
  EXPECT_EQ(t.op[RowNamed(t, "aten::mm")], -1);
}

TEST(KinetoTest, KernelsOfAGraphAreOpsThatWaitForItsLaunch) {
  const Timeline t = TheTimeline(ImportText(KinetoFile()));
  const int64_t launch = t.op[RowNamed(t, "cudaGraphLaunch")];
  const int64_t first = t.op[RowNamed(t, "first")];
  const int64_t second = t.op[RowNamed(t, "second")];
  EXPECT_EQ((std::set<int64_t>{launch, first, second}).size(), 3u);
  EXPECT_THAT(t.flows, ElementsAre(TimelineFlow{launch, first}, TimelineFlow{launch, second}));
}

TEST(KinetoTest, StepsAndLayersFollowTheCallNotTheClock) {
  const Timeline t = TheTimeline(ImportText(KinetoFile()));
  EXPECT_EQ(t.step[RowNamed(t, "aten::mm")], 4);
  EXPECT_EQ(t.layer[RowNamed(t, "aten::mm")], 7);
  EXPECT_EQ(t.step[RowNamed(t, "gemm<float>")], 4);
  EXPECT_EQ(t.layer[RowNamed(t, "gemm<float>")], 7);
  EXPECT_EQ(t.layer[RowNamed(t, "cudaMemcpyAsync")], -1);  // behind the layer
  EXPECT_EQ(t.step[RowNamed(t, "second")], 5);
  EXPECT_EQ(t.step[RowNamed(t, "aten::item")], 5);  // another thread, by time
  EXPECT_EQ(t.step[RowNamed(t, "Stream Sync")], 5);
}

TEST(KinetoTest, RolesAreThoseThatAreKnown) {
  const Timeline t = TheTimeline(ImportText(KinetoFile()));
  EXPECT_EQ(t.role[RowNamed(t, "cudaLaunchKernel")], Role::kHost);
  EXPECT_EQ(t.role[RowNamed(t, "cudaStreamSynchronize")], Role::kSync);
  EXPECT_EQ(t.role[RowNamed(t, "gemm<float>")], Role::kProjection);
  EXPECT_EQ(t.role[RowNamed(t, "Memcpy HtoD (Pinned -> Device)")], Role::kRecall);
  EXPECT_EQ(t.role[RowNamed(t, "first")], Role::kOther);
}

TEST(KinetoTest, SaysWhatTheFileSays) {
  const ImportedTrace imported = ImportText(KinetoFile());
  EXPECT_EQ(imported.trace.info.machine(), "Some GPU");
  EXPECT_EQ(imported.trace.info.software().at("cuda_driver_version"), "13000");
  EXPECT_THAT(imported.report.problems, IsEmpty());
  EXPECT_EQ(imported.report.records, 15);
  EXPECT_THAT(TheTimeline(imported).notes, ElementsAre(HasSubstr("1 event (instants")));
}

TEST(KinetoTest, AnyRangeCanBeTheStep) {
  ImportOptions options;
  options.step_range = "layer";
  const Timeline t = TheTimeline(ImportText(KinetoFile(), options));
  EXPECT_EQ(t.step[RowNamed(t, "gemm<float>")], 7);
  EXPECT_EQ(t.step[RowNamed(t, "first")], -1);
  options.step_range = "aten::mm";  // without a number: counted
  EXPECT_EQ(TheTimeline(ImportText(KinetoFile(), options)).step[RowNamed(t, "gemm<float>")], 0);
}

// -- Chrome events

TEST(ChromeEventsTest, BeginsAndEndsNestOnTheirThread) {
  const Timeline t = Chrome(R"(
    {"ph": "B", "name": "outer", "pid": 1, "tid": 1, "ts": 1},
    {"ph": "B", "name": "elsewhere", "pid": 1, "tid": 2, "ts": 2},
    {"ph": "B", "name": "inner", "pid": 1, "tid": 1, "ts": 3},
    {"ph": "E", "pid": 1, "tid": 1, "ts": 4},
    {"ph": "E", "pid": 1, "tid": 1, "ts": 10},
    {"ph": "E", "pid": 1, "tid": 2, "ts": 5})");
  EXPECT_EQ(t.duration[RowNamed(t, "inner")].count(), 1'000'000);
  EXPECT_EQ(t.duration[RowNamed(t, "outer")].count(), 9'000'000);
  EXPECT_EQ(t.duration[RowNamed(t, "elsewhere")].count(), 3'000'000);
}

TEST(ChromeEventsTest, AsynchronousEventsArePairedById) {
  const Timeline t = Chrome(R"(
    {"ph": "b", "cat": "c", "name": "one", "id": 1, "pid": 1, "tid": 1, "ts": 1},
    {"ph": "b", "cat": "c", "name": "two", "id": "0x2", "pid": 1, "tid": 1, "ts": 2},
    {"ph": "e", "cat": "c", "name": "one", "id": 1, "pid": 1, "tid": 9, "ts": 8},
    {"ph": "e", "cat": "c", "name": "two", "id": "0x2", "pid": 1, "tid": 1, "ts": 4})");
  EXPECT_EQ(t.duration[RowNamed(t, "one")].count(), 7'000'000);
  EXPECT_EQ(t.duration[RowNamed(t, "two")].count(), 2'000'000);
}

TEST(ChromeEventsTest, WhatHasNoEndLastsToTheLastTimeAndIsReported) {
  const ImportedTrace imported = ImportText(R"([
    {"ph": "B", "name": "open", "pid": 1, "tid": 1, "ts": 1},
    {"ph": "B", "name": "closed", "pid": 1, "tid": 2, "ts": 2},
    {"ph": "E", "pid": 1, "tid": 2, "ts": 6},
    {"ph": "E", "pid": 1, "tid": 3, "ts": 7}])");
  const Timeline t = TheTimeline(imported);
  EXPECT_EQ(t.duration[RowNamed(t, "open")].count(), 5'000'000);
  EXPECT_THAT(imported.report.problems,
              ElementsAre(HasSubstr("1 end of slices without a beginning"),
                          HasSubstr("1 slices have no end")));
}

TEST(ChromeEventsTest, FlowsBindToTheSlicesAroundThem) {
  const Timeline t = Chrome(R"(
    {"ph": "X", "name": "outer", "pid": 1, "tid": 1, "ts": 0, "dur": 100},
    {"ph": "X", "name": "from", "pid": 1, "tid": 1, "ts": 10, "dur": 10},
    {"ph": "X", "name": "enclosing", "pid": 1, "tid": 2, "ts": 30, "dur": 10},
    {"ph": "X", "name": "next", "pid": 1, "tid": 2, "ts": 50, "dur": 10},
    {"ph": "s", "cat": "f", "id": 1, "pid": 1, "tid": 1, "ts": 15},
    {"ph": "f", "cat": "f", "id": 1, "pid": 1, "tid": 2, "ts": 35, "bp": "e"},
    {"ph": "f", "cat": "f", "id": 2, "pid": 1, "tid": 2, "ts": 35},
    {"ph": "s", "cat": "f", "id": 2, "pid": 1, "tid": 1, "ts": 25})");
  const auto op = [&](const std::string& name) { return t.op[RowNamed(t, name)]; };
  EXPECT_THAT(t.flows, ElementsAre(TimelineFlow{op("from"), op("enclosing")},
                                   TimelineFlow{op("outer"), op("next")}));
  EXPECT_GE(op("from"), 0);
}

TEST(ChromeEventsTest, TimesOfAnySizeAndFormAreExact) {
  const Timeline t = Chrome(R"(
    {"ph": "X", "name": "a", "ts": 1790857026000000.000001, "dur": 0.0000019},
    {"ph": "X", "name": "b", "ts": "1790857026000000.5", "dur": 1e3},
    {"ph": "X", "name": "c", "ts": 1790857026000001})");
  EXPECT_EQ(t.duration[RowNamed(t, "a")].count(), 1);
  EXPECT_EQ(t.start[RowNamed(t, "b")].count(), 499'999);
  EXPECT_EQ(t.duration[RowNamed(t, "b")].count(), 1'000'000'000);
  EXPECT_EQ(t.start[RowNamed(t, "c")].count(), 999'999);
}

TEST(ChromeEventsTest, TimesAreReadAlikeInEveryLocale) {
  const CommaLocale locale;
  if (!locale.found()) GTEST_SKIP() << "no locale with a decimal comma is installed";
  const Timeline t = Chrome(R"(
    {"ph": "X", "name": "a", "ts": 0, "dur": 2.5},
    {"ph": "X", "name": "b", "ts": 1.5e3, "dur": 2.5e-1})");
  EXPECT_EQ(t.duration[RowNamed(t, "a")].count(), 2'500'000);
  EXPECT_EQ(t.start[RowNamed(t, "b")].count(), 1'500'000'000);
  EXPECT_EQ(t.duration[RowNamed(t, "b")].count(), 250'000);
}

TEST(ChromeEventsTest, NegativeTimesAreTimes) {
  const Timeline t = Chrome(R"({"ph": "X", "name": "a", "ts": -1.5, "dur": 1},
                               {"ph": "X", "name": "b", "ts": -0.25, "dur": 1})");
  EXPECT_EQ(t.start[RowNamed(t, "b")].count(), 1'250'000);
}

TEST(ChromeEventsTest, StrayTimesAreLeftOutAndCounted) {
  const ImportedTrace imported = ImportText(R"([
    {"ph": "X", "name": "none", "ts": 0, "dur": 0},
    {"ph": "X", "name": "a", "ts": 1790857026000000, "dur": 1},
    {"ph": "X", "name": "b", "ts": 1790857026000001, "dur": -1},
    {"ph": "X", "name": "c", "ts": 1790857026000002, "dur": 1},
    {"ph": "X", "name": "far", "ts": 990857026000000, "dur": 1},
    {"ph": "X", "name": "text", "ts": "soon", "dur": 1}])");
  EXPECT_EQ(TheTimeline(imported).rows(), 3);
  EXPECT_EQ(imported.report.zero_stamps, 1);
  EXPECT_THAT(imported.report.problems,
              ElementsAre(HasSubstr("1 event without a usable time"),
                          HasSubstr("1 slices end before they begin"),
                          HasSubstr("more than 20 days"), HasSubstr("no time")));
}

TEST(ChromeEventsTest, OfTwoTimesFarApartOneIsKept) {
  const ImportedTrace imported = ImportText(R"([
    {"ph": "X", "name": "none", "ts": 0, "dur": 0},
    {"ph": "X", "name": "a", "ts": 1790857026000000, "dur": 1}])");
  const Timeline& t = TheTimeline(imported);
  EXPECT_EQ(t.rows(), 1);
  RowNamed(t, "a");
}

TEST(ChromeEventsTest, ADamagedEventCostsNoOther) {
  const ImportedTrace imported = ImportText(R"([
    {"ph": "X", "name": "a", "ts": 1, "dur": 1},
    {"ph": "X", "name": "an "unescaped" quote", "ts": 2, "dur": 1},
    {"ph": "X", "name": "b", "ts": 3, "dur": 1}])");
  const Timeline t = TheTimeline(imported);
  EXPECT_EQ(t.rows(), 2);
  RowNamed(t, "b");
  EXPECT_EQ(imported.report.damaged, 1);
  EXPECT_THAT(imported.report.problems, ElementsAre(HasSubstr("1 stretch")));
}

TEST(ChromeEventsTest, NamesOfAnyBytesAndEscapes) {
  const Timeline t = Chrome(
      "{\"ph\": \"X\", \"ts\": 1, \"name\": \"\\u00e4\\\"\\\\x\"},"
      "{\"ph\": \"X\", \"ts\": 1, \"name\": \"\xff\xfe\"},"
      "{\"ph\": \"X\", \"ts\": 1, \"name\": \"bad \\q escape\"}");
  EXPECT_THAT(t.names, ElementsAre("\xc3\xa4\"\\x", "\xff\xfe", "bad \\q escape"));
}

TEST(ChromeEventsTest, MembersOfAnyDepthAndPlaceAreSkipped) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  const ImportedTrace imported =
      ImportText("{\"a\": " + deep + R"(, "traceEvents": [{"ph": "X", "ts": 1, "args": {"x": )" +
                 deep + R"(}, "name": "n"}], "b": {"c": "]}"}})");
  EXPECT_EQ(TheTimeline(imported).rows(), 1);
  EXPECT_THAT(imported.report.problems, IsEmpty());
}

TEST(ChromeEventsTest, MoreThreadsThanLanesShareTheLast) {
  std::string events;
  for (int i = 0; i < 65'600; ++i) {
    events += (i == 0 ? "" : ",") + std::string("{\"ph\":\"X\",\"ts\":1,\"tid\":") +
              std::to_string(i) + "}";
  }
  const Timeline t = Chrome(events);
  EXPECT_EQ(t.rows(), 65'600);
  EXPECT_EQ(t.lanes.size(), 65'535u);
  EXPECT_THAT(t.lanes, Contains(TimelineLane{"all further lanes", LaneKind::kOther, false}));
}

// -- Perfetto

std::string Packets(const std::vector<perfetto::TracePacket>& packets) {
  perfetto::Trace trace;
  for (const auto& packet : packets) *trace.add_packet() = packet;
  return trace.SerializeAsString();
}

perfetto::TracePacket Packet(uint64_t time, uint32_t sequence = 1) {
  perfetto::TracePacket packet;
  packet.set_timestamp(time);
  packet.set_trusted_packet_sequence_id(sequence);
  return packet;
}

perfetto::TracePacket Begin(uint64_t time, uint64_t track, const std::string& name,
                            uint32_t sequence = 1) {
  perfetto::TracePacket packet = Packet(time, sequence);
  packet.mutable_track_event()->set_type(perfetto::TrackEvent::SLICE_BEGIN);
  packet.mutable_track_event()->set_track_uuid(track);
  packet.mutable_track_event()->set_name(name);
  return packet;
}

perfetto::TracePacket End(uint64_t time, uint64_t track, uint32_t sequence = 1) {
  perfetto::TracePacket packet = Packet(time, sequence);
  packet.mutable_track_event()->set_type(perfetto::TrackEvent::SLICE_END);
  packet.mutable_track_event()->set_track_uuid(track);
  return packet;
}

TEST(PerfettoImportTest, SlicesNestOnTheirTracks) {
  perfetto::TracePacket thread;
  thread.mutable_track_descriptor()->set_uuid(5);
  thread.mutable_track_descriptor()->mutable_thread()->set_tid(77);
  thread.mutable_track_descriptor()->mutable_thread()->set_thread_name("worker");
  const Timeline t = TheTimeline(ImportText(
      Packets({thread, Begin(10, 5, "outer"), Begin(12, 5, "inner"), End(14, 5), End(20, 5)})));
  EXPECT_EQ(t.duration[RowNamed(t, "outer")].count(), 10'000);
  EXPECT_EQ(t.duration[RowNamed(t, "inner")].count(), 2'000);
  EXPECT_EQ(LaneOf(t, "outer"), (TimelineLane{"worker 77", LaneKind::kHost, false}));
}

TEST(PerfettoImportTest, IncrementalClocksOfASequence) {
  perfetto::TracePacket snapshot = Packet(0);
  snapshot.clear_timestamp();
  auto* own = snapshot.mutable_clock_snapshot()->add_clocks();
  own->set_clock_id(64);
  own->set_timestamp(0);
  own->set_is_incremental(true);
  own->set_unit_multiplier_ns(1000);
  auto* boot = snapshot.mutable_clock_snapshot()->add_clocks();
  boot->set_clock_id(6);
  boot->set_timestamp(1'000'000);
  snapshot.mutable_trace_packet_defaults()->set_timestamp_clock_id(64);
  snapshot.mutable_trace_packet_defaults()->mutable_track_event_defaults()->set_track_uuid(9);
  perfetto::TracePacket begin = Begin(5, 9, "slow");
  begin.mutable_track_event()->clear_track_uuid();
  perfetto::TracePacket end = End(7, 9);  // 7 later
  end.mutable_track_event()->clear_track_uuid();
  // Another sequence, in the trace's clock.
  const Timeline t = TheTimeline(ImportText(
      Packets({snapshot, begin, end, Begin(1'000'000, 8, "first", 2), End(1'000'001, 8, 2)})));
  EXPECT_EQ(t.start[RowNamed(t, "slow")].count(), 5'000'000);
  EXPECT_EQ(t.duration[RowNamed(t, "slow")].count(), 7'000'000);
}

TEST(PerfettoImportTest, NamesAreInternedASequence) {
  std::vector<perfetto::TracePacket> packets;
  for (const uint32_t sequence : {1u, 2u}) {
    perfetto::TracePacket packet = Begin(sequence, sequence, "", sequence);
    auto* name = packet.mutable_interned_data()->add_event_names();
    name->set_iid(1);
    name->set_name("name " + std::to_string(sequence));
    packet.mutable_track_event()->clear_name();
    packet.mutable_track_event()->set_name_iid(1);
    packets.push_back(packet);
    packets.push_back(End(10, sequence, sequence));
  }
  const ImportedTrace imported = ImportText(Packets(packets));
  EXPECT_THAT(TheTimeline(imported).names, ElementsAre("name 1", "name 2"));
}

TEST(PerfettoImportTest, AfterALossPacketsWaitForNewState) {
  perfetto::TracePacket lost = Begin(2, 1, "lost");
  lost.set_previous_packet_dropped(1);
  lost.set_sequence_flags(2);
  perfetto::TracePacket again = Begin(3, 1, "again");
  again.set_sequence_flags(3);
  const ImportedTrace imported =
      ImportText(Packets({Begin(1, 1, "before"), End(2, 1), lost, again, End(4, 1)}));
  EXPECT_THAT(TheTimeline(imported).names, ElementsAre("before", "again"));
  EXPECT_EQ(imported.report.dropped, 1);
  EXPECT_EQ(imported.report.problems.size(), 2u);
}

// A row that is left out moves those behind it.
TEST(PerfettoImportTest, FlowsKeepTheirSlicesWhereOthersAreLeftOut) {
  constexpr uint64_t kDay = uint64_t{24} * 3600 * 1'000'000'000;
  const auto with_flow = [](perfetto::TracePacket packet, uint64_t id) {
    packet.mutable_track_event()->add_flow_ids(id);
    return packet;
  };
  const Timeline t = TheTimeline(ImportText(Packets(
      {Begin(0, 1, "no stamp"), End(1, 1), with_flow(Begin(100 * kDay, 2, "from"), 5),
       End(100 * kDay + 1, 2), with_flow(Begin(200 * kDay, 3, "far"), 6), End(200 * kDay + 1, 3),
       with_flow(Begin(100 * kDay + 9, 4, "to far"), 6), End(100 * kDay + 10, 4),
       with_flow(Begin(100 * kDay + 5, 4, "to"), 5), End(100 * kDay + 6, 4)})));
  EXPECT_EQ(t.rows(), 3);
  EXPECT_THAT(t.flows,
              ElementsAre(TimelineFlow{t.op[RowNamed(t, "from")], t.op[RowNamed(t, "to")]}));
}

TEST(PerfettoImportTest, RenderStagesAreStreamsJoinedToTheirCalls) {
  perfetto::TracePacket call = Begin(1, 1, "cudaLaunchKernel");
  call.mutable_track_event()->mutable_gpu_correlation()->add_render_stage_submission_event_ids(70);
  perfetto::TracePacket copy = Packet(5, 2);
  auto* specification = copy.mutable_interned_data()->add_gpu_specifications();
  specification->set_iid(1);
  specification->set_name("stream 13");
  auto* event = copy.mutable_gpu_render_stage_event();
  event->set_event_id(69);
  event->set_duration(4);
  event->set_hw_queue_iid(1);
  event->set_name("copy");
  perfetto::TracePacket kernel = copy;
  kernel.set_timestamp(10);
  kernel.mutable_gpu_render_stage_event()->set_event_id(70);
  kernel.mutable_gpu_render_stage_event()->set_name("kernel");
  kernel.mutable_gpu_render_stage_event()->add_event_wait_ids(69);
  perfetto::TracePacket wait = Begin(3, 1, "cudaStreamSynchronize");
  wait.mutable_track_event()->mutable_gpu_correlation()->add_render_stage_wait_event_ids(70);
  const Timeline t =
      TheTimeline(ImportText(Packets({call, End(2, 1), wait, copy, kernel, End(20, 1)})));
  EXPECT_EQ(LaneOf(t, "kernel"), (TimelineLane{"GPU 0 stream 13", LaneKind::kStream, true}));
  EXPECT_EQ(t.duration[RowNamed(t, "kernel")].count(), 4'000);
  const auto op = [&](const std::string& name) { return t.op[RowNamed(t, name)]; };
  EXPECT_EQ(op("cudaLaunchKernel"), op("kernel"));
  EXPECT_THAT(t.flows, testing::UnorderedElementsAre(
                           TimelineFlow{op("copy"), op("kernel")},
                           TimelineFlow{op("kernel"), op("cudaStreamSynchronize")}));
}

TEST(PerfettoImportTest, CompressedPacketsAreRead) {
  const std::string inner = Packets({Begin(1, 1, "inside"), End(2, 1)});
  uLongf size = compressBound(inner.size());
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(inner.data()), inner.size());
  packed.resize(size);
  perfetto::TracePacket packet;
  packet.set_compressed_packets(packed);
  EXPECT_THAT(TheTimeline(ImportText(Packets({packet}))).names, ElementsAre("inside"));
  packet.set_compressed_packets(packed.substr(0, size / 2));
  EXPECT_EQ(ImportText(Packets({Begin(1, 1, "x"), packet})).report.damaged, 1);
}

// -- Nsight Systems

TEST(NsightTest, TablesBecomeLanesAndOps) {
  const ImportedTrace imported = ImportText(NsightSample());
  const Timeline t = TheTimeline(imported);
  EXPECT_THAT(t.lanes, ElementsAre(TimelineLane{"python3 42", LaneKind::kHost, false},
                                   TimelineLane{"GPU 0 stream 7", LaneKind::kStream, true},
                                   TimelineLane{"GPU 0 stream 7 waits", LaneKind::kOther, false},
                                   TimelineLane{"GPU 0 stream 20", LaneKind::kStream, false}));
  EXPECT_EQ(t.rows(), 12);
  EXPECT_EQ(imported.report.records, 12);
  const auto op = [&](const std::string& name) { return t.op[RowNamed(t, name)]; };
  EXPECT_EQ(op("cudaLaunchKernel"), op("gemm<float>"));
  EXPECT_EQ(op("cudaGraphLaunch"), op("CUDA graph 3"));
  EXPECT_EQ(op("cudaStreamSynchronize"), op("Stream synchronize"));
  EXPECT_EQ(t.bytes[RowNamed(t, "Memcpy HtoD")], 16384);
  EXPECT_EQ(t.start[RowNamed(t, "gemm<float>")].count(), 39'000);  // from the first range
  EXPECT_EQ(t.duration[RowNamed(t, "gemm<float>")].count(), 12'000);
}

TEST(NsightTest, RangesGiveStepsAndLayers) {
  const Timeline t = TheTimeline(ImportText(NsightSample()));
  EXPECT_EQ(t.step[RowNamed(t, "gemm<float>")], 4);
  EXPECT_EQ(t.layer[RowNamed(t, "gemm<float>")], 7);
  EXPECT_EQ(t.step[RowNamed(t, "CUDA graph 3")], 5);
}

TEST(NsightTest, WhatIsMissingInItIsSaid) {
  const ImportedTrace imported = ImportText(NsightSample());
  EXPECT_EQ(imported.report.zero_stamps, 1);
  EXPECT_THAT(imported.report.problems, ElementsAre(HasSubstr("1 record without a time")));
  const std::vector<std::string> notes = TheTimeline(imported).notes;
  EXPECT_THAT(notes, Contains(HasSubstr("Not all events were collected.")));
  EXPECT_THAT(notes, Contains(HasSubstr("1 mark left out")));
  EXPECT_EQ(imported.trace.info.machine(), "2 x Some GPU");
}

TEST(NsightTest, MissingTablesAndColumnsAreTolerated) {
  const Timeline kernels = TheTimeline(ImportText(
      NsightFile("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, end INT, shortName TEXT);"
                 "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 7, 'k'), (8, NULL, 'open');")));
  EXPECT_EQ(kernels.rows(), 2);
  EXPECT_EQ(LaneOf(kernels, "k").name, "GPU 0 stream 0");
  const Timeline ranges = TheTimeline(ImportText(
      NsightFile("CREATE TABLE NVTX_EVENTS(start INT, end INT, text TEXT);"
                 "INSERT INTO NVTX_EVENTS VALUES (1, 9, 'iter_3'), (2, NULL, 'a mark');")));
  EXPECT_EQ(ranges.rows(), 1);
  EXPECT_EQ(ranges.step[0], 3);
}

TEST(NsightTest, CorrelationsOfProcessesStayApart) {
  const Timeline t = TheTimeline(ImportText(NsightFile(R"(
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, end INT, streamId INT, correlationId INT,
      globalPid INT, demangledName TEXT);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 11, 7, 1, 1 << 24, 'k1'),
      (20, 21, 7, 1, 2 << 24, 'k2');
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INT, end INT, globalTid INT, correlationId INT,
      nameId TEXT);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 1 << 24 | 5, 1, 'c1'),
      (1, 2, 2 << 24 | 6, 1, 'c2');)")));
  const auto op = [&](const std::string& name) { return t.op[RowNamed(t, name)]; };
  EXPECT_EQ(op("k1"), op("c1"));
  EXPECT_EQ(op("k2"), op("c2"));
  EXPECT_NE(op("k1"), op("k2"));
  EXPECT_EQ(LaneOf(t, "k2").name, "GPU 0 stream 7 of process 2");
}

TEST(NsightTest, AViewInPlaceOfATableIsNotRead) {
  EXPECT_THROW(ImportText(NsightFile("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE "
                                     "n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) "
                                     "SELECT start, start + 1 AS end FROM n;")),
               Error);
}

}  // namespace
}  // namespace stallcast::traces
