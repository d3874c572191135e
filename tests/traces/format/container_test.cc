// What is written is what is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/scratch_folder.h"
#include "tests/traces/sample.h"
#include "traces/common/error.h"
#include "traces/format/trace_file.h"

namespace stallcast::traces {
namespace {

Trace ReadWhole(const std::vector<std::byte>& file) {
  ReadReport report;
  Trace trace = ReadTrace(file, "test", {}, &report);
  EXPECT_EQ(report.problems, std::vector<std::string>());
  EXPECT_FALSE(report.truncated);
  return trace;
}

class DTypeTest : public testing::TestWithParam<DType> {};

TEST_P(DTypeTest, TensorIsBitExact) {
  TensorSpec spec = SampleSpec(TensorKind::kValue, GetParam(), 5, 11, 300);
  spec.heads = 3;
  spec.head_dim = 64;
  std::mt19937_64 random(1);
  std::vector<std::byte> elements(spec.bytes());
  std::ranges::generate(elements, [&] { return static_cast<std::byte>(random()); });
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(spec, elements);
  writer.Finish();

  const Trace trace = ReadWhole(file);
  ASSERT_EQ(trace.tensors.size(), 1u);
  EXPECT_EQ(trace.tensors[0].spec, spec);
  EXPECT_EQ(trace.tensors[0].data, elements);
}

INSTANTIATE_TEST_SUITE_P(All, DTypeTest, testing::Values(DType::kBf16, DType::kFp16, DType::kFp32),
                         [](const auto& test) { return std::string(Name(test.param)); });

TEST(ContainerTest, EverythingComesBack) {
  const Trace trace = ReadWhole(SampleFile());
  EXPECT_EQ(trace.info.SerializeAsString(), SampleInfo().SerializeAsString());
  ASSERT_EQ(trace.tensors.size(), 4u);
  for (const Tensor& tensor : trace.tensors) {
    EXPECT_EQ(tensor.spec.tokens, 10);
    EXPECT_EQ(tensor.data, SampleTensor(tensor.spec).data);
  }
  ASSERT_EQ(trace.timelines.size(), 1u);
  EXPECT_EQ(trace.timelines[0], SampleTimeline());
  ASSERT_EQ(trace.access_logs.size(), 1u);
  EXPECT_EQ(trace.access_logs[0], SampleLog());
  EXPECT_EQ(trace.Layers(), (std::vector<int>{0, 1}));
  EXPECT_EQ(trace.Find(TensorKind::kValue, 0), nullptr);
}

TEST(ContainerTest, ReportCountsWhatTheWriterCounted) {
  ReadReport report;
  ReadTrace(SampleFile(), "test", {}, &report);
  EXPECT_EQ(report.chunks, 1 + 8 + 1 + 1 + 1);
  EXPECT_EQ(report.records, 4 * 10 + 6 + 6);
  EXPECT_EQ(report.dropped, 3);
  EXPECT_EQ(report.zero_stamps, 2);
}

TEST(ContainerTest, EmptyThingsComeBack) {
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  const TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kFp32, 0, 9, 0);
  writer.Write(spec, {});
  writer.Write(Timeline());
  writer.Write(AccessLog());
  writer.Finish();
  const Trace trace = ReadWhole(file);
  ASSERT_EQ(trace.tensors.size(), 1u);
  EXPECT_EQ(trace.tensors[0].spec, spec);
  EXPECT_EQ(trace.timelines, std::vector<Timeline>(1));
  EXPECT_EQ(trace.access_logs, std::vector<AccessLog>(1));
}

TEST(ContainerTest, NothingButInfo) {
  std::vector<std::byte> file;
  TraceWriter(&file, SampleInfo()).Finish();
  EXPECT_EQ(ReadWhole(file).info.model().name(), "tiny");
}

TEST(ContainerTest, LaterInfoWins) {
  std::vector<std::byte> file;
  TraceWriter writer(&file, SampleInfo());
  proto::TraceInfo info;
  info.set_decode_steps(256);
  writer.Write(info);
  writer.Finish();
  EXPECT_EQ(ReadWhole(file).info.decode_steps(), 256);
  EXPECT_FALSE(ReadWhole(file).info.has_model());
}

TEST(ContainerTest, PiecesWrittenInAnyOrderMerge) {
  std::vector<int64_t> firsts(20);
  for (size_t i = 0; i < firsts.size(); ++i) firsts[i] = 5 * static_cast<int64_t>(i);
  std::shuffle(firsts.begin(), firsts.end(), std::mt19937(7));
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  for (const int64_t first : firsts) {
    const TensorSpec piece = SampleSpec(TensorKind::kKey, DType::kFp16, 3, first, 5);
    writer.Write(piece, SampleTensor(piece).data);
  }
  writer.Finish();
  const Trace trace = ReadWhole(file);
  ASSERT_EQ(trace.tensors.size(), 1u);
  EXPECT_EQ(trace.tensors[0].data,
            SampleTensor(SampleSpec(TensorKind::kKey, DType::kFp16, 3, 0, 100)).data);
}

TEST(ContainerTest, LongTensorSplitByTheWriterMerges) {
  TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 0, 3, 40'000);
  spec.head_dim = 64;  // 10 MB, several chunks
  const Tensor tensor = SampleTensor(spec);
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(spec, tensor.data);
  writer.Finish();
  ReadReport report;
  const Trace trace = ReadTrace(file, "test", {}, &report);
  EXPECT_GT(report.chunks, 3);
  ASSERT_EQ(trace.tensors.size(), 1u);
  EXPECT_EQ(trace.tensors[0].spec, spec);
  EXPECT_TRUE(trace.tensors[0].data == tensor.data);
}

TEST(ContainerTest, TokensLargerThanAPieceComeBack) {
  TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 0, 5, 2);
  spec.heads = 1;
  spec.head_dim = 5 << 19;  // 5 MiB
  const Tensor tensor{spec,
                      std::vector<std::byte>(static_cast<size_t>(spec.bytes()), std::byte{3})};
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(spec, tensor.data);
  writer.Finish();
  EXPECT_EQ(ReadTrace(file, "x.kvt").tensors.at(0).data, tensor.data);
}

