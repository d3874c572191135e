// The GPU recorder around a source without a GPU: files, failures, and processes killed at any
// moment.
#include "capture/gpu_recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "capture/gpu_recorder_c.h"
#include "capture/run_info.h"
#include "tests/capture/gpu_records.h"
#include "tests/capture/recording.h"
#include "traces/common/error.h"

namespace stallcast::capture {
namespace {

using namespace std::chrono_literals;
using testing::Call;
using ::testing::ElementsAre;
using testing::External;
using testing::FakeSource;
using ::testing::HasSubstr;
using testing::InWords;
using testing::Kernel;
using testing::ScratchFile;

TEST(GpuRecorder, WritesAFileOfItsOwn) {
  const ScratchFile file;
  GpuRecorderOptions options;
  options.title = "a run";
  GpuRecorder recorder(
      std::make_unique<FakeSource>([](const std::shared_ptr<RecordThread>& thread) {
        thread->Post([](TimelineAssembler& to) {
          to.Add(External(1, 2, 3));
          to.Add(Call(1, 0, 10, 5));
          to.Add(Kernel(1, 20, 30));
        });
        thread->AddDropped(4);
      }),
      file.path(), RunInfo(), options);
  recorder.NameStream(nullptr, "copies");
  EXPECT_EQ(recorder.Now(), Picoseconds(0));
  recorder.NameThread("worker");
  recorder.AddSpan("gather", Picoseconds(50'000), Picoseconds(60'000), 2, 4, 99);
  const GpuRecorderStats stats = recorder.Stop();
  EXPECT_EQ(stats.rows, 3);
  EXPECT_EQ(stats.dropped, 4);
  EXPECT_EQ(recorder.Stop().rows, 3);  // again: the same numbers

  traces::ReadReport report;
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true}, &report);
  EXPECT_EQ(report.dropped, 4);
  EXPECT_FALSE(trace.info.created().empty());
  ASSERT_EQ(trace.timelines.size(), 1u);
  EXPECT_EQ(trace.timelines[0].title, "a run");
  EXPECT_THAT(trace.timelines[0].notes, ElementsAre("4 records dropped"));
  EXPECT_THAT(InWords(trace.timelines[0]),
              ElementsAre("thread 5: cudaLaunchKernel, op 3, step 2, 0+10 ns",
                          "stream 7: kernel, op 3, step 2, 20+10 ns",
                          "worker: gather, op 4, step 2, 50+10 ns, 99 B"));
}

TEST(GpuRecorder, AddsToAFileThatHoldsMore) {
  const ScratchFile file;
  traces::TraceWriter writer(file.path(), RunInfo());
  traces::AccessLog log;
  log.method = "full";
  writer.Write(log);
  for (int run = 0; run < 2; ++run) {
    // Through a recorder's own file only OpenCupti() could be used; the thread is what it wraps.
    RecordThread thread(&writer, {}, testing::kOriginNs);
    ASSERT_TRUE(thread.Post([](TimelineAssembler& to) { to.Add(Call(1, 0, 10)); }));
    EXPECT_EQ(thread.Stop().rows, 1);
    EXPECT_FALSE(thread.Post([](TimelineAssembler&) {}));
  }
  writer.Finish();
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  EXPECT_EQ(trace.access_logs.size(), 1u);
  EXPECT_EQ(trace.timelines.size(), 2u);
}

TEST(GpuRecorder, RowsAreInTheFileSoon) {
  const ScratchFile file;
  std::shared_ptr<RecordThread> thread;
  GpuRecorderOptions options;
  options.flush_period = 1ms;
  GpuRecorder recorder(
      std::make_unique<FakeSource>([&](const std::shared_ptr<RecordThread>& own) { thread = own; }),
      file.path(), {}, options);
  thread->Post([](TimelineAssembler& to) { to.Add(Call(1, 0, 10)); });
  traces::ReadReport report;
  for (int i = 0; i < 1000 && report.records == 0; ++i) {
    std::this_thread::sleep_for(10ms);
    traces::ReadTrace(file.path(), {}, &report);
  }
  EXPECT_EQ(report.records, 1);
  EXPECT_TRUE(report.truncated);
}

