// The recorder through its C interface: what goes in comes back bit for bit, in whatever memory
// order and portions it came.
#include "capture/recorder_c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/capture/recording.h"
#include "traces/format/trace_file.h"

namespace stallcast::capture {
namespace {

using testing::Block;
using testing::ExpectTensor;
using testing::kLayers;
using testing::Layout;
using testing::Recording;
using testing::ScratchFile;
using testing::SmallModel;

class RecorderLayouts : public ::testing::TestWithParam<std::tuple<Layout, int>> {};

TEST_P(RecorderLayouts, StridedRowsComeBackBitForBit) {
  const auto [layout, dtype] = GetParam();
  const ScratchFile file;
  {
    Recording recording(file.path());
    ASSERT_EQ(recording.status(), STALLCAST_OK) << stallcast_last_error();
    for (const int kind : {STALLCAST_QUERY, STALLCAST_KEY, STALLCAST_VALUE}) {
      ASSERT_EQ(recording.Write(kind, 1, 0, 100, layout, dtype), STALLCAST_OK)
          << stallcast_last_error();
      ASSERT_EQ(recording.Write(kind, 1, 100, 37, layout, dtype), STALLCAST_OK);
    }
    ASSERT_EQ(recording.Close(), STALLCAST_OK) << stallcast_last_error();
  }
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  ExpectTensor(trace, STALLCAST_QUERY, 1, 137 - 64, 137, dtype);
  ExpectTensor(trace, STALLCAST_KEY, 1, 0, 137, dtype);
  ExpectTensor(trace, STALLCAST_VALUE, 1, 0, 137, dtype);
}

INSTANTIATE_TEST_SUITE_P(
    All, RecorderLayouts,
    ::testing::Combine(::testing::Values(Layout::kHeadsFirst, Layout::kTokensFirst, Layout::kSlice),
                       ::testing::Values(STALLCAST_BF16, STALLCAST_FP16, STALLCAST_FP32)));

TEST(RecorderC, DecodedTokensOneByOneAfterAPromptInPortions) {
  const ScratchFile file;
  constexpr int64_t kPrompt = 1000;
  constexpr int64_t kEnd = kPrompt + 200;
  {
    Recording recording(file.path());
    std::mt19937 random(1);
    for (int64_t token = 0; token < kPrompt;) {
      const int64_t count = std::min<int64_t>(kPrompt - token, 1 + random() % 150);
      for (int layer = 0; layer < kLayers; ++layer) {
        ASSERT_EQ(recording.WriteBoth(layer, token, count), STALLCAST_OK) << stallcast_last_error();
      }
      token += count;
    }
    ASSERT_EQ(recording.BeginDecode(kPrompt), STALLCAST_OK) << stallcast_last_error();
    for (int64_t token = kPrompt; token < kEnd; ++token) {
      for (int layer = 0; layer < kLayers; ++layer) {
        ASSERT_EQ(recording.WriteBoth(layer, token, 1), STALLCAST_OK) << stallcast_last_error();
      }
    }
    ASSERT_EQ(recording.Close(), STALLCAST_OK) << stallcast_last_error();
  }
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  EXPECT_EQ(trace.info.prompt_tokens(), kPrompt);
  EXPECT_EQ(trace.info.decode_steps(), kEnd - kPrompt);
  for (int layer = 0; layer < kLayers; ++layer) {
    ExpectTensor(trace, STALLCAST_QUERY, layer, kPrompt - 64, kEnd);
    ExpectTensor(trace, STALLCAST_KEY, layer, 0, kEnd);
  }
}

TEST(RecorderC, PromptQueriesBeforeTheWindowMayBeLeftOut) {
  const ScratchFile file;
  {
    Recording recording(file.path(), {10, 64, 1 << 20});
    // The caller hands over the last 10 of each portion, as the hook does.
    for (const auto& [first, tokens] : {std::pair<int64_t, int64_t>{0, 50}, {50, 4}, {54, 30}}) {
      const int64_t kept = std::min<int64_t>(tokens, 10);
      ASSERT_EQ(recording.Write(STALLCAST_KEY, 0, first, tokens), STALLCAST_OK);
      ASSERT_EQ(recording.Write(STALLCAST_QUERY, 0, first + tokens - kept, kept), STALLCAST_OK)
          << stallcast_last_error();
    }
    ASSERT_EQ(recording.BeginDecode(84), STALLCAST_OK) << stallcast_last_error();
    ASSERT_EQ(recording.WriteBoth(0, 84, 1), STALLCAST_OK) << stallcast_last_error();
    ASSERT_EQ(recording.Close(), STALLCAST_OK);
  }
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  ExpectTensor(trace, STALLCAST_QUERY, 0, 74, 85);
}

TEST(RecorderC, AWindowSpansPortionsShorterThanItself) {
  const ScratchFile file;
  {
    Recording recording(file.path(), {10, 64, 1 << 20});
    for (int64_t token = 0; token < 21; token += 3) {
      ASSERT_EQ(recording.WriteBoth(0, token, 3), STALLCAST_OK);
      // A flush must not write a window that is still moving.
      ASSERT_EQ(stallcast_recorder_flush(recording.get()), STALLCAST_OK);
    }
    ASSERT_EQ(recording.Close(), STALLCAST_OK);
  }
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  ExpectTensor(trace, STALLCAST_QUERY, 0, 11, 21);
  ExpectTensor(trace, STALLCAST_KEY, 0, 0, 21);
  EXPECT_EQ(trace.info.prompt_tokens(), 21);
  EXPECT_EQ(trace.info.decode_steps(), 0);
}

TEST(RecorderC, NoPromptQueriesWithAWindowOfZero) {
  const ScratchFile file;
  {
    Recording recording(file.path(), {0, 64, 1 << 20});
    ASSERT_EQ(recording.Write(STALLCAST_KEY, 0, 0, 20), STALLCAST_OK);
    ASSERT_EQ(recording.BeginDecode(20), STALLCAST_OK);
    ASSERT_EQ(recording.WriteBoth(0, 20, 1), STALLCAST_OK) << stallcast_last_error();
    ASSERT_EQ(recording.Close(), STALLCAST_OK);
  }
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  ExpectTensor(trace, STALLCAST_QUERY, 0, 20, 21);
}

TEST(RecorderC, TheDescriptionComesBackWhole) {
  const ScratchFile file;
  {
    const double frequencies[] = {1.0, 0.1, 0.01};
    const stallcast_pair software[] = {{"torch", "2.11"}, {"driver", "580"}, {nullptr, nullptr}};
    const stallcast_pair parameters[] = {{"seed", "7"}, {nullptr, nullptr}};
    stallcast_trace_info info = SmallModel();
    info.hidden = 512;
    info.intermediate = 1408;
    info.vocabulary = 8192;
    info.inverse_frequencies = frequencies;
    info.inverse_frequency_count = 3;
    info.rope_theta = 5e5;
    info.rope_type = "llama3";
    info.rope_attention_scaling = 1.25;
    info.softmax_scale = 0.125;
    info.machine = "one GPU";
    info.provenance = "a test";
    info.created = "2026-01-02T03:04:05Z";
    info.software = software;
    info.parameters = parameters;
    Recording recording(file.path(), {64, 64, 1 << 20}, info);
    ASSERT_EQ(recording.status(), STALLCAST_OK) << stallcast_last_error();
    ASSERT_EQ(stallcast_recorder_set_parameter(recording.get(), "loss", "1.4"), STALLCAST_OK);
    ASSERT_EQ(recording.Close(), STALLCAST_OK);
  }
  const traces::proto::TraceInfo info = traces::ReadTrace(file.path(), {.strict = true}).info;
  const traces::proto::Model& model = info.model();
  EXPECT_EQ(model.name(), "small");
  EXPECT_EQ(model.layers(), kLayers);
  EXPECT_EQ(model.query_heads(), testing::kQueryHeads);
  EXPECT_EQ(model.kv_heads(), testing::kKvHeads);
  EXPECT_EQ(model.head_dim(), testing::kHeadDim);
  EXPECT_EQ(model.hidden(), 512);
  EXPECT_EQ(model.intermediate(), 1408);
  EXPECT_EQ(model.vocabulary(), 8192);
  EXPECT_EQ(model.softmax_scale(), 0.125);
  EXPECT_EQ(model.rope().theta(), 5e5);
  EXPECT_EQ(model.rope().type(), "llama3");
  EXPECT_EQ(model.rope().attention_scaling(), 1.25);
  ASSERT_EQ(model.rope().inverse_frequencies_size(), 3);
  EXPECT_EQ(model.rope().inverse_frequencies(2), 0.01);
  EXPECT_EQ(info.machine(), "one GPU");
  EXPECT_EQ(info.provenance(), "a test");
  EXPECT_EQ(info.created(), "2026-01-02T03:04:05Z");
  EXPECT_EQ(info.software().at("driver"), "580");
  EXPECT_EQ(info.parameters().at("seed"), "7");
  EXPECT_EQ(info.parameters().at("loss"), "1.4");
}

TEST(RecorderC, ASecondPromptInTheSequenceIsPrompt) {
  const ScratchFile file;
  {
    Recording recording(file.path(), {10, 64, 1 << 20});
    ASSERT_EQ(recording.WriteBoth(0, 0, 50), STALLCAST_OK);
    ASSERT_EQ(recording.BeginDecode(50), STALLCAST_OK);
    for (int64_t token = 50; token < 55; ++token) recording.WriteBoth(0, token, 1);
    ASSERT_EQ(recording.WriteBoth(0, 55, 20), STALLCAST_OK);
    ASSERT_EQ(recording.BeginDecode(75), STALLCAST_OK) << stallcast_last_error();
    for (int64_t token = 75; token < 78; ++token) recording.WriteBoth(0, token, 1);
    ASSERT_EQ(recording.Close(), STALLCAST_OK) << stallcast_last_error();
  }
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  EXPECT_EQ(trace.info.prompt_tokens(), 75);
  EXPECT_EQ(trace.info.decode_steps(), 3);
  ExpectTensor(trace, STALLCAST_QUERY, 0, 40, 78);
  ExpectTensor(trace, STALLCAST_KEY, 0, 0, 78);
}

TEST(RecorderC, WhatLayersAndExpertsDoComesBack) {
  const ScratchFile file;
  {
    Recording recording(file.path());
    const double sinks[] = {0.5, -1, 2, 3};
    stallcast_attention attention = {};
    attention.window = 32;
    attention.soft_cap = 50;
    attention.softmax_scale = 0.25;
    attention.sinks = sinks;
    attention.sink_count = 4;
    ASSERT_EQ(stallcast_recorder_set_attention(recording.get(), 1, &attention), STALLCAST_OK)
        << stallcast_last_error();
    const stallcast_experts experts = {3, 2, 96};
    ASSERT_EQ(stallcast_recorder_set_experts(recording.get(), &experts), STALLCAST_OK);
    const int64_t before[] = {9, 0, 1}, prompt[] = {10, 20, 30}, decode[] = {1, 2, 3};
    for (const int64_t* counts : {before, prompt}) {
      ASSERT_EQ(stallcast_recorder_set_expert_use(recording.get(), 2, 3, counts, decode),
                STALLCAST_OK);
    }
    ASSERT_EQ(recording.Close(), STALLCAST_OK);
  }
  const traces::proto::TraceInfo info = traces::ReadTrace(file.path(), {.strict = true}).info;
  ASSERT_EQ(info.model().attention_size(), kLayers);
  EXPECT_EQ(info.model().attention(0).window(), 0);
  const traces::proto::Attention& attention = info.model().attention(1);
  EXPECT_EQ(attention.window(), 32);
  EXPECT_EQ(attention.soft_cap(), 50);
  EXPECT_EQ(attention.softmax_scale(), 0.25);
  ASSERT_EQ(attention.sinks_size(), 4);
  EXPECT_EQ(attention.sinks(2), 2);
  EXPECT_EQ(info.model().experts().count(), 3);
  EXPECT_EQ(info.model().experts().per_token(), 2);
  EXPECT_EQ(info.model().experts().intermediate(), 96);
  ASSERT_EQ(info.expert_use_size(), 1);
  EXPECT_EQ(info.expert_use(0).layer(), 2);
  EXPECT_EQ(info.expert_use(0).prompt(1), 20);
  EXPECT_EQ(info.expert_use(0).decode(2), 3);
}

TEST(RecorderC, LayersMayHaveHeadsOfTheirOwn) {
  const ScratchFile file;
  {
    Recording recording(file.path());
    stallcast_attention attention = {};
    attention.kv_heads = 1;
    ASSERT_EQ(stallcast_recorder_set_attention(recording.get(), 1, &attention), STALLCAST_OK);
    Block block(STALLCAST_KEY, STALLCAST_BF16, 1, 0, 10);
    block.rows.heads = 1;
    EXPECT_EQ(stallcast_recorder_write(recording.get(), &block.rows), STALLCAST_OK)
        << stallcast_last_error();
    Block other(STALLCAST_KEY, STALLCAST_BF16, 0, 0, 10);
    other.rows.heads = 1;
    EXPECT_EQ(stallcast_recorder_write(recording.get(), &other.rows), STALLCAST_USAGE);
    ASSERT_EQ(recording.Close(), STALLCAST_OK);
  }
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  ASSERT_NE(trace.Find(traces::TensorKind::kKey, 1), nullptr);
  EXPECT_EQ(trace.Find(traces::TensorKind::kKey, 1)->spec.heads, 1);
}

TEST(RecorderC, ReadsRowsBack) {
  const ScratchFile file;
  {
    Recording recording(file.path());
    ASSERT_EQ(recording.Write(STALLCAST_KEY, 2, 0, 70), STALLCAST_OK);
    ASSERT_EQ(recording.Close(), STALLCAST_OK);
  }
  stallcast_rows rows = {};
  rows.kind = STALLCAST_KEY;
  rows.layer = 2;
  ASSERT_EQ(stallcast_trace_read(file.path().c_str(), &rows, nullptr, 0), STALLCAST_OK)
      << stallcast_last_error();
  EXPECT_EQ(rows.tokens, 70);
  const Block expected(STALLCAST_KEY, STALLCAST_BF16, 2, 0, 70);
  std::vector<std::byte> data(expected.memory.size());
  const auto size = static_cast<int64_t>(data.size());
  EXPECT_EQ(stallcast_trace_read(file.path().c_str(), &rows, data.data(), size - 1),
            STALLCAST_USAGE);
  ASSERT_EQ(stallcast_trace_read(file.path().c_str(), &rows, data.data(), size), STALLCAST_OK);
  EXPECT_EQ(data, expected.memory);
  rows.layer = 3;
  EXPECT_EQ(stallcast_trace_read(file.path().c_str(), &rows, nullptr, 0), STALLCAST_USAGE);
}

TEST(RecorderC, RecordersOfSeveralThreadsAreIndependent) {
  const ScratchFile file;
  const auto path = [&](int i) { return file.path() + std::to_string(i); };
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Recording recording(path(i), {64, 16, 4096});
      for (int64_t token = 0; token < 500; token += 5) {
        ASSERT_EQ(recording.Write(STALLCAST_KEY, i, token, 5), STALLCAST_OK);
      }
      ASSERT_EQ(recording.Close(), STALLCAST_OK);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 4; ++i) {
    ExpectTensor(traces::ReadTrace(path(i), {.strict = true}), STALLCAST_KEY, i, 0, 500);
  }
}

TEST(RecorderC, FreeWithoutCloseKeepsTheRowsAndReadsAsTruncated) {
  const ScratchFile file;
  {
    Recording recording(file.path());
    ASSERT_EQ(recording.WriteBoth(0, 0, 90), STALLCAST_OK);
  }
  traces::ReadReport report;
  const traces::Trace trace = traces::ReadTrace(file.path(), {}, &report);
  EXPECT_TRUE(report.truncated);
  ExpectTensor(trace, STALLCAST_KEY, 0, 0, 90);
  ExpectTensor(trace, STALLCAST_QUERY, 0, 26, 90);
}

}  // namespace
}  // namespace stallcast::capture
