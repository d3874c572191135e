#include "traces/convert/trim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/scratch_folder.h"
#include "tests/traces/sample.h"
#include "traces/common/error.h"

namespace stallcast::traces {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kPrompt = 20, kSteps = 6;

// Two layers of 2 KV heads and 6 query heads; keys and values of all tokens, queries from 16 on.
void WriteWholeTrace(const std::filesystem::path& path) {
  proto::TraceInfo info = SampleInfo();
  info.set_prompt_tokens(kPrompt);
  info.set_decode_steps(kSteps);
  TraceWriter writer(path, info);
  for (const int layer : {3, 9}) {
    for (const TensorKind kind : {TensorKind::kQuery, TensorKind::kKey, TensorKind::kValue}) {
      const int64_t first = kind == TensorKind::kQuery ? 16 : 0;
      TensorSpec spec = SampleSpec(kind, DType::kBf16, layer, first, kPrompt + kSteps - first);
      spec.heads = kind == TensorKind::kQuery ? 6 : 2;
      writer.Write(spec, SampleTensor(spec).data);
    }
  }
  writer.Write(SampleTimeline());
  writer.Finish();
}

class TrimTest : public testing::Test {
 protected:
  TrimTest() { WriteWholeTrace(in_); }
  Trace Trimmed(const TrimSpec& spec) {
    EXPECT_THAT(Trim(in_, spec, out_), testing::IsEmpty());
    return ReadTrace(out_, {.strict = true});
  }

  ScratchFolder folder_;
  std::filesystem::path in_ = folder_ / "in.kvt", out_ = folder_ / "out.kvt";
};

TEST_F(TrimTest, KeepsEverythingUnlessAsked) {
  const Trace whole = ReadTrace(in_), trimmed = Trimmed({});
  ASSERT_EQ(trimmed.tensors.size(), whole.tensors.size());
  for (size_t i = 0; i < whole.tensors.size(); ++i) {
    EXPECT_EQ(trimmed.tensors[i].spec, whole.tensors[i].spec);
    EXPECT_EQ(trimmed.tensors[i].data, whole.tensors[i].data);
  }
  EXPECT_TRUE(trimmed.timelines.empty());
  EXPECT_EQ(trimmed.info.SerializeAsString(), whole.info.SerializeAsString());
}

TEST_F(TrimTest, EveryRowThatStaysIsTheWholeTraces) {
  const Trace whole = ReadTrace(in_);
  const Trace trimmed = Trimmed({.layers = {9}, .kv_heads = {1}, .prompt_tokens = 8, .steps = 2});
  EXPECT_THAT(trimmed.Layers(), ElementsAre(9));
  EXPECT_EQ(trimmed.info.prompt_tokens(), 8);
  EXPECT_EQ(trimmed.info.decode_steps(), 2);
  ASSERT_EQ(trimmed.tensors.size(), 3U);
  for (const Tensor& tensor : trimmed.tensors) {
    SCOPED_TRACE(Name(tensor.spec.kind));
    const Tensor& from = *whole.Find(tensor.spec.kind, 9);
    const int group = tensor.spec.kind == TensorKind::kQuery ? 3 : 1;
    EXPECT_EQ(tensor.spec.heads, group);
    EXPECT_EQ(tensor.spec.end_token(), 10);
    EXPECT_EQ(tensor.spec.first_token, group == 3 ? 4 : 0);
    for (int head = 0; head < tensor.spec.heads; ++head) {
      for (int64_t token = tensor.spec.first_token; token < tensor.spec.end_token(); ++token) {
        const auto row = tensor.Rows(head, token, 1), was = from.Rows(group + head, token + 12, 1);
        EXPECT_EQ(std::memcmp(row.data(), was.data(), row.size()), 0) << head << " " << token;
      }
    }
  }
  ASSERT_EQ(trimmed.info.notes_size(), 1);
}

TEST_F(TrimTest, LeavesValuesOut) {
  EXPECT_EQ(Trimmed({.values = false}).Find(TensorKind::kValue, 3), nullptr);
}

TEST_F(TrimTest, RefusesWhatTheTraceDoesNotHave) {
  for (const TrimSpec& spec :
       {TrimSpec{.layers = {4}}, TrimSpec{.kv_heads = {2}}, TrimSpec{.kv_heads = {-1}},
        TrimSpec{.prompt_tokens = kPrompt + 1}, TrimSpec{.steps = kSteps + 1}}) {
    EXPECT_THROW(Trim(in_, spec, out_), Error);
  }
}

TEST_F(TrimTest, RefusesATraceWithoutAPrompt) {
  proto::TraceInfo info = SampleInfo();
  info.clear_prompt_tokens();
  TraceWriter writer(in_, info);
  for (const TensorKind kind : {TensorKind::kQuery, TensorKind::kKey}) {
    const TensorSpec spec = SampleSpec(kind, DType::kBf16, 0, 0, 5);
    writer.Write(spec, SampleTensor(spec).data);
  }
  writer.Finish();
  EXPECT_THROW(Trim(in_, {}, out_), Error);
}

TEST_F(TrimTest, WritesWhatIsIntactAndSaysWhatIsNot) {
  std::filesystem::resize_file(in_, std::filesystem::file_size(in_) - 100);
  const std::vector<std::string> problems = Trim(in_, {}, out_);
  ASSERT_FALSE(problems.empty());
  EXPECT_THAT(problems.front(), HasSubstr("truncated"));
  EXPECT_NE(ReadTrace(out_, {.strict = true}).Find(TensorKind::kKey, 9), nullptr);
}

}  // namespace
}  // namespace stallcast::traces