// Beside the calls that it records it would slow them.
TEST(GpuRecorder, RestsUntilAQuarterOfWhatMayWaitsOrItStops) {
  std::vector<std::byte> memory;
  traces::TraceWriter writer(&memory, {});
  GpuRecorderOptions options;
  options.flush_period = 1h;
  options.buffer_bytes = 4000;
  std::atomic<int> ran = 0;
  const auto job = [&](TimelineAssembler&) { ++ran; };
  const auto runs = [&](int jobs) {
    for (int i = 0; i < 1000 && ran < jobs; ++i) std::this_thread::sleep_for(10ms);
    return ran == jobs;
  };
  RecordThread thread(&writer, options, testing::kOriginNs);
  ASSERT_TRUE(thread.Post(job, 999));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(ran, 0);
  ASSERT_TRUE(thread.Post(job, 1));
  EXPECT_TRUE(runs(2));
  for (size_t i = 0; i < RecordThread::kMaxJobs / 4; ++i) ASSERT_TRUE(thread.Post(job));
  EXPECT_TRUE(runs(2 + static_cast<int>(RecordThread::kMaxJobs / 4)));
  ASSERT_TRUE(thread.Post(job));
  thread.Stop();
  EXPECT_TRUE(runs(3 + static_cast<int>(RecordThread::kMaxJobs / 4)));
}

TEST(GpuRecorder, AFullDiskIsAnErrorOfStop) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  EXPECT_THROW(traces::TraceWriter("/dev/full", {}), Error);
  // A disk that is full later: the writer is closed under the recorder.
  std::vector<std::byte> memory;
  traces::TraceWriter writer(&memory, {});
  writer.Finish();
  RecordThread thread(&writer, {}, testing::kOriginNs);
  thread.Post([](TimelineAssembler& to) { to.Add(Call(1, 0, 10)); });
  EXPECT_THROW(thread.Stop(), Error);
  EXPECT_EQ(thread.Stop().rows, 0);
}

TEST(GpuRecorder, ASourceThatKeepsItsRecordsIsAnErrorAndTheFileIsWhole) {
  const ScratchFile file;
  FakeSource source(
      [](const std::shared_ptr<RecordThread>& thread) {
        thread->Post([](TimelineAssembler& to) { to.Add(Call(1, 0, 10)); });
      },
      /*stops=*/false);
  {
    // The recorder lets go of a source that hangs; this one is on the stack for that.
    GpuRecorder recorder(std::unique_ptr<ActivitySource>(&source), file.path(), {}, {});
    EXPECT_THROW(recorder.Stop(), Error);
    // Threads that do not know of it still leave their ops.
    recorder.PushOp(1, 2);
    recorder.PopOp();
  }
  EXPECT_EQ(traces::ReadTrace(file.path(), {.strict = true}).timelines[0].rows(), 1);
}

/// Refused once it has begun, as by a driver that allows no profiling; hands over to the end.
class RefusedSource final : public FakeSource {
 public:
  RefusedSource() : FakeSource({}) {}
  ~RefusedSource() override { Post(); }
  void Start(std::shared_ptr<RecordThread> thread, const GpuRecorderOptions&) override {
    thread_ = std::move(thread);
    Post();
    throw Error("cannot record GPU activity", "CUPTI", "allow it");
  }

 private:
  void Post() {
    thread_->Post([](TimelineAssembler& to) { to.Add(Call(1, 0, 10)); });
  }
  std::shared_ptr<RecordThread> thread_;
};

TEST(GpuRecorder, ASourceThatIsRefusedLeavesNoFile) {
  const ScratchFile file;
  EXPECT_THROW(GpuRecorder(std::make_unique<RefusedSource>(), file.path(), {}, {}), Error);
  EXPECT_FALSE(std::filesystem::exists(file.path()));
}

TEST(GpuRecorder, TooManyJobsAreRefused) {
  std::vector<std::byte> memory;
  traces::TraceWriter writer(&memory, {});
  RecordThread thread(&writer, {}, testing::kOriginNs);
  std::atomic<bool> go = false;
  thread.Post([&](TimelineAssembler&) {
    while (!go) std::this_thread::sleep_for(1ms);
  });
  size_t taken = 0;
  while (taken < 3 * RecordThread::kMaxJobs && thread.Post([](TimelineAssembler&) {})) ++taken;
  go = true;
  EXPECT_LT(taken, 2 * RecordThread::kMaxJobs);
  EXPECT_NO_THROW(thread.Stop());
}

/// Without a GPU, or with one that another profiler holds: a line, and no file.
TEST(GpuRecorder, WithoutAGpuTheCInterfaceSaysSo) {
  if (access("/dev/nvidiactl", F_OK) == 0) GTEST_SKIP() << "this machine has a GPU";
  const ScratchFile file;
  stallcast_gpu_recorder* recorder = nullptr;
  EXPECT_EQ(stallcast_gpu_recorder_open(file.path().c_str(), "run", &recorder), STALLCAST_FAILURE);
  EXPECT_EQ(recorder, nullptr);
  EXPECT_THAT(stallcast_last_error(), HasSubstr("CUPTI: "));
  EXPECT_THAT(stallcast_last_error(), HasSubstr("; "));
  EXPECT_FALSE(std::filesystem::exists(file.path()));
  EXPECT_EQ(stallcast_gpu_recorder_open(nullptr, "", &recorder), STALLCAST_USAGE);
  EXPECT_EQ(stallcast_gpu_recorder_push(nullptr, 0, 0), STALLCAST_USAGE);
  EXPECT_EQ(stallcast_gpu_recorder_close(nullptr, nullptr), STALLCAST_USAGE);
  stallcast_gpu_recorder_free(nullptr);
}

