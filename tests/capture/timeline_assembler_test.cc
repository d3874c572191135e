// From records in any order to rows: ops, lanes, graphs, losses, bounds.
#include "capture/timeline_assembler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tests/capture/gpu_records.h"

namespace stallcast::capture {
namespace {

using testing::Assembly;
using testing::Call;
using ::testing::ElementsAre;
using testing::External;
using ::testing::HasSubstr;
using testing::InWords;
using ::testing::IsEmpty;
using testing::Kernel;
using testing::kOriginNs;
using ::testing::UnorderedElementsAreArray;
using traces::LaneKind;
using traces::Role;

TEST(TimelineAssembler, ACallAndItsKernelShareTheOpThatWasPushed) {
  Assembly assembly;
  assembly.assembler.Add(External(9, 4, 17));
  assembly.assembler.Add(Call(9, 100, 300));
  assembly.assembler.Add(Call(10, 400, 500, 1, "cudaMalloc"));
  assembly.assembler.Add(Kernel(9, 1000, 5000));
  const traces::Timeline timeline = assembly.Finish();
  EXPECT_THAT(InWords(timeline),
              ElementsAre("thread 1: cudaLaunchKernel, op 17, step 4, 100+200 ns",
                          "thread 1: cudaMalloc, op -1, step -1, 400+100 ns",
                          "stream 7: kernel, op 17, step 4, 1000+4000 ns"));
  EXPECT_EQ(timeline.origin, traces::Timeline::Origin::kMeasured);
  EXPECT_THAT(timeline.lanes,
              ElementsAre(traces::TimelineLane{"thread 1", LaneKind::kHost, false},
                          traces::TimelineLane{"stream 7", LaneKind::kStream, true}));
  EXPECT_THAT(timeline.role, ElementsAre(Role::kHost, Role::kHost, Role::kOther));
  EXPECT_THAT(timeline.notes, IsEmpty());
}

TEST(TimelineAssembler, ManyRecordsOfOneOpStayRowsOfTheirOwn) {
  Assembly assembly;
  for (uint32_t i = 1; i <= 20; ++i) {
    assembly.assembler.Add(External(i, 0, 5));
    assembly.assembler.Add(Call(i, 10 * i, 10 * i + 5, 1, "cudaMemcpyAsync"));
    DeviceRecord copy = Kernel(i, 1000 + 10 * i, 1000 + 10 * i + 8);
    copy.kind = DeviceRecord::Kind::kCopy;
    copy.copy_channel = 3;
    copy.bytes = 4096;
    assembly.assembler.Add(copy);
  }
  const traces::Timeline timeline = assembly.Finish();
  ASSERT_EQ(timeline.rows(), 40);
  EXPECT_EQ(std::ranges::count(timeline.op, 5), 40);
  EXPECT_EQ(std::ranges::count(timeline.bytes, 4096), 20);
}

using AnyRecord = std::variant<CallRecord, DeviceRecord, ExternalRecord, WaitRecord>;

/// What a program of `calls` calls on three threads and four streams makes.
std::vector<AnyRecord> Program(uint32_t calls) {
  std::vector<AnyRecord> records;
  for (uint32_t i = 1; i <= calls; ++i) {
    const int64_t at = int64_t{i} * 1000;
    records.emplace_back(External(i, static_cast<int32_t>(i / 100), static_cast<int32_t>(i)));
    records.emplace_back(Call(i, at, at + 300, i % 3));
    if (i % 5 == 0) {
      records.emplace_back(
          WaitRecord{"host waits for stream", kOriginNs + at, kOriginNs + at + 200, i});
    } else {
      records.emplace_back(Kernel(i, at + 10'000, at + 10'900, i % 4));
    }
  }
  return records;
}

std::vector<std::string> Assembled(const std::vector<AnyRecord>& records, size_t flush_every) {
  Assembly assembly;
  size_t count = 0;
  for (const AnyRecord& record : records) {
    std::visit([&](const auto& own) { assembly.assembler.Add(own); }, record);
    if (++count % flush_every == 0) assembly.assembler.Flush();
  }
  const traces::Timeline timeline = assembly.Finish();
  EXPECT_EQ(assembly.assembler.stats().unmatched, 0);
  // In order of start within each lane, whatever the order of arrival.
  std::vector<Picoseconds> last(timeline.lanes.size(), Picoseconds::min());
  for (size_t row = 0; row < timeline.start.size(); ++row) {
    EXPECT_LE(last[timeline.lane[row]], timeline.start[row]);
    last[timeline.lane[row]] = timeline.start[row];
  }
  return InWords(timeline);
}

TEST(TimelineAssembler, RecordsInAnyOrderGiveTheSameRows) {
  std::vector<AnyRecord> records = Program(2000);
  const std::vector<std::string> expected = Assembled(records, records.size() + 1);
  EXPECT_EQ(expected.size(), 4000u);
  std::mt19937 random(1);
  for (const size_t window : {size_t{10}, size_t{1000}, records.size()}) {
    // Shuffled within a window, as buffers of several threads and streams arrive.
    for (size_t at = 0; at < records.size(); at += window) {
      std::shuffle(
          records.begin() + static_cast<std::ptrdiff_t>(at),
          records.begin() + static_cast<std::ptrdiff_t>(std::min(records.size(), at + window)),
          random);
    }
    // An id may come after its call, but before the flush that follows.
    std::ranges::stable_partition(
        records, [](const AnyRecord& r) { return std::holds_alternative<ExternalRecord>(r); });
    EXPECT_THAT(Assembled(records, 700), UnorderedElementsAreArray(expected)) << window;
  }
}

TEST(TimelineAssembler, AKernelWaitsForItsCallAcrossFlushes) {
  Assembly assembly;
  assembly.assembler.Add(Kernel(5, 1000, 2000));
  assembly.assembler.Flush();
  EXPECT_THAT(assembly.parts, IsEmpty());
  assembly.assembler.Add(External(5, 1, 2));
  assembly.assembler.Add(Call(5, 0, 10));
  assembly.assembler.Flush();
  EXPECT_THAT(assembly.parts, ElementsAre(2));
  EXPECT_THAT(InWords(assembly.Finish())[1], HasSubstr("op 2, step 1"));
}

TEST(TimelineAssembler, AKernelWithoutACallIsKeptAndCounted) {
  Assembly assembly;
  assembly.assembler.Add(Kernel(5, 1000, 2000));
  // Later records show that its call will not come any more.
  assembly.assembler.Add(
      Call(6, TimelineAssembler::kPatienceNs + 2001, TimelineAssembler::kPatienceNs + 2002));
  assembly.assembler.Flush();
  EXPECT_THAT(assembly.parts, ElementsAre(2));
  const traces::Timeline timeline = assembly.Finish();
  EXPECT_THAT(InWords(timeline)[0], HasSubstr("kernel, op -1, step -1"));
  EXPECT_EQ(assembly.assembler.stats().unmatched, 1);
  EXPECT_THAT(timeline.notes, ElementsAre("1 rows whose CUDA call is not known"));
}

TEST(TimelineAssembler, WithoutPushedIdsCallAndWorkShareTheCorrelation) {
  GpuRecorderOptions options;
  options.op_ids = OpIds::kCorrelation;
  Assembly assembly(options);
  assembly.assembler.Add(Call(77, 0, 10));
  assembly.assembler.Add(Kernel(77, 20, 30));
  assembly.assembler.Add(External(78, 3, -1));  // a step marker
  assembly.assembler.Add(Call(78, 40, 50));
  assembly.assembler.Add(Kernel(78, 60, 70));
  const traces::Timeline timeline = assembly.Finish();
  EXPECT_THAT(timeline.op, ElementsAre(77, 77, 78, 78));
  EXPECT_THAT(timeline.step, ElementsAre(-1, -1, 3, 3));
}

TEST(TimelineAssembler, NodesOfAGraphKeepTheOpsThatTheyWereCapturedWith) {
  Assembly assembly;
  const uint64_t first = uint64_t{4} << 32 | 1;
  const uint64_t clone = uint64_t{5} << 32 | 1;
  // Two nodes captured as ops 10 and 11, a third without an op; all cloned by instantiation.
  for (uint64_t node = 0; node < 2; ++node) {
    assembly.assembler.Add(
        GraphNodeRecord{first + node, 0, ExternalId{-1, 10 + static_cast<int32_t>(node)}.Pack()});
  }
  for (uint64_t node = 0; node < 3; ++node) {
    assembly.assembler.Add(GraphNodeRecord{clone + node, first + node, 0});
  }
  // Launched in steps 1 and 2 as op 30: all kernels of a launch have the launch's correlation.
  for (uint32_t step = 1; step <= 2; ++step) {
    assembly.assembler.Add(External(step, static_cast<int32_t>(step), 30));
    assembly.assembler.Add(Call(step, 1000 * step, 1000 * step + 10, 1, "cudaGraphLaunch"));
    for (uint64_t node = 0; node < 3; ++node) {
      DeviceRecord kernel = Kernel(step, 1000 * step + 100 + 50 * static_cast<int64_t>(node),
                                   1000 * step + 140 + 50 * static_cast<int64_t>(node));
      kernel.graph_node = clone + node;
      assembly.assembler.Add(kernel);
    }
  }
  const traces::Timeline timeline = assembly.Finish();
  EXPECT_THAT(timeline.op, ElementsAre(30, 10, 11, 30, 30, 10, 11, 30));
  EXPECT_THAT(timeline.step, ElementsAre(1, 1, 1, 1, 2, 2, 2, 2));
  const auto node = [&](uint64_t n) { return static_cast<int64_t>(clone + n); };
  EXPECT_THAT(timeline.graph_node,
              ElementsAre(0, node(0), node(1), node(2), 0, node(0), node(1), node(2)));
}

TEST(TimelineAssembler, CopiesAreOnTheirEnginesOrOnTheirStreams) {
  for (const CopyLanes lanes : {CopyLanes::kEngines, CopyLanes::kStreams}) {
    GpuRecorderOptions options;
    options.copy_lanes = lanes;
    Assembly assembly(options);
    assembly.assembler.NameStream({1, 8}, "recall", false);
    assembly.assembler.Add(Call(1, 0, 1));
    for (const int channel : {2, 5, -1}) {
      DeviceRecord copy = Kernel(1, 10 + channel, 20 + channel, 8, "copy");
      copy.kind = DeviceRecord::Kind::kCopy;
      copy.copy_channel = channel;
      assembly.assembler.Add(copy);
    }
    const traces::Timeline timeline = assembly.Finish();
    std::vector<std::string> names;
    for (const traces::TimelineLane& lane : timeline.lanes) names.push_back(lane.name);
    if (lanes == CopyLanes::kEngines) {
      EXPECT_THAT(names, ElementsAre("thread 1", "copy engine, channel 2", "copy engine, channel 5",
                                     "recall"));
      EXPECT_EQ(timeline.lanes[1].kind, LaneKind::kCopyEngine);
    } else {
      EXPECT_THAT(names, ElementsAre("thread 1", "recall"));
    }
  }
}

TEST(TimelineAssembler, NamedLanesAndLabels) {
  GpuRecorderOptions options;
  options.title = "freekv";
  options.notes = {"a note"};
  options.label = [](int32_t step, int32_t op) {
    return OpLabel{op == 1 ? Role::kAttention : Role::kLayout, static_cast<int16_t>(step + op)};
  };
  Assembly assembly(options);
  assembly.assembler.NameThread(1, "host");
  assembly.assembler.NameStream({1, 9}, "compute", true);
  assembly.assembler.Add(External(1, 20, 1));
  assembly.assembler.Add(Call(1, 0, 1));
  assembly.assembler.Add(Kernel(1, 5, 6, 8));  // the first kernel, but another stream is named
  assembly.assembler.Add(Kernel(1, 7, 8, 9));
  SpanRecord span;
  span.name = "gather";
  span.start_ns = kOriginNs + 10;
  span.end_ns = kOriginNs + 12;
  span.thread = 2;
  span.id = {20, 2};
  span.bytes = 64;
  assembly.assembler.Add(span);
  const traces::Timeline timeline = assembly.Finish();
  EXPECT_EQ(timeline.title, "freekv");
  EXPECT_THAT(timeline.notes, ElementsAre("a note"));
  EXPECT_THAT(InWords(timeline), ElementsAre("host: cudaLaunchKernel, op 1, step 20, 0+1 ns",
                                             "stream 8: kernel, op 1, step 20, 5+1 ns",
                                             "compute: kernel, op 1, step 20, 7+1 ns",
                                             "thread 2: gather, op 2, step 20, 10+2 ns, 64 B"));
  EXPECT_FALSE(timeline.lanes[1].compute);
  EXPECT_TRUE(timeline.lanes[2].compute);
  EXPECT_THAT(timeline.role,
              ElementsAre(Role::kHost, Role::kAttention, Role::kAttention, Role::kLayout));
  EXPECT_THAT(timeline.layer, ElementsAre(21, 21, 21, 22));
}

TEST(TimelineAssembler, WaitsAreOnTheThreadThatWaited) {
  Assembly assembly;
  assembly.assembler.Add(WaitRecord{"host waits for event", kOriginNs + 105, kOriginNs + 190, 3});
  assembly.assembler.Add(External(3, 1, 8));
  assembly.assembler.Add(Call(3, 100, 200, 42, "cudaEventSynchronize"));
  assembly.assembler.Add(WaitRecord{"host waits for event", kOriginNs + 300, kOriginNs + 301, 4});
  const traces::Timeline timeline = assembly.Finish();
  EXPECT_THAT(InWords(timeline),
              ElementsAre("thread 42: cudaEventSynchronize, op 8, step 1, 100+100 ns",
                          "thread 42: host waits for event, op 8, step 1, 105+85 ns",
                          "waits of unknown threads: host waits for event, op -1, step -1, "
                          "300+1 ns"));
  EXPECT_THAT(timeline.role, ElementsAre(Role::kHost, Role::kSync, Role::kSync));
}

TEST(TimelineAssembler, RangesArePairedById) {
  Assembly assembly;
  const auto range = [&](bool begin, uint64_t id, std::string_view name, int64_t at) {
    assembly.assembler.Add(RangeRecord{begin, id, name, kOriginNs + at, 6});
  };
  range(true, 1, "step", 0);
  range(true, 2, "layer", 10);
  range(false, 2, "", 20);
  range(false, 1, "", 30);
  range(false, 9, "", 35);  // began before the recording
  range(true, 3, "never ended", 40);
  const traces::Timeline timeline = assembly.Finish();
  EXPECT_THAT(InWords(timeline), ElementsAre("NVTX, thread 6: step, op -1, step -1, 0+30 ns",
                                             "NVTX, thread 6: layer, op -1, step -1, 10+10 ns"));
  EXPECT_THAT(timeline.notes, ElementsAre("1 records without a usable time"));
}

TEST(TimelineAssembler, LossesAreCountedAndSaid) {
  Assembly assembly;
  assembly.assembler.Add(Call(1, 0, 10));
  DeviceRecord kernel = Kernel(1, 0, 0);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const auto& [start, end] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 0},              // unknown
                                                {0, kOriginNs + 5},  // its begin unknown
                                                {kOriginNs + 20, kOriginNs + 10},  // inverted
                                                {kOriginNs + 5, kMax},             // no time
                                                {-kMax, kMax},
                                                {kMax - 1, kMax}}) {
    kernel.start_ns = start;
    kernel.end_ns = end;
    assembly.assembler.Add(kernel);
  }
  assembly.assembler.AddDropped(40);
  assembly.assembler.AddDropped(2);
  const traces::Timeline timeline = assembly.Finish();
  EXPECT_EQ(timeline.rows(), 1);
  EXPECT_THAT(timeline.notes, ElementsAre("42 records dropped", "6 records without a usable time"));
  EXPECT_EQ(assembly.assembler.stats().zero_stamps, 6);
}