TEST(ContainerTest, LayersAreThoseWithQueriesAndKeys) {
  Trace trace;
  const auto add = [&](TensorKind kind, int layer) {
    trace.tensors.push_back({SampleSpec(kind, DType::kBf16, layer, 0, 3), {}});
  };
  add(TensorKind::kQuery, 4);
  add(TensorKind::kKey, 4);
  add(TensorKind::kQuery, 1);
  add(TensorKind::kKey, 2);
  add(TensorKind::kKey, 0);
  add(TensorKind::kQuery, 0);
  EXPECT_EQ(trace.Layers(), (std::vector<int>{0, 4}));
}

TEST(ContainerTest, HighlyCompressibleTensorIsNotRefused) {
  TensorSpec spec = SampleSpec(TensorKind::kGate, DType::kFp32, 0, 0, 1'000'000);
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(spec, std::vector<std::byte>(spec.bytes()));
  writer.Finish();
  EXPECT_EQ(ReadWhole(file).tensors[0].data, std::vector<std::byte>(spec.bytes()));
}

TEST(ContainerTest, RealisticKeysShrink) {
  TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 0, 0, 10'000);
  spec.head_dim = 64;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> keys(spec.elements());
  for (uint16_t& key : keys) key = std::bit_cast<uint32_t>(normal(random)) >> 16;
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(spec, std::as_bytes(std::span(keys)));
  EXPECT_LT(file.size(), 0.75 * spec.bytes());
}

TEST(ContainerTest, LongTimelineComesBack) {
  Timeline timeline = SampleTimeline();
  std::mt19937_64 random(3);
  for (int i = 0; i < 200'000; ++i) {
    timeline.lane.push_back(i % 3);
    timeline.op.push_back(static_cast<int64_t>(random()));
    timeline.step.push_back(static_cast<int32_t>(random()));
    timeline.layer.push_back(static_cast<int16_t>(random()));
    timeline.role.push_back(static_cast<Role>(i % kRoles));
    timeline.name.push_back(i % 3);
    timeline.start.emplace_back(static_cast<int64_t>(random()) / 4);
    timeline.duration.emplace_back(static_cast<int64_t>(random() / 4));
    timeline.bytes.push_back(static_cast<int64_t>(random()));
    timeline.flows.push_back({static_cast<int64_t>(random()), static_cast<int64_t>(random())});
  }
  RestoreOrder(&timeline);
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(timeline);
  writer.Finish();
  const Trace trace = ReadWhole(file);
  ASSERT_EQ(trace.timelines.size(), 1u);
  EXPECT_TRUE(trace.timelines[0] == timeline);
}

