// A cut, flipped or lying file gives every intact chunk and says what is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tests/traces/format/layout.h"
#include "tests/traces/sample.h"
#include "traces/common/error.h"
#include "traces/format/chunk.h"
#include "traces/format/log_codec.h"
#include "traces/format/tensor_codec.h"
#include "traces/format/timeline_codec.h"
#include "traces/format/trace_file.h"

namespace stallcast::traces {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Whatever was damaged, what is given must be right.
void ExpectNoLies(const Trace& trace) {
  for (const Tensor& tensor : trace.tensors) {
    ASSERT_EQ(tensor.data, SampleTensor(tensor.spec).data);
  }
  for (const Timeline& timeline : trace.timelines) ASSERT_EQ(timeline, SampleTimeline());
  for (const AccessLog& log : trace.access_logs) ASSERT_EQ(log, SampleLog());
}

std::string ErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string ErrorOf(std::span<const std::byte> file) {
  return ErrorOf([&] { ReadTrace(file, "x.kvt"); });
}

TEST(DamageTest, CutAnywhereKeepsEveryWholeChunk) {
  const std::vector<std::byte> file = SampleFile();
  const std::vector<int64_t> offsets = ChunkOffsets(file);
  for (int64_t length = 16; length < std::ssize(file); ++length) {
    SCOPED_TRACE(length);
    ReadReport report;
    const Trace trace = ReadTrace(std::span(file).first(length), "x.kvt", {}, &report);
    ExpectNoLies(trace);
    const int64_t whole = std::count_if(offsets.begin() + 1, offsets.end(),
                                        [&](int64_t end) { return end <= length; });
    ASSERT_EQ(report.chunks, whole);
    ASSERT_TRUE(report.truncated);
    ASSERT_EQ(report.damaged, 0);
    ASSERT_FALSE(report.problems.empty());
    ASSERT_THAT(report.problems.back(),
                whole == 0 ? "truncated: no chunk is intact, nothing recovered"
                           : "truncated after chunk " + std::to_string(whole - 1) + ", " +
                                 std::to_string(report.records) + " records recovered");
    ASSERT_THROW(ReadTrace(std::span(file).first(length), "x.kvt", {.strict = true}), Error);
  }
}

TEST(DamageTest, CutWithinTheHeaderIsNoTrace) {
  const std::vector<std::byte> file = SampleFile();
  EXPECT_THAT(ErrorOf(std::span(file).first(0)), HasSubstr("x.kvt: is empty"));
  for (int64_t length = 1; length < 8; ++length) {
    EXPECT_THAT(ErrorOf(std::span(file).first(length)), HasSubstr("is not a .kvt trace"));
  }
}

TEST(DamageTest, OneFlippedBitCostsAtMostItsChunk) {
  const std::vector<std::byte> file = SampleFile();
  const auto chunks = std::ssize(ChunkOffsets(file)) - 1;
  for (int64_t at = 0; at < std::ssize(file); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      SCOPED_TRACE(testing::Message() << "byte " << at << " bit " << bit);
      std::vector<std::byte> flipped = file;
      flipped[at] ^= std::byte{1} << bit;
      ReadReport report;
      ExpectNoLies(ReadTrace(flipped, "x.kvt", {}, &report));
      ASSERT_EQ(report.chunks, at < 16 ? chunks : chunks - 1);
      ASSERT_FALSE(report.problems.empty());
    }
  }
}

TEST(DamageTest, LostBytesCostOnlyTheChunksThatLostThem) {
  const std::vector<std::byte> file = SampleFile();
  const std::vector<int64_t> offsets = ChunkOffsets(file);
  const auto chunk_at = [&](int64_t at) {
    return std::upper_bound(offsets.begin(), offsets.end(), at) - offsets.begin();
  };
  for (int64_t at = 16; at + 5 <= std::ssize(file); ++at) {
    SCOPED_TRACE(at);
    std::vector<std::byte> shorter = file;
    shorter.erase(shorter.begin() + at, shorter.begin() + at + 5);
    ReadReport report;
    ExpectNoLies(ReadTrace(shorter, "x.kvt", {}, &report));
    const auto hit = chunk_at(at + 4) - chunk_at(at) + 1;
    ASSERT_EQ(report.chunks, std::ssize(offsets) - 1 - hit);
    ASSERT_FALSE(report.problems.empty());
  }
}

