// Wrong calls, full disks and killed processes: one line of text, never a crash, and nothing lost
// that was written.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "capture/recorder_c.h"
#include "tests/capture/recording.h"
#include "traces/format/trace_file.h"

namespace stallcast::capture {
namespace {

using testing::Block;
using testing::ExpectTensor;
using testing::kHeadDim;
using testing::kLayers;
using testing::Recording;
using testing::ScratchFile;
using testing::SmallModel;

/// Expects a failure whose message is one line that names `what` and holds a remedy.
void ExpectError(int status, int expected, const std::string& what) {
  EXPECT_EQ(status, expected) << what;
  const std::string text = stallcast_last_error();
  EXPECT_NE(text.find(what), std::string::npos) << text;
  EXPECT_NE(text.find("; "), std::string::npos) << "no remedy: " << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST(RecorderFaults, NullPointers) {
  const ScratchFile file;
  const stallcast_trace_info info = SmallModel();
  stallcast_recorder* out = nullptr;
  ExpectError(stallcast_recorder_open(nullptr, &info, nullptr, &out), STALLCAST_USAGE,
              "path is null");
  EXPECT_EQ(out, nullptr);
  ExpectError(stallcast_recorder_open(file.path().c_str(), nullptr, nullptr, &out), STALLCAST_USAGE,
              "info is null");
  ExpectError(stallcast_recorder_open(file.path().c_str(), &info, nullptr, nullptr),
              STALLCAST_USAGE, "out is null");
  const Block block(STALLCAST_KEY, STALLCAST_BF16, 0, 0, 1);
  ExpectError(stallcast_recorder_write(nullptr, &block.rows), STALLCAST_USAGE, "recorder is null");
  ExpectError(stallcast_recorder_begin_decode(nullptr, 0), STALLCAST_USAGE, "recorder is null");
  ExpectError(stallcast_recorder_flush(nullptr), STALLCAST_USAGE, "recorder is null");
  ExpectError(stallcast_recorder_close(nullptr), STALLCAST_USAGE, "recorder is null");
  ExpectError(stallcast_recorder_set_parameter(nullptr, "a", "b"), STALLCAST_USAGE,
              "recorder is null");
  ExpectError(stallcast_trace_read("x", nullptr, nullptr, 0), STALLCAST_USAGE, "rows is null");
  stallcast_recorder_free(nullptr);
  Recording recording(file.path());
  ExpectError(stallcast_recorder_write(recording.get(), nullptr), STALLCAST_USAGE, "rows is null");
}

TEST(RecorderFaults, ModelsThatCannotBeAreRefused) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  using Change = std::function<void(stallcast_trace_info&)>;
  const std::vector<std::pair<const char*, Change>> wrong = {
      {"hidden is -5", [](stallcast_trace_info& i) { i.hidden = -5; }},
      {"intermediate", [](stallcast_trace_info& i) { i.intermediate = -1; }},
      {"vocabulary", [](stallcast_trace_info& i) { i.vocabulary = -1; }},
      {"rope_theta", [](stallcast_trace_info& i) { i.rope_theta = kNan; }},
      {"rope_attention_scaling",
       [](stallcast_trace_info& i) { i.rope_attention_scaling = kInfinity; }},
      {"softmax_scale is inf", [](stallcast_trace_info& i) { i.softmax_scale = kInfinity; }},
      {"softmax_scale", [](stallcast_trace_info& i) { i.softmax_scale = -1; }},
  };
  for (const auto& [what, change] : wrong) {
    const ScratchFile file;
    stallcast_trace_info info = SmallModel();
    change(info);
    stallcast_recorder* out = nullptr;
    ExpectError(stallcast_recorder_open(file.path().c_str(), &info, nullptr, &out), STALLCAST_USAGE,
                what);
    EXPECT_EQ(out, nullptr);
    EXPECT_FALSE(std::filesystem::exists(file.path()));
  }
}

TEST(RecorderFaults, WrongRowsAreRefusedAndChangeNothing) {
  const ScratchFile file;
  {
    Recording recording(file.path());
    ASSERT_EQ(recording.WriteBoth(0, 0, 10), STALLCAST_OK);
    using Change = std::function<void(stallcast_rows&)>;
    const std::vector<std::pair<const char*, Change>> wrong = {
        {"kind", [](stallcast_rows& r) { r.kind = 0; }},
        {"kind", [](stallcast_rows& r) { r.kind = 258; }},
        {"element type", [](stallcast_rows& r) { r.dtype = 9; }},
        {"element type", [](stallcast_rows& r) { r.dtype = -1; }},
        {"layer 4", [](stallcast_rows& r) { r.layer = kLayers; }},
        {"layer -1", [](stallcast_rows& r) { r.layer = -1; }},
        {"heads", [](stallcast_rows& r) { r.heads = 6; }},
        {"head dimension", [](stallcast_rows& r) { r.head_dim = kHeadDim / 2; }},
        {"0 tokens", [](stallcast_rows& r) { r.tokens = 0; }},
        {"tokens", [](stallcast_rows& r) { r.tokens = int64_t{1} << 62; }},
        {"from token -1", [](stallcast_rows& r) { r.first_token = -1; }},
        {"from token", [](stallcast_rows& r) { r.first_token = INT64_MAX; }},
        {"no data", [](stallcast_rows& r) { r.data = nullptr; }},
        {"strides", [](stallcast_rows& r) { r.token_stride = -1; }},
        {"next token is 10", [](stallcast_rows& r) { r.first_token = 11; }},
        {"next token is 10", [](stallcast_rows& r) { r.first_token = 9; }},
        {"next token is 0", [](stallcast_rows& r) { r.layer = 1; }},
        {"has changed", [](stallcast_rows& r) { r.dtype = STALLCAST_FP16; }},
    };
    for (const auto& [what, change] : wrong) {
      Block block(STALLCAST_KEY, STALLCAST_BF16, 0, 10, 1);
      change(block.rows);
      ExpectError(stallcast_recorder_write(recording.get(), &block.rows), STALLCAST_USAGE, what);
    }
    ExpectError(recording.BeginDecode(11), STALLCAST_USAGE, "decoding is to begin at token 11");
    ASSERT_EQ(recording.BeginDecode(10), STALLCAST_OK) << stallcast_last_error();
    ExpectError(recording.BeginDecode(10), STALLCAST_USAGE, "begun");
    ExpectError(recording.Write(STALLCAST_QUERY, 0, 11, 1), STALLCAST_USAGE, "next token is 10");
    ASSERT_EQ(recording.WriteBoth(0, 10, 1), STALLCAST_OK) << stallcast_last_error();
    ASSERT_EQ(recording.Close(), STALLCAST_OK);
  }
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  EXPECT_EQ(trace.tensors.size(), 2u);
  ExpectTensor(trace, STALLCAST_QUERY, 0, 0, 11);
  ExpectTensor(trace, STALLCAST_KEY, 0, 0, 11);
}

TEST(RecorderFaults, CallsAfterClose) {
  const ScratchFile file;
  Recording recording(file.path());
  ASSERT_EQ(recording.WriteBoth(0, 0, 10), STALLCAST_OK);
  ASSERT_EQ(recording.Close(), STALLCAST_OK);
  ExpectError(recording.WriteBoth(0, 10, 1), STALLCAST_USAGE, "closed");
  ExpectError(recording.BeginDecode(10), STALLCAST_USAGE, "closed");
  ExpectError(stallcast_recorder_flush(recording.get()), STALLCAST_USAGE, "closed");
  ExpectError(stallcast_recorder_set_parameter(recording.get(), "a", "b"), STALLCAST_USAGE,
              "closed");
  ExpectError(recording.Close(), STALLCAST_USAGE, "closed");
  EXPECT_NO_THROW(traces::ReadTrace(file.path(), {.strict = true}));
}

TEST(RecorderFaults, WrongDescriptions) {
  const ScratchFile file;
  const double frequencies[] = {1.0, 0.0 / 0.0};
  const std::vector<std::pair<const char*, std::function<void(stallcast_trace_info&)>>> wrong = {
      {"0 layers", [](stallcast_trace_info& i) { i.layers = 0; }},
      {"6 query heads, 4 KV heads", [](stallcast_trace_info& i) { i.kv_heads = 4; }},
      {"dimension -1", [](stallcast_trace_info& i) { i.head_dim = -1; }},
      {"not UTF-8", [](stallcast_trace_info& i) { i.provenance = "\xff\xfe"; }},
      {"not finite",
       [&](stallcast_trace_info& i) {
         i.inverse_frequencies = frequencies;
         i.inverse_frequency_count = 2;
       }},
      {"inverse frequencies",
       [&](stallcast_trace_info& i) {
         i.inverse_frequencies = frequencies;
         i.inverse_frequency_count = 1 << 30;
       }},
  };
  for (const auto& [what, change] : wrong) {
    stallcast_trace_info info = SmallModel();
    change(info);
    const Recording recording(file.path(), {64, 64, 1 << 20}, info);
    ExpectError(recording.status(), STALLCAST_USAGE, what);
    EXPECT_FALSE(std::filesystem::exists(file.path())) << what;
  }
  for (const stallcast_recorder_options options :
       {stallcast_recorder_options{-1, 64, 1}, {64, 0, 1}, {64, 64, 0}, {1 << 30, 64, 1}}) {
    const Recording recording(file.path(), options);
    ExpectError(recording.status(), STALLCAST_USAGE, "recorder options");
  }
}

TEST(RecorderFaults, PlacesThatCannotBeWritten) {
  const ScratchFile file;
  for (const std::string& path : {file.path() + "/no/such/folder/x.kvt", std::string("/")}) {
    const Recording recording(path);
    EXPECT_EQ(recording.get(), nullptr);
    ExpectError(recording.status(), STALLCAST_FAILURE, path);
  }
}

TEST(RecorderFaults, AFullDiskFailsSoonAndForGood) {
  const ScratchFile file;
  Recording recording("/dev/full");
  if (recording.status() == STALLCAST_OK) {
    int status = recording.WriteBoth(0, 0, 1000);
    if (status == STALLCAST_OK) status = stallcast_recorder_flush(recording.get());
    ExpectError(status, STALLCAST_FAILURE, "/dev/full");
    ExpectError(recording.WriteBoth(0, 1000, 1), STALLCAST_FAILURE, "/dev/full");
    ExpectError(recording.Close(), STALLCAST_FAILURE, "/dev/full");
  } else {
    ExpectError(recording.status(), STALLCAST_FAILURE, "/dev/full");
  }
}

/// Runs `body` in a child process and returns how that ended, as waitpid says.
int InChild(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(RecorderFaults, ADiskThatFillsUpKeepsTheIntactPart) {
  const ScratchFile file;
  constexpr rlim_t kRoom = 200'000;
  const int status = InChild([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {kRoom, kRoom};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    Recording recording(file.path());
    // Far more than the queue holds: a write must report the failure before the end.
    for (int64_t token = 0; token < 1'000'000; token += 100) {
      if (recording.Write(STALLCAST_KEY, 0, token, 100) != STALLCAST_OK) {
        const bool named =
            std::string(stallcast_last_error()).find(file.path()) != std::string::npos;
        _exit(named && recording.Close() == STALLCAST_FAILURE ? 10 : 3);
      }
    }
  });
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 10);
  traces::ReadReport report;
  const traces::Trace trace = traces::ReadTrace(file.path(), {}, &report);
  EXPECT_TRUE(report.truncated);
  const traces::Tensor* keys = trace.Find(traces::TensorKind::kKey, 0);
  ASSERT_NE(keys, nullptr);
  EXPECT_GT(keys->spec.tokens, 1000);
  ExpectTensor(trace, STALLCAST_KEY, 0, 0, keys->spec.end_token());
}

TEST(RecorderFaults, AKilledProcessLosesOnlyWhatWasGathered) {
  const ScratchFile file;
  constexpr int64_t kPrompt = 300;
  constexpr int64_t kFlushed = kPrompt + 70;
  constexpr int64_t kWritten = kFlushed + 500;
  const int status = InChild([&] {
    Recording recording(file.path());
    recording.WriteBoth(0, 0, kPrompt);
    recording.BeginDecode(kPrompt);
    for (int64_t token = kPrompt; token < kWritten; ++token) {
      if (token == kFlushed) stallcast_recorder_flush(recording.get());
      recording.WriteBoth(0, token, 1);
    }
    raise(SIGKILL);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(WTERMSIG(status), SIGKILL);
  traces::ReadReport report;
  const traces::Trace trace = traces::ReadTrace(file.path(), {}, &report);
  EXPECT_TRUE(report.truncated);
  EXPECT_EQ(trace.info.prompt_tokens(), kPrompt);
  for (const int kind : {STALLCAST_QUERY, STALLCAST_KEY}) {
    const traces::Tensor* tensor = trace.Find(static_cast<traces::TensorKind>(kind), 0);
    ASSERT_NE(tensor, nullptr);
    EXPECT_GE(tensor->spec.end_token(), kFlushed);
    EXPECT_LE(tensor->spec.end_token(), kWritten);
    ExpectTensor(trace, kind, 0, kind == STALLCAST_KEY ? 0 : kPrompt - 64,
                 tensor->spec.end_token());
  }
}

TEST(RecorderFaults, TheLibraryExportsItsInterfaceOnly) {
  const std::string command =
      "nm -D --defined-only " STALLCAST_BINARY_DIR "/lib/capture/libstallcast_capture.so 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::array<char, 512> line;
  int symbols = 0;
  while (fgets(line.data(), line.size(), pipe)) {
    const std::string text = line.data();
    EXPECT_NE(text.find(" T stallcast_"), std::string::npos) << text;
    ++symbols;
  }
  pclose(pipe);
  EXPECT_EQ(symbols, 19);
}

}  // namespace
}  // namespace stallcast::capture
