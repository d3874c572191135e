// What is on disk when writing goes wrong, and what memory reading takes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/scratch_folder.h"
#include "tests/traces/format/layout.h"
#include "tests/traces/sample.h"
#include "traces/common/error.h"
#include "traces/format/trace_file.h"

namespace stallcast::traces {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

// Runs `action` in a process of its own and returns that process's id.
pid_t Spawn(const std::function<void()>& action) {
  const pid_t child = fork();
  if (child == 0) {
    action();
    _exit(0);
  }
  return child;
}

int ExitCode(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(WriterTest, FullDiskIsNamed) {
  try {
    TraceWriter writer(std::filesystem::path("/dev/full"), {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "/dev/full: No space left on device; free some space or choose another disk");
  }
}

TEST(WriterTest, PathThatCannotBeWrittenIsNamed) {
  try {
    TraceWriter writer(std::filesystem::path("/nowhere/x.kvt"), {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith("/nowhere/x.kvt: No such file or directory"));
  }
}

TEST(WriterTest, DiskThatFillsUpKeepsWholeChunks) {
  const ScratchFolder folder;
  const std::filesystem::path path = folder / "fills.kvt";
  const pid_t child = Spawn([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{20'000, 20'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      TraceWriter writer(path, SampleInfo());
      for (int64_t first = 0;; first += 100) {
        const TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 0, first, 100);
        writer.Write(spec, SampleTensor(spec).data);
      }
    } catch (const Error&) {
      _exit(7);
    }
  });
  EXPECT_EQ(ExitCode(child), 7);
  ReadReport report;
  const Trace trace = ReadTrace(path, {}, &report);
  EXPECT_THAT(report.problems, ElementsAre(StartsWith("truncated after chunk")));
  std::vector<std::byte> file(std::filesystem::file_size(path));
  std::ifstream(path).read(reinterpret_cast<char*>(file.data()), std::ssize(file));
  EXPECT_EQ(ChunkOffsets(file).back(), std::ssize(file));  // the file ends with a whole chunk
  EXPECT_GT(file.size(), 18'000u);
  ASSERT_EQ(trace.tensors.size(), 1u);
  EXPECT_GT(trace.tensors[0].spec.tokens, 800);
  EXPECT_EQ(trace.tensors[0].data, SampleTensor(trace.tensors[0].spec).data);
}

TEST(WriterTest, KilledWriterLosesAtMostTheChunkInFlight) {
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    const ScratchFolder folder;
    const std::filesystem::path path = folder / "killed.kvt";
    int written[2];  // the writer tells how many pieces it has handed over
    ASSERT_EQ(pipe2(written, O_CLOEXEC), 0);
    const pid_t child = Spawn([&] {
      TraceWriter writer(path, SampleInfo());
      for (int64_t first = 0;; first += 20) {
        const TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 0, first, 20);
        writer.Write(spec, SampleTensor(spec).data);
        if (write(written[1], "x", 1) != 1) _exit(1);
      }
    });
    close(written[1]);
    char one;
    ASSERT_EQ(read(written[0], &one, 1), 1);  // at least one piece is on its way
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    kill(child, SIGKILL);
    ExitCode(child);
    int64_t handed_over = 1;
    while (read(written[0], &one, 1) == 1) ++handed_over;
    close(written[0]);

    ReadReport report;
    const Trace trace = ReadTrace(path, {}, &report);
    EXPECT_THAT(report.problems, ElementsAre(StartsWith("truncated after chunk")));
    ASSERT_EQ(trace.tensors.size(), 1u);
    EXPECT_GE(trace.tensors[0].spec.tokens, 20 * handed_over);
    EXPECT_EQ(trace.tensors[0].data, SampleTensor(trace.tensors[0].spec).data);
  }
}

// A field of /proc/self/status in bytes.
int64_t MemoryField(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return 1024 * std::stoll(line.substr(field.size() + 1));
  }
  return 0;
}

// The peak of resident memory above what is resident now, while `action` runs.
int64_t PeakGrowth(const std::function<void()>& action) {
  std::ofstream("/proc/self/clear_refs") << 5 << std::flush;  // resets the peak
  const int64_t before = MemoryField("VmRSS");
  action();
  return MemoryField("VmHWM") - before;
}

TEST(MemoryTest, ReadingAndWritingStayWellBelowTwiceTheTensors) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep memory of their own";
  const ScratchFolder folder;
  const std::filesystem::path path = folder / "memory.kvt";
  TensorSpec spec = SampleSpec(TensorKind::kKey, DType::kBf16, 0, 0, 50'000);
  spec.heads = 8;
  spec.head_dim = 128;  // 102 MB
  std::mt19937_64 random(1);
  std::vector<uint64_t> elements(spec.bytes() / 8);
  for (uint64_t& element : elements) element = random();
  EXPECT_LT(PeakGrowth([&] {
              TraceWriter writer(path, {});
              writer.Write(spec, std::as_bytes(std::span(elements)));
              writer.Finish();
            }),
            spec.bytes() / 2);
  std::vector<uint64_t>().swap(elements);
  EXPECT_LT(PeakGrowth([&] { EXPECT_EQ(ReadTrace(path).tensors.at(0).spec, spec); }),
            spec.bytes() * 3 / 2);
  EXPECT_LT(PeakGrowth([&] { ReadTrace(path, {.tensors = false}); }), spec.bytes() / 10);
}

}  // namespace
}  // namespace stallcast::traces