TEST(DamageTest, CheckingFindsWhatReadingFindsAndKeepsNoElements) {
  const std::vector<std::byte> file = SampleFile();
  for (int64_t at = 16; at < std::ssize(file); at += 7) {
    SCOPED_TRACE(at);
    std::vector<std::byte> flipped = file;
    flipped[static_cast<size_t>(at)] ^= std::byte{16};
    ReadReport read, checked;
    const Trace whole = ReadTrace(flipped, "x.kvt", {}, &read);
    const Trace outline = ReadTrace(flipped, "x.kvt", {.tensors = false, .check = true}, &checked);
    EXPECT_EQ(checked.problems, read.problems);
    EXPECT_EQ(checked.content_hash, read.content_hash);
    ASSERT_EQ(outline.tensors.size(), whole.tensors.size());
    for (size_t i = 0; i < whole.tensors.size(); ++i) {
      EXPECT_EQ(outline.tensors[i].spec, whole.tensors[i].spec);
      EXPECT_THAT(outline.tensors[i].data, IsEmpty());
    }
  }
}

TEST(DamageTest, AChunkThatIsLostWithItsNumberIsCounted) {
  std::vector<std::byte> file = SampleFile();
  const std::vector<int64_t> offsets = ChunkOffsets(file);
  file.erase(file.begin() + offsets[0], file.begin() + offsets[1]);  // the TraceInfo
  for (const int64_t head : ChunkOffsets(file)) {
    if (head == std::ssize(file)) break;
    Put(&file, head + 12, Get<uint32_t>(file, head + 12) - 1);
    Reseal(&file, head);
  }
  EXPECT_THROW(ReadTrace(file, "x.kvt", {.strict = true}), Error);
}

TEST(DamageTest, NoFormatVersionIsZero) {
  std::vector<std::byte> file = SampleFile();
  Put(&file, 8, uint32_t{0});
  Put(&file, 12, static_cast<uint32_t>(format::Checksum(std::span(file).first(12))));
  EXPECT_THAT(ErrorOf(file), HasSubstr("version 0"));
}

// A chunk of 10 tokens of keys from each of these on.
std::vector<std::byte> KeysFrom(const std::vector<int64_t>& first_tokens) {
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  for (const int64_t first : first_tokens) {
    const TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 4, first, 10);
    writer.Write(spec, SampleTensor(spec).data);
  }
  writer.Finish();
  return file;
}

TEST(DamageTest, DamagedTensorChunkIsNamedAndItsTokensMissing) {
  const std::vector<std::byte> file = KeysFrom({0, 10, 20});
  std::vector<std::byte> flipped = file;
  flipped[PayloadOf(file, ChunkOffsets(file)[2]) + 5] ^= std::byte{1};
  ReadReport report;
  const Trace trace = ReadTrace(flipped, "x.kvt", {}, &report);
  EXPECT_THAT(report.problems, ElementsAre("chunk 2 (tensor) damaged: checksum; skipped",
                                           "20 of 30 records recovered"));
  ASSERT_EQ(trace.tensors.size(), 2u);
  EXPECT_EQ(trace.tensors[0].spec.end_token(), 10);
  EXPECT_EQ(trace.tensors[1].spec.first_token, 20);
  ExpectNoLies(trace);

  ReadReport whole;
  ReadTrace(file, "x.kvt", {}, &whole);
  EXPECT_NE(report.content_hash, whole.content_hash);
}

TEST(DamageTest, LostHeadIsNamed) {
  std::vector<std::byte> file = SampleFile();
  file[ChunkOffsets(file)[3] + 20] ^= std::byte{1};
  ReadReport report;
  const Trace trace = ReadTrace(file, "x.kvt", {}, &report);
  EXPECT_THAT(report.problems, Contains(HasSubstr("chunk 3 is missing")));
  EXPECT_THAT(report.problems.back(), HasSubstr("records recovered"));
  ExpectNoLies(trace);
}

TEST(DamageTest, GapBetweenChunksIsReported) {
  const std::vector<std::byte> file = KeysFrom({0, 10, 30});
  ReadReport report;
  const Trace trace = ReadTrace(file, "x.kvt", {}, &report);
  EXPECT_THAT(report.problems, ElementsAre("key of layer 4: tokens 20 to 30 are missing"));
  EXPECT_EQ(trace.Find(TensorKind::kKey, 4)->spec.tokens, 20);
  ExpectNoLies(trace);
}