// Killed at any moment.

constexpr int kKills = 200;
constexpr uint32_t kBatch = 25;

/// Call and kernel `i` of an endless program, from 1.
void AddPair(uint32_t i, TimelineAssembler& to) {
  const int64_t at = int64_t{i} * 1000;
  to.Add(External(i, static_cast<int32_t>(i / 64), static_cast<int32_t>(i % 64)));
  to.Add(Call(i, at, at + 300, 1, "call " + std::to_string(i % 7)));
  to.Add(Kernel(i, at + 400, at + 900, i % 3, "kernel " + std::to_string(i % 11)));
}

[[noreturn]] void RecordUntilKilled(const std::string& path) {
  GpuRecorderOptions options;
  options.flush_period = 1ms;
  const GpuRecorder recorder(
      std::make_unique<FakeSource>([](const std::shared_ptr<RecordThread>& thread) {
        for (uint32_t i = 1;; i += kBatch) {
          thread->Post([i](TimelineAssembler& to) {
            for (uint32_t k = i; k < i + kBatch; ++k) AddPair(k, to);
          });
          std::this_thread::sleep_for(std::chrono::microseconds(i % 400));
        }
      }),
      path, {}, options);
  _exit(3);
}

/// The rows of the first `pairs` pairs.
const std::vector<std::string>& ExpectedRows(size_t pairs) {
  static std::vector<std::string> rows;
  while (rows.size() < 2 * pairs) {
    testing::Assembly assembly;
    const auto first = static_cast<uint32_t>(rows.size() / 2 + 1);
    for (uint32_t i = first; i < first + 10'000; ++i) AddPair(i, assembly.assembler);
    const std::vector<std::string> more = InWords(assembly.Finish());
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

TEST(GpuRecorder, AKilledProcessLeavesAllItsChunks) {
  const ScratchFile file;
  std::mt19937 random(std::random_device{}());
  std::set<int64_t> lengths;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    std::filesystem::remove(file.path());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) RecordUntilKilled(file.path());
    // From before the file exists to many chunks, however slow the machine.
    constexpr uintmax_t kHoldsRows = 500;  // bytes
    std::error_code none_yet;
    for (int i = 0; kill_number % 10 != 0 && i < 10'000; ++i) {
      const uintmax_t size = std::filesystem::file_size(file.path(), none_yet);
      if (!none_yet && size > kHoldsRows) break;
      std::this_thread::sleep_for(1ms);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    if (!std::filesystem::exists(file.path()) || std::filesystem::file_size(file.path()) < 16) {
      continue;  // too early for anything
    }

    traces::ReadReport report;
    const traces::Trace trace = traces::ReadTrace(file.path(), {}, &report);
    // Nothing but the end is missing: no chunk that was written whole is lost or damaged.
    EXPECT_TRUE(report.truncated);
    EXPECT_EQ(report.damaged, 0);
    ASSERT_EQ(report.problems.size(), 1u) << report.problems.back();
    EXPECT_THAT(report.problems[0], HasSubstr("truncated"));
    const int64_t rows = trace.timelines.empty() ? 0 : trace.timelines[0].rows();
    EXPECT_EQ(report.records, rows);
    lengths.insert(rows);
    if (rows == 0) continue;
    // And the rows are the first that were fed.
    ASSERT_EQ(rows % (int64_t{2} * kBatch), 0);
    const std::vector<std::string> found = InWords(trace.timelines[0]);
    const std::vector<std::string>& fed = ExpectedRows(found.size() / 2);
    ASSERT_TRUE(std::equal(found.begin(), found.end(), fed.begin()));
  }
  EXPECT_GT(lengths.size(), 20u);  // the moments did differ
}

TEST(Injection, ExportsItsEntriesOnly) {
  FILE* pipe = popen(
      "nm -D --defined-only " STALLCAST_BINARY_DIR "/lib/capture/libstallcast_inject.so", "r");
  ASSERT_NE(pipe, nullptr);
  std::vector<std::string> symbols;
  std::array<char, 512> line;
  while (fgets(line.data(), line.size(), pipe)) {
    const std::string text = line.data();
    symbols.push_back(text.substr(text.find(" T ") + 3, text.size() - text.find(" T ") - 4));
  }
  pclose(pipe);
  EXPECT_THAT(symbols, ElementsAre("InitializeInjection", "InitializeInjectionNvtx2"));
}

}  // namespace
}  // namespace stallcast::capture
