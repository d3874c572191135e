// The fuzzer's corpus, replayed: seeds, and files that once failed.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/traces/sample.h"
#include "traces/common/error.h"
#include "traces/format/trace_file.h"

namespace stallcast::traces {
namespace {

TEST(CorpusTest, EveryFileIsReadOrRefused) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(STALLCAST_SOURCE_DIR) / "tests/traces/corpus")) {
    SCOPED_TRACE(entry.path());
    ++files;
    try {
      ReadReport report;
      const Trace trace = ReadTrace(entry.path(), {}, &report);
      for (const Tensor& tensor : trace.tensors) {
        EXPECT_EQ(std::ssize(tensor.data), tensor.spec.bytes());
      }
      for (const Timeline& timeline : trace.timelines) EXPECT_EQ(FirstFault(timeline), "");
      for (const AccessLog& log : trace.access_logs) EXPECT_EQ(FirstFault(log), "");
    } catch (const Error&) {
    }
  }
  EXPECT_GE(files, 10);
}

TEST(CorpusTest, SeedsOfTodayAreStillRead) {
  // A file of format version 1 must stay readable by every later reader.
  ReadReport report;
  const Trace trace = ReadTrace(
      std::filesystem::path(STALLCAST_SOURCE_DIR) / "tests/traces/corpus/whole.kvt", {}, &report);
  EXPECT_EQ(report.problems, std::vector<std::string>());
  EXPECT_EQ(trace.tensors.size(), 4u);
  EXPECT_EQ(trace.timelines.size(), 1u);
  EXPECT_EQ(trace.access_logs.size(), 1u);
}

TEST(CorpusTest, ALogWithoutLaterColumnsIsRead) {
  const Trace trace = ReadTrace(std::filesystem::path(STALLCAST_SOURCE_DIR) /
                                "tests/traces/corpus/access_log_without_later_columns.kvt");
  AccessLog want = SampleLog();
  want.model_layers = 0;
  want.sets_of = SetsOf::kKvHead;  // as many heads as the log has KV heads
  for (LayerAccess& layer : want.layers) {
    layer.evicted.clear();
    layer.cached_tokens.clear();
    layer.output_error.clear();
  }
  EXPECT_EQ(trace.access_logs, std::vector<AccessLog>{want});
}

}  // namespace
}  // namespace stallcast::traces