TEST(DamageTest, OverlapIsReported) {
  const std::vector<std::byte> file = KeysFrom({0, 10, 19, 10});
  ReadReport report;
  const Trace trace = ReadTrace(file, "x.kvt", {}, &report);
  EXPECT_EQ(report.problems.size(), 2u);
  EXPECT_THAT(report.problems[0], HasSubstr("tokens 10 to 20 are there twice"));
  ASSERT_EQ(trace.tensors.size(), 1u);
  EXPECT_EQ(trace.tensors[0].spec.tokens, 20);
  ExpectNoLies(trace);
}

TEST(DamageTest, DisagreeingShapesAreReported) {
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 4, 0, 10);
  writer.Write(spec, SampleTensor(spec).data);
  spec.first_token = 10;
  for (const auto change : {0, 1, 2}) {
    TensorSpec other = spec;
    if (change == 0) other.heads = 3;
    if (change == 1) other.head_dim = 8;
    if (change == 2) other.dtype = DType::kFp16;
    writer.Write(other, SampleTensor(other).data);
  }
  writer.Finish();
  ReadReport report;
  const Trace trace = ReadTrace(file, "x.kvt", {}, &report);
  EXPECT_EQ(report.problems.size(), 3u);
  ASSERT_EQ(trace.tensors.size(), 1u);
  EXPECT_EQ(trace.tensors[0].spec.tokens, 10);
}

TEST(DamageTest, BytesAfterTheEndAreReported) {
  std::vector<std::byte> file = SampleFile();
  file.resize(file.size() + 9);
  ReadReport report;
  ExpectNoLies(ReadTrace(file, "x.kvt", {}, &report));
  EXPECT_THAT(report.problems, ElementsAre("9 bytes after the End chunk are ignored"));
}

TEST(DamageTest, NewerVersionIsNamed) {
  std::vector<std::byte> file = SampleFile();
  Put<uint32_t>(&file, 8, 2);
  Put(&file, 12, static_cast<uint32_t>(format::Checksum(std::span(file).first(12))));
  EXPECT_EQ(
      ErrorOf(file),
      "x.kvt: is of format version 2, newer than version 1 of this program; update stallcast");
}

TEST(DamageTest, OtherFilesAreNoTraces) {
  const std::string text(5000, 'x');
  EXPECT_THAT(ErrorOf(std::as_bytes(std::span(text))), HasSubstr("x.kvt: is not a .kvt trace"));
}

TEST(DamageTest, PathsThatAreNoFiles) {
  const auto error = [](const char* path) { return ErrorOf([&] { ReadTrace(path); }); };
  EXPECT_THAT(error("/tmp"), HasSubstr("/tmp: is a directory"));
  EXPECT_THAT(error("/dev/zero"), HasSubstr("/dev/zero: is not a regular file"));
  EXPECT_THAT(error("/nowhere/x.kvt"), HasSubstr("/nowhere/x.kvt: No such file or directory"));
}

// A head with true checksums that claims what is not so.
struct Lie {
  const char* name;
  int field;
  uint64_t value;
};

class LieTest : public testing::TestWithParam<Lie> {};

TEST_P(LieTest, CostsOnlyItsChunk) {
  const Lie& lie = GetParam();
  std::vector<std::byte> file = SampleFile();
  const std::vector<int64_t> offsets = ChunkOffsets(file);
  Put(&file, offsets[2] + lie.field, lie.value);
  Reseal(&file, offsets[2]);
  ReadReport report;
  ExpectNoLies(ReadTrace(file, "x.kvt", {}, &report));
  EXPECT_EQ(report.chunks, std::ssize(offsets) - 2);
  EXPECT_EQ(report.damaged, 1);
}

INSTANTIATE_TEST_SUITE_P(
    All, LieTest,
    testing::Values(Lie{"HugeRaw", 24, uint64_t{1} << 40}, Lie{"LargestRaw", 24, ~uint64_t{0}},
                    Lie{"RawTooLarge", 24, 200 << 20}, Lie{"RawOffByOne", 24, 113},
                    Lie{"NoRaw", 24, 0}, Lie{"HugeStored", 16, uint64_t{1} << 40},
                    Lie{"LargestStored", 16, ~uint64_t{0}}, Lie{"StoredPastTheEnd", 16, 1 << 20},
                    Lie{"NoStored", 16, 0}, Lie{"StoredShort", 16, 10}),
    [](const auto& test) { return test.param.name; });