TEST(ContainerTest, MoreFlowsThanRowsComeBack) {
  Timeline timeline = SampleTimeline();
  for (int64_t i = 0; i < 70'000; ++i) timeline.flows.push_back({i, i * i});
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(timeline);
  writer.Finish();
  EXPECT_EQ(ReadTrace(file, "x.kvt").timelines.at(0), timeline);
}

TEST(ContainerTest, TimelineWrittenInPartsComesBackInOrder) {
  // Parts with growing tables; rows out of order between and within parts; graph nodes in some.
  Timeline whole;
  whole.title = "parts";
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  uint32_t id = 0;
  std::mt19937 random(5);
  for (int part_number = 0; part_number < 30; ++part_number) {
    whole.lanes.push_back({"lane " + std::to_string(part_number), LaneKind::kStream, false});
    whole.names.push_back("name " + std::to_string(part_number));
    Timeline part = whole;
    for (Timeline* t : {&part, &whole}) t->notes = {"after part " + std::to_string(part_number)};
    part.lane.clear(), part.op.clear(), part.step.clear(), part.layer.clear(), part.role.clear();
    part.name.clear(), part.start.clear(), part.duration.clear(), part.bytes.clear();
    part.graph_node.clear();
    for (int i = 0; i < 50; ++i) {
      const int64_t start = static_cast<int64_t>(random() % 1000);
      const int64_t node = part_number % 3 == 1 ? start : 0;
      for (Timeline* t : {&part, &whole}) {
        t->lane.push_back(static_cast<uint16_t>(i % (part_number + 1)));
        t->op.push_back(part_number * 50 + i);
        t->step.push_back(part_number);
        t->layer.push_back(-1);
        t->role.push_back(Role::kOther);
        t->name.push_back(static_cast<uint32_t>(part_number));
        t->start.emplace_back(start);
        t->duration.emplace_back(i);
        t->bytes.push_back(0);
        if (t == &whole || part_number % 3 == 1) t->graph_node.push_back(node);
      }
    }
    if (part_number == 0) {
      id = writer.Write(part);
    } else {
      writer.Append(id, part);
    }
  }
  writer.Finish();
  const Trace trace = ReadWhole(file);
  ASSERT_EQ(trace.timelines.size(), 1u);
  const Timeline& found = trace.timelines[0];
  EXPECT_TRUE(std::ranges::is_sorted(found.start));
  RestoreOrder(&whole);
  EXPECT_TRUE(found == whole);
}

TEST(ContainerTest, NamesNeedNotBeUtf8) {
  Timeline timeline = SampleTimeline();
  timeline.names[1] = "kernel\xff\xfe";
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(timeline);
  writer.Finish();
  EXPECT_EQ(ReadWhole(file).timelines[0], timeline);
}

TEST(ContainerTest, LongLogComesBack) {
  AccessLog log = SampleLog();
  log.steps = 200;
  log.layers.clear();
  std::mt19937 random(9);
  for (int layer = 0; layer < 6; ++layer) {
    LayerAccess access;
    access.layer = layer;
    access.heads = 8;
    std::vector<uint32_t> ids(800);
    for (int cell = 0; cell < log.steps * access.heads; ++cell) {
      for (uint32_t& id : ids) id = random() % 100'000;
      std::ranges::sort(ids);
      access.selected.Append(std::span(ids).first(random() % ids.size()));
      access.attended_tokens.push_back(cell);
    }
    log.layers.push_back(std::move(access));
  }
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(log);
  writer.Write(SampleLog());
  writer.Finish();
  ReadReport report;
  const Trace trace = ReadTrace(file, "test", {}, &report);
  EXPECT_GT(report.chunks, 4);  // the log was split
  ASSERT_EQ(trace.access_logs.size(), 2u);
  EXPECT_TRUE(trace.access_logs[0] == log);
  EXPECT_EQ(trace.access_logs[1], SampleLog());
}

TEST(ContainerTest, CellsOfALogCountWhicheverOfTheirColumnsItHolds) {
  const auto records = [](const AccessLog& log) {
    std::vector<std::byte> file;
    TraceWriter writer(&file, {});
    writer.Write(log);
    writer.Finish();
    ReadReport report;
    EXPECT_EQ(ReadTrace(file, "x.kvt", {}, &report).access_logs.at(0), log);
    return report.records;
  };
  AccessLog log = SampleLog();
  EXPECT_EQ(records(log), 6);
  log.layers[1].flags.clear();
  AccessLog lists = log, tokens = log;
  lists.layers[1].attended_tokens.clear();
  EXPECT_EQ(records(lists), 6);
  tokens.layers[1].selected = {};
  EXPECT_EQ(records(tokens), 6);
}

TEST(ContainerTest, SeveralTimelinesStayApart) {
  Timeline measured = SampleTimeline();
  measured.origin = Timeline::Origin::kMeasured;
  measured.names = {"other", "names", "here"};
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(SampleTimeline());
  writer.Write(measured);
  writer.Finish();
  const Trace trace = ReadWhole(file);
  ASSERT_EQ(trace.timelines.size(), 2u);
  EXPECT_EQ(trace.timelines[0], SampleTimeline());
  EXPECT_EQ(trace.timelines[1], measured);
}

TEST(ContainerTest, OptionsLeaveTensorsOut) {
  const std::vector<std::byte> file = SampleFile();
  ReadReport whole, none, one;
  ReadTrace(file, "test", {}, &whole);
  EXPECT_TRUE(ReadTrace(file, "test", {.tensors = false}, &none).tensors.empty());
  const Trace layer = ReadTrace(file, "test", {.layers = {1}}, &one);
  ASSERT_EQ(layer.tensors.size(), 2u);
  EXPECT_EQ(layer.tensors[0].spec.layer, 1);
  for (const ReadReport& report : {none, one}) {
    EXPECT_EQ(report.content_hash, whole.content_hash);
    EXPECT_EQ(report.records, whole.records);
    ASSERT_EQ(report.tensors.size(), 4u);
    EXPECT_EQ(report.tensors[0], SampleSpec(TensorKind::kQuery, DType::kBf16, 0, 0, 10));
    EXPECT_EQ(report.problems, std::vector<std::string>());
  }
}

TEST(ContainerTest, ContentHashIsOfTheTensorsOnly) {
  const auto hash = [](const std::vector<std::byte>& file) {
    ReadReport report;
    ReadTrace(file, "test", {}, &report);
    return report.content_hash;
  };
  const TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 0, 0, 5);
  Tensor tensor = SampleTensor(spec);
  const auto file = [&](bool more, const TensorSpec& as) {
    std::vector<std::byte> bytes;
    TraceWriter writer(&bytes, more ? SampleInfo() : proto::TraceInfo());
    if (more) writer.Write(SampleLog());
    writer.Write(as, tensor.data);
    if (more) writer.Write(SampleTimeline());
    writer.Finish();
    return bytes;
  };
  const std::string before = hash(file(false, spec));
  EXPECT_EQ(before.size(), 32u);
  EXPECT_EQ(hash(file(true, spec)), before);
  TensorSpec other = spec;
  other.layer = 1;
  EXPECT_NE(hash(file(false, other)), before);
  tensor.data[3] ^= std::byte{1};
  EXPECT_NE(hash(file(false, spec)), before);
}