TEST(TimelineAssembler, NothingRecordedIsATimelineWithoutRows) {
  Assembly assembly;
  EXPECT_EQ(assembly.Finish().rows(), 0);
}

TEST(TimelineAssembler, KernelNamesAreReadable) {
  Assembly assembly;
  assembly.assembler.Add(Call(1, 0, 1));
  assembly.assembler.Add(Kernel(1, 5, 6, 7, "_ZN6plugin6KernelIfEEvPT_i"));
  assembly.assembler.Add(Kernel(1, 7, 8, 7, "_Znonsense"));
  assembly.assembler.Add(Kernel(1, 9, 10, 7, std::string(100'000, 'x')));
  const traces::Timeline timeline = assembly.Finish();
  EXPECT_EQ(timeline.names[1], "void plugin::Kernel<float>(float*, int)");
  EXPECT_EQ(timeline.names[2], "_Znonsense");
  EXPECT_LT(timeline.names[3].size(), 1000u);
}

TEST(TimelineAssembler, EndlessNamesLanesAndWaitsStayBounded) {
  Assembly assembly;
  constexpr uint32_t kMany = 300'000;
  for (uint32_t i = 1; i <= kMany; ++i) {
    assembly.assembler.Add(
        Kernel(i, i, i + 1, i, "kernel with a rather long name, number " + std::to_string(i)));
    EXPECT_LE(assembly.assembler.waiting(), TimelineAssembler::kMaxWaiting);
  }
  const traces::Timeline timeline = assembly.Finish();
  EXPECT_EQ(timeline.rows(), kMany);
  EXPECT_LE(timeline.lanes.size(), TimelineAssembler::kMaxLanes + 1);
  size_t bytes = 0;
  for (const std::string& name : timeline.names) bytes += name.size();
  EXPECT_LE(bytes, TimelineAssembler::kMaxNameBytes);
  EXPECT_EQ(timeline.lanes.back().name, "(more lanes)");
  EXPECT_EQ(timeline.names[timeline.name.back()], "(more names)");
  EXPECT_EQ(assembly.assembler.stats().unmatched, kMany);
}

TEST(TimelineAssembler, CorrelationsWrapAround) {
  Assembly assembly;
  constexpr uint32_t kFirst = 0xffff'ff00u;
  for (uint32_t i = 0; i < 512; ++i) {
    const uint32_t correlation = kFirst + i;
    if (correlation == 0) continue;
    assembly.assembler.Add(External(correlation, 0, static_cast<int32_t>(i)));
    assembly.assembler.Add(Call(correlation, 10 * i + 1, 10 * i + 2));
    assembly.assembler.Add(Kernel(correlation, 10 * i + 3, 10 * i + 4));
  }
  const traces::Timeline timeline = assembly.Finish();
  EXPECT_EQ(assembly.assembler.stats().unmatched, 0);
  EXPECT_EQ(timeline.rows(), 2 * 511);
  EXPECT_EQ(std::set(timeline.op.begin(), timeline.op.end()).size(), 511u);
}

TEST(ExternalId, PacksAndUnpacks) {
  for (const int32_t step : {-1, 0, 7, std::numeric_limits<int32_t>::max()}) {
    for (const int32_t op : {-1, 0, 9, std::numeric_limits<int32_t>::max()}) {
      EXPECT_EQ(ExternalId::Unpack(ExternalId{step, op}.Pack()), (ExternalId{step, op}));
    }
  }
}

}  // namespace
}  // namespace stallcast::capture