// A file of one tensor chunk whose payload is a given zstd frame.
std::vector<std::byte> FileAround(const std::vector<std::byte>& frame, uint64_t raw_size,
                                  TensorSpec spec) {
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  spec.tokens = static_cast<int64_t>(raw_size) / (spec.heads * spec.head_dim * 2);
  writer.Write(spec, std::vector<std::byte>(spec.bytes()));
  const int64_t head = ChunkOffsets(file)[1];
  file.resize(PayloadOf(file, head));
  file.insert(file.end(), frame.begin(), frame.end());
  Put<uint64_t>(&file, head + 16, frame.size());
  Put<uint64_t>(&file, head + 24, raw_size);
  Put<uint32_t>(&file, head + 40, 1);
  Reseal(&file, head);
  return file;
}

std::vector<std::byte> Frame(size_t raw_size, bool with_content_size) {
  const std::vector<std::byte> raw(raw_size);
  std::vector<std::byte> frame(ZSTD_compressBound(raw_size));
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, with_content_size);
  frame.resize(ZSTD_compress2(context, frame.data(), frame.size(), raw.data(), raw.size()));
  ZSTD_freeCCtx(context);
  return frame;
}

TEST(DamageTest, FramesThatLieAreSkipped) {
  const TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 0, 0, 1);
  const auto problem = [&](const std::vector<std::byte>& file) {
    ReadReport report;
    EXPECT_TRUE(ReadTrace(file, "x.kvt", {}, &report).tensors.empty());
    return report.problems.front();
  };
  // Zeros that would fill 64 MiB from 2 KiB; the same behind a modest claim; no size in the frame;
  // bytes after the frame; no frame at all.
  EXPECT_THAT(problem(FileAround(Frame(64 << 20, true), 64 << 20, spec)), HasSubstr("claims"));
  EXPECT_THAT(problem(FileAround(Frame(64 << 20, true), 1 << 20, spec)), HasSubstr("size stated"));
  EXPECT_THAT(problem(FileAround(Frame(1600, false), 1600, spec)), HasSubstr("size stated"));
  std::vector<std::byte> longer = Frame(1600, true);
  longer.resize(longer.size() + 1);
  EXPECT_THAT(problem(FileAround(longer, 1600, spec)), HasSubstr("size stated"));
  EXPECT_THAT(problem(FileAround(std::vector<std::byte>(64), 1600, spec)),
              HasSubstr("size stated"));
}

// Messages whose checksums are right and whose contents are not.
proto::Timeline MessageOf(const Timeline& timeline) {
  proto::Timeline written;
  format::EncodeTimeline(timeline, 0,
                         [&](const proto::Timeline& message, int64_t) { written = message; });
  return written;
}

proto::AccessLog MessageOf(const AccessLog& log) {
  proto::AccessLog written;
  format::EncodeAccessLog(log, 0,
                          [&](const proto::AccessLog& message, int64_t) { written = message; });
  return written;
}