TEST(ContainerTest, SameContentGivesSameBytes) {
  const auto file = [](bool backwards) {
    proto::TraceInfo info;
    for (int i = 0; i < 20; ++i) {
      const std::string key = std::to_string(backwards ? 19 - i : i);
      info.mutable_parameters()->insert({key, key});
    }
    std::vector<std::byte> bytes;
    TraceWriter writer(&bytes, info);
    TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 0, 0, 40'000);
    spec.head_dim = 64;  // several chunks, packed by several threads
    writer.Write(spec, std::vector<std::byte>(spec.bytes(), std::byte{9}));
    writer.Write(SampleTimeline());
    writer.Write(SampleLog());
    writer.Finish();
    return bytes;
  };
  EXPECT_TRUE(file(false) == file(true));
}

TEST(ContainerTest, FileAndMemoryHoldTheSame) {
  const ScratchFolder folder;
  const std::filesystem::path path = folder / "container_test.kvt";
  {
    TraceWriter writer(path, SampleInfo());
    writer.Write(SampleTimeline());
    TraceWriter moved = std::move(writer);
    moved.Write(SampleLog());
    moved.Finish();
  }
  std::vector<std::byte> memory;
  TraceWriter writer(&memory, SampleInfo());
  writer.Write(SampleTimeline());
  writer.Write(SampleLog());
  writer.Finish();
  EXPECT_EQ(std::filesystem::file_size(path), memory.size());
  ReadReport report;
  const Trace trace = ReadTrace(path, {.strict = true}, &report);
  EXPECT_EQ(trace.timelines[0], SampleTimeline());
  EXPECT_EQ(trace.access_logs[0], SampleLog());
}

TEST(ContainerTest, WriterRefusesWhatCouldNotBeRead) {
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 0, 0, 5);
  EXPECT_THROW(writer.Write(spec, std::vector<std::byte>(spec.bytes() - 1)), Error);
  spec.heads = 0;
  EXPECT_THROW(writer.Write(spec, {}), Error);
  Timeline timeline = SampleTimeline();
  timeline.lane[0] = 3;
  EXPECT_THROW(writer.Write(timeline), Error);
  timeline = SampleTimeline();
  timeline.duration[0] = Picoseconds(-1);
  EXPECT_THROW(writer.Write(timeline), Error);
  AccessLog log = SampleLog();
  log.layers[1].flags.pop_back();
  EXPECT_THROW(writer.Write(log), Error);
  proto::TraceInfo info;
  info.set_provenance("\xff");
  EXPECT_THROW(writer.Write(info), Error);
  writer.Finish();
  EXPECT_THROW(writer.Write(SampleTimeline()), Error);
  EXPECT_TRUE(ReadWhole(file).timelines.empty());
}

}  // namespace
}  // namespace stallcast::traces