TEST(DamageTest, TimelineMessagesThatLieAddNothing) {
  using Message = proto::Timeline;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::vector<std::function<void(Message&)>> lies = {
      [](Message& m) { m.mutable_op_delta()->RemoveLast(); },
      [](Message& m) { m.mutable_step_delta()->RemoveLast(); },
      [](Message& m) { m.mutable_layer()->RemoveLast(); },
      [](Message& m) { m.mutable_role()->RemoveLast(); },
      [](Message& m) { m.mutable_name()->RemoveLast(); },
      [](Message& m) { m.mutable_start_delta_ps()->RemoveLast(); },
      [](Message& m) { m.mutable_duration_ps()->RemoveLast(); },
      [](Message& m) { m.mutable_bytes()->RemoveLast(); },
      [](Message& m) { m.add_graph_node_delta(1); },
      [](Message& m) { m.mutable_flow_from_delta()->RemoveLast(); },
      [](Message& m) { m.set_lane(0, static_cast<uint32_t>(m.lanes_size())); },
      [](Message& m) { m.set_name(0, static_cast<uint32_t>(m.names_size())); },
      [](Message& m) { m.set_role(0, kRoles); },
      [](Message& m) { m.set_layer(0, 40'000); },
      [](Message& m) { m.set_duration_ps(0, -1); },
      [](Message& m) { m.set_start_delta_ps(0, 1), m.set_duration_ps(0, kMost); },
      [](Message& m) { m.mutable_lanes(0)->set_kind(99); },
      [](Message& m) {
        m.mutable_lanes(0)->set_kind(static_cast<uint32_t>(LaneKind::kCopyEngine) + 1);
      },
      [](Message& m) { m.set_origin(static_cast<uint32_t>(Timeline::Origin::kMeasured) + 1); },
      [](Message& m) {
        // More lanes than a row's lane can name.
        while (m.lanes_size() < (1 << 16) + 1) m.add_lanes();
        m.set_lane(0, 1 << 16);
      }};
  for (size_t i = 0; i < lies.size(); ++i) {
    SCOPED_TRACE(i);
    Message message = MessageOf(SampleTimeline());
    lies[i](message);
    Timeline timeline;
    EXPECT_NE(format::AppendTimeline(message, &timeline), "");
    EXPECT_EQ(timeline, Timeline());
  }
  // A later part of a timeline knows the lanes and names of those before.
  const std::vector<std::function<void(Message&)>> others = {
      [](Message& m) { m.mutable_lanes(0)->set_name("other"); },
      [](Message& m) { m.mutable_lanes(0)->set_compute(true); },
      [](Message& m) { m.mutable_lanes(0)->set_kind(static_cast<uint32_t>(LaneKind::kStream)); },
      [](Message& m) { m.set_names(0, "other"); }};
  for (size_t i = 0; i < others.size(); ++i) {
    SCOPED_TRACE(i);
    Message message = MessageOf(SampleTimeline());
    Timeline timeline;
    ASSERT_EQ(format::AppendTimeline(message, &timeline), "");
    others[i](message);
    EXPECT_NE(format::AppendTimeline(message, &timeline), "");
    EXPECT_EQ(timeline, SampleTimeline());
  }
}

TEST(DamageTest, LogMessagesThatLieAddNothing) {
  using Message = proto::AccessLog;
  const auto piece = [](Message& m) { return m.mutable_layers(1); };
  const std::vector<std::function<void(Message&)>> lies = {
      [](Message& m) { (*m.mutable_params())["more"] = "1"; },
      [](Message& m) { m.mutable_params()->begin()->second = "other"; },
      [](Message& m) { m.set_method("other"); }, [](Message& m) { m.set_trace_hash("other"); },
      [](Message& m) { m.set_unit("other"); }, [](Message& m) { m.set_unit_tokens(17); },
      [](Message& m) { m.set_prompt_tokens(8); }, [](Message& m) { m.set_steps(4); },
      [](Message& m) { m.set_steps(-1); }, [](Message& m) { m.set_kv_heads(3); },
      [](Message& m) { m.set_query_heads(5); }, [](Message& m) { m.set_model_layers(3); },
      [](Message& m) { m.set_layer_count(3); }, [&](Message& m) { piece(m)->set_heads(-1); },
      [&](Message& m) { piece(m)->set_steps(-1); },
      [&](Message& m) { piece(m)->set_first_step(-1); },
      [](Message& m) { m.mutable_layers(0)->set_heads(-1); },
      [](Message& m) {
        m.mutable_layers(0)->clear_attention_mass();
        m.mutable_layers(0)->set_steps(-1);
      },
      [&](Message& m) { piece(m)->set_first_step(1); },  // three steps from there on end behind
      [&](Message& m) { piece(m)->mutable_flags()->pop_back(); },
      [&](Message& m) { piece(m)->mutable_similarity()->RemoveLast(); },
      [&](Message& m) { piece(m)->mutable_attended_tokens()->RemoveLast(); },
      [&](Message& m) { piece(m)->mutable_evicted()->RemoveLast(); },
      [&](Message& m) { piece(m)->mutable_cached_tokens()->RemoveLast(); },
      [&](Message& m) { piece(m)->mutable_attention_mass()->RemoveLast(); },
      [&](Message& m) { piece(m)->mutable_output_error()->RemoveLast(); },
      // A cell without a list, the ids in number as before; and more ids than the lists hold.
      [&](Message& m) { piece(m)->mutable_recalled_now()->mutable_counts()->RemoveLast(); },
      [&](Message& m) { piece(m)->mutable_selected()->add_id_deltas(1); }};
  for (size_t i = 0; i < lies.size(); ++i) {
    SCOPED_TRACE(i);
    const Message whole = MessageOf(SampleLog());
    format::AccessLogBuilder builder(whole);
    Message message = whole;
    lies[i](message);
    EXPECT_NE(builder.Add(message), "");
    ASSERT_EQ(builder.Add(whole), "");
    std::vector<std::string> problems;
    EXPECT_EQ(builder.Finish(&problems), SampleLog());
    EXPECT_THAT(problems, IsEmpty());
  }
}

// A file of these chunks, each of a kind, with a description and a payload, as a writer packs them.
struct Packed {
  format::ChunkKind kind;
  std::string meta, payload;
};
std::vector<std::byte> FileOf(const std::vector<Packed>& chunks) {
  const auto header = format::EncodeFileHeader();
  std::vector<std::byte> file(header.begin(), header.end());
  format::ChunkPacker packer;
  uint32_t sequence = 0;
  for (const Packed& chunk : chunks) {
    const auto bytes =
        packer.Pack(chunk.kind, sequence++, chunk.meta, std::as_bytes(std::span(chunk.payload)));
    file.insert(file.end(), bytes.begin(), bytes.end());
  }
  return file;
}

TEST(DamageTest, WhatBeginsWithALieBeginsWithTheNextChunk) {
  const proto::Timeline timeline = MessageOf(SampleTimeline());
  proto::Timeline lying_timeline = timeline;
  lying_timeline.mutable_bytes()->RemoveLast();
  const proto::AccessLog log = MessageOf(SampleLog());
  proto::AccessLog lying_log = log;
  lying_log.mutable_layers(1)->mutable_flags()->pop_back();
  using enum format::ChunkKind;
  ReadReport report;
  const Trace trace = ReadTrace(FileOf({{kTimeline, "", lying_timeline.SerializeAsString()},
                                        {kTimeline, "", timeline.SerializeAsString()},
                                        {kAccessLog, "", lying_log.SerializeAsString()},
                                        {kAccessLog, "", log.SerializeAsString()}}),
                                "x.kvt", {}, &report);
  EXPECT_THAT(trace.timelines, ElementsAre(SampleTimeline()));
  EXPECT_THAT(trace.access_logs, ElementsAre(SampleLog()));
  EXPECT_EQ(report.damaged, 2);
  EXPECT_EQ(report.records, SampleTimeline().rows() + 6);
  // And nothing where nothing follows.
  const Trace alone = ReadTrace(FileOf({{kTimeline, "", lying_timeline.SerializeAsString()},
                                        {kAccessLog, "", lying_log.SerializeAsString()}}),
                                "x.kvt");
  EXPECT_THAT(alone.timelines, IsEmpty());
  EXPECT_THAT(alone.access_logs, IsEmpty());
}

TEST(DamageTest, ElementsThatAreNotThoseDescribedAreLeftOut) {
  const TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 0, 0, 3);
  std::vector<std::byte> encoded;
  const std::string meta = format::EncodeTensor(spec, SampleTensor(spec).data, spec, &encoded);
  std::string payload(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  const auto tensors = [&] {
    ReadReport report;
    const Trace trace =
        ReadTrace(FileOf({{format::ChunkKind::kTensor, meta, payload}}), "x.kvt", {}, &report);
    EXPECT_EQ(report.damaged, trace.tensors.empty() ? 1 : 0);
    return trace.tensors.size();
  };
  EXPECT_EQ(tensors(), 1u);
  payload[5] ^= 1;  // the chunk's own checksum is of what it holds
  EXPECT_EQ(tensors(), 0u);
}

TEST(DamageTest, AChunkBehindAnyNumberOfStrayBytesIsFound) {
  // The search goes a MiB at a time; heads lie across its ends.
  const std::vector<std::byte> file = SampleFile();
  for (const int64_t shift : {0, 1, 4, 7, 8, 9, 30, 56, 60, 90, 200, 4096}) {
    SCOPED_TRACE(shift);
    std::vector<std::byte> longer(file.begin(), file.begin() + 16);
    longer.resize(longer.size() + (1 << 20) - shift);
    longer.insert(longer.end(), file.begin() + 16, file.end());
    ReadReport report;
    const Trace trace = ReadTrace(longer, "x.kvt", {}, &report);
    ExpectNoLies(trace);
    EXPECT_EQ(trace.tensors.size(), 4u);
    EXPECT_EQ(report.chunks, std::ssize(ChunkOffsets(file)) - 1);
  }
}

TEST(DamageTest, AChunkThatClaimsToEndBehindTheFileIsDamagedWhereOthersFollow) {
  std::vector<std::byte> file = SampleFile();
  const int64_t timeline = ChunkOffsets(file)[9];
  Put<uint64_t>(&file, timeline + 16, 1 << 20);
  Reseal(&file, timeline);
  ReadReport report;
  EXPECT_THAT(ReadTrace(file, "x.kvt", {}, &report).timelines, IsEmpty());
  EXPECT_EQ(report.damaged, 1);
  EXPECT_FALSE(report.truncated);
}

// Heads within payloads within payloads: each would have all that is behind it checked.
TEST(DamageTest, NestedHeadsTakeLinearTime) {
  const std::vector<std::byte> sample = SampleFile();
  const int64_t timeline = ChunkOffsets(sample)[9];
  const std::vector<std::byte> head(sample.begin() + timeline,
                                    sample.begin() + PayloadOf(sample, timeline));
  const auto seconds = [&](int64_t heads) {
    std::vector<std::byte> file(sample.begin(), sample.begin() + 16);
    const int64_t stride = std::ssize(head) + 9;  // no head where one is due
    file.resize(static_cast<size_t>(16 + heads * stride + 100));
    for (int64_t i = 0; i < heads; ++i) {
      const int64_t at = 16 + i * stride;
      std::copy(head.begin(), head.end(), file.begin() + at);
      Put<uint64_t>(&file, at + 16, static_cast<uint64_t>(std::ssize(file) - 50 - at) - 56);
      Put(&file, at + 40, static_cast<uint32_t>(format::Codec::kZstd));  // of whatever raw size
      Put<uint64_t>(&file, at + 48, format::Checksum(std::span(file).subspan(at, 48)));
    }
    const auto begin = std::chrono::steady_clock::now();
    ReadReport report;
    ReadTrace(file, "x.kvt", {}, &report);
    EXPECT_EQ(report.damaged, heads);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  seconds(1000);
  const double few = seconds(4000), many = seconds(40000);
  EXPECT_LT(many, 40 * few + 0.1);  // ten times as many; quadratic: a hundredfold
}

TEST(DamageTest, ALayerWhoseHeadsChangeOnTheWayIsLeftOut) {
  // The first of two messages holds two steps of the layer, the second a third of one head.
  proto::AccessLog first = MessageOf(SampleLog()), second = first;
  second.clear_layers();
  AccessLog log = SampleLog();
  log.layers.erase(log.layers.begin());
  log.layers[0].heads = 1;
  log.steps = 6;
  log.layers[0].attention_mass.assign(6, 0.5f);
  log.layers[0].output_error.assign(6, 0.5f);
  proto::LayerAccess other = MessageOf(log).layers(0);
  log.layers[0].heads = 3;
  log.steps = 2;
  log.layers[0].attention_mass.assign(2, 0.5f);
  log.layers[0].output_error.assign(2, 0.5f);
  const proto::LayerAccess three = MessageOf(log).layers(0);
  first.set_steps(8), second.set_steps(8);
  first.set_layer_count(1), second.set_layer_count(1);
  first.clear_layers();
  *first.add_layers() = three;
  other.set_first_step(2);
  *second.add_layers() = other;
  format::AccessLogBuilder builder(first);
  EXPECT_EQ(builder.Add(first), "");
  EXPECT_EQ(builder.Add(second), "");
  std::vector<std::string> problems;
  EXPECT_THAT(builder.Finish(&problems).layers, IsEmpty());
  EXPECT_THAT(problems, ElementsAre(HasSubstr("0 of 1 layers are whole")));
}

TEST(DamageTest, DescriptionsOfTensorsThatLieAreRefused) {
  using Message = proto::Tensor;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int32_t kMany = std::numeric_limits<int32_t>::max();
  const TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 0, 7, 3);
  std::vector<std::byte> encoded;
  const std::string meta = format::EncodeTensor(spec, SampleTensor(spec).data, spec, &encoded);
  const auto fault = [&](const std::function<void(Message&)>& lie, uint64_t bytes) {
    Message message;
    message.ParseFromString(meta);
    lie(message);
    format::TensorMeta parsed;
    return format::ParseTensorMeta(message.SerializeAsString(), bytes, &parsed);
  };
  const uint64_t bytes = encoded.size();
  EXPECT_EQ(fault([](Message&) {}, bytes), "");
  EXPECT_THAT(fault([](Message&) {}, bytes - 1), HasSubstr("holds"));
  const std::vector<std::function<void(Message&)>> lies = {
      [](Message& m) { m.set_kind(m.kind() + 256); },
      [](Message& m) { m.set_dtype(m.dtype() + 256); },
      [](Message& m) { m.set_kind(99); },
      [](Message& m) { m.set_dtype(99); },
      [](Message& m) { m.set_layer(-1); },
      [](Message& m) { m.set_heads(-2), m.set_head_dim(-4); },
      [](Message& m) { m.set_first_token(-1); },
      [](Message& m) { m.set_first_token(kMost - 1); },
      [](Message& m) { m.set_encoding(static_cast<Message::Encoding>(7)); }};
  for (size_t i = 0; i < lies.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_NE(fault(lies[i], bytes), "");
  }
  // Of no bytes, or of so many that their number wraps to what is there.
  EXPECT_NE(fault([](Message& m) { m.set_head_dim(0); }, 0), "");
  EXPECT_NE(fault([](Message& m) { m.set_tokens(-3); }, -bytes), "");
  EXPECT_NE(fault([](Message& m) { m.set_tokens(m.tokens() + (int64_t{1} << 60)); }, bytes), "");
  EXPECT_THAT(fault([](Message& m) { m.set_heads(kMany), m.set_head_dim(kMany); }, bytes),
              HasSubstr("more elements"));
}

TEST(DamageTest, UnknownKindOfChunkIsSkipped) {
  std::vector<std::byte> file = SampleFile();
  const int64_t head = ChunkOffsets(file)[9];
  Put<uint32_t>(&file, head + 8, 99);
  Reseal(&file, head);
  ReadReport report;
  const Trace trace = ReadTrace(file, "x.kvt", {}, &report);
  EXPECT_THAT(report.problems.front(), HasSubstr("unknown kind 99; skipped"));
  EXPECT_THAT(trace.timelines, IsEmpty());
  EXPECT_EQ(trace.access_logs.size(), 1u);
}

TEST(DamageTest, LogThatLostACutIsLeftOut) {
  AccessLog log = SampleLog();
  log.steps = 100'000;
  log.layers[1].heads = 8;
  LayerAccess& layer = log.layers[1];
  layer = LayerAccess();
  layer.layer = 1;
  layer.heads = 8;
  layer.flags.assign(800'000, 1);
  layer.attended_tokens.assign(800'000, 100);
  log.layers[0].attention_mass.assign(100'000, 1);
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(log);
  writer.Finish();
  const std::vector<int64_t> offsets = ChunkOffsets(file);
  ASSERT_GT(offsets.size(), 4u);
  file[PayloadOf(file, offsets[2])] ^= std::byte{1};
  ReadReport report;
  const Trace trace = ReadTrace(file, "x.kvt", {}, &report);
  EXPECT_THAT(report.problems, Contains(HasSubstr("1 of 2 layers are whole")));
  ASSERT_EQ(trace.access_logs.size(), 1u);
  ASSERT_EQ(trace.access_logs[0].layers.size(), 1u);
  EXPECT_EQ(trace.access_logs[0].layers[0], log.layers[0]);
}

TEST(DamageTest, LogWhoseChunksChangedPlacesIsLeftOut) {
  AccessLog log;
  log.steps = 300'000;
  log.layers.emplace_back();
  log.layers[0].heads = 4;
  for (int cell = 0; cell < 4 * log.steps; ++cell) {
    log.layers[0].attended_tokens.push_back(cell % 1000);
  }
  std::vector<std::byte> file;
  TraceWriter writer(&file, {});
  writer.Write(log);
  writer.Finish();
  const std::vector<int64_t> offsets = ChunkOffsets(file);
  ASSERT_GT(offsets.size(), 5u);
  std::rotate(file.begin() + offsets[1], file.begin() + offsets[2], file.begin() + offsets[3]);
  ReadReport report;
  const Trace trace = ReadTrace(file, "x.kvt", {}, &report);
  EXPECT_FALSE(report.problems.empty());
  ASSERT_EQ(trace.access_logs.size(), 1u);
  EXPECT_TRUE(trace.access_logs[0].layers.empty());
}

}  // namespace
}  // namespace stallcast::traces
