// A CUDA program recorded three ways on a real GPU: every launch, copy and wait is there, under its
// op.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "capture/gpu_recorder.h"
#include "capture/gpu_recorder_c.h"
#include "capture/run_info.h"
#include "tests/capture/gpu/workload.h"
#include "tests/capture/recording.h"
#include "tests/kernels/has_device.h"
#include "traces/common/error.h"

namespace stallcast::capture {
namespace {

using ::testing::HasSubstr;
using testing::OpHooks;
using testing::RunWorkload;
using testing::ScratchFile;
using traces::LaneKind;
using traces::Timeline;

constexpr int kSteps = 20;

class GpuRecording : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
};

struct Counts {
  int64_t kernels = 0, copies = 0, memsets = 0, copied_bytes = 0;
};

bool Holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// Rows of GPU work.
Counts CountWork(const Timeline& timeline) {
  Counts counts;
  for (size_t row = 0; row < timeline.start.size(); ++row) {
    const LaneKind kind = timeline.lanes[timeline.lane[row]].kind;
    if (kind != LaneKind::kStream && kind != LaneKind::kCopyEngine) continue;
    const std::string& name = timeline.names[timeline.name[row]];
    if (Holds(name, "Scale")) ++counts.kernels;
    if (name == "memset") ++counts.memsets;
    if (Holds(name, "copy ")) {
      ++counts.copies;
      counts.copied_bytes += timeline.bytes[row];
    }
  }
  return counts;
}

void ExpectAllWork(const Timeline& timeline, int steps) {
  const Counts counts = CountWork(timeline);
  EXPECT_EQ(counts.kernels, steps * testing::kKernelsAStep);
  EXPECT_EQ(counts.copies, steps * testing::kCopiesAStep);
  EXPECT_EQ(counts.memsets, steps);
  EXPECT_EQ(counts.copied_bytes, steps * testing::kCopiesAStep * testing::kPieceBytes);
}

/// Host calls come before the work that they launched, and times lie in the recording.
void ExpectCausal(const Timeline& timeline, Picoseconds end) {
  std::map<std::pair<int32_t, int64_t>, Picoseconds> call;
  for (size_t row = 0; row < timeline.start.size(); ++row) {
    EXPECT_GE(timeline.start[row], Picoseconds(0));
    EXPECT_LE(timeline.start[row] + timeline.duration[row], end);
    if (timeline.op[row] < 0 || timeline.lanes[timeline.lane[row]].kind != LaneKind::kHost)
      continue;
    const auto key = std::pair(timeline.step[row], timeline.op[row]);
    if (!call.contains(key)) call[key] = timeline.start[row];
  }
  for (size_t row = 0; row < timeline.start.size(); ++row) {
    if (timeline.lanes[timeline.lane[row]].kind == LaneKind::kHost) continue;
    const auto known = call.find({timeline.step[row], timeline.op[row]});
    if (known != call.end()) {
      EXPECT_GT(timeline.start[row], known->second);
    }
  }
}

TEST_F(GpuRecording, InProcessWithOpsOfAPlan) {
  const ScratchFile file;
  RunWorkload(1, {});  // CUDA is in use when the recording begins
  GpuRecorderOptions options;
  options.title = "workload";
  GpuRecorder recorder(file.path(), RunInfo(), options);
  recorder.NameThread("host");
  OpHooks hooks;
  hooks.push = [&](int32_t step, int32_t op) { recorder.PushOp(step, op); };
  hooks.pop = [&] { recorder.PopOp(); };
  hooks.streams = [&](cudaStream_t compute, cudaStream_t copy) {
    recorder.NameStream(compute, "compute", true);
    recorder.NameStream(copy, "copy");
  };
  RunWorkload(kSteps, hooks);
  const Picoseconds end = recorder.Now();
  const GpuRecorderStats stats = recorder.Stop();
  EXPECT_EQ(stats.dropped, 0);
  EXPECT_EQ(stats.zero_stamps, 0);
  EXPECT_EQ(stats.unmatched, 0);

  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  ASSERT_EQ(trace.timelines.size(), 1u);
  const Timeline& timeline = trace.timelines[0];
  EXPECT_EQ(timeline.rows(), stats.rows);
  ExpectAllWork(timeline, kSteps);
  ExpectCausal(timeline, end);

  // Every op of every step has exactly its work, on its lane.
  std::map<std::pair<int32_t, int64_t>, int> work;
  std::map<std::pair<int32_t, int64_t>, int> host;
  std::set<std::string> engines;
  for (size_t row = 0; row < timeline.start.size(); ++row) {
    const traces::TimelineLane& lane = timeline.lanes[timeline.lane[row]];
    const auto key = std::pair(timeline.step[row], timeline.op[row]);
    if (lane.kind == LaneKind::kHost) {
      EXPECT_EQ(lane.name, "host");
      ++host[key];
      continue;
    }
    if (lane.kind == LaneKind::kCopyEngine) engines.insert(lane.name);
    if (lane.kind == LaneKind::kStream) {
      EXPECT_EQ(lane.name, "compute");
      EXPECT_TRUE(lane.compute);
    }
    if (lane.kind != LaneKind::kOther) ++work[key];
  }
  for (int32_t step = 0; step < kSteps; ++step) {
    const std::array<int, testing::kWorkloadOps> expected = {
        testing::kPieces, 1, 2, 1, 1, 0, 1, 1, 0};
    for (int32_t op = 0; op < testing::kWorkloadOps; ++op) {
      const auto key = std::pair(step, int64_t{op});
      EXPECT_EQ(work[key], expected[op]) << "step " << step << " op " << op;
      if (op != testing::kGraphFirst && op != testing::kGraphSecond) {
        EXPECT_GE(host[key], 1) << "step " << step << " op " << op;
      }
    }
  }
  // Both directions at once need two engines.
  EXPECT_GE(engines.size(), 2u);
  EXPECT_FALSE(timeline.graph_node.empty());
}

TEST_F(GpuRecording, CopiesOnTheirStreams) {
  const ScratchFile file;
  GpuRecorderOptions options;
  options.copy_lanes = CopyLanes::kStreams;
  GpuRecorder recorder(file.path(), RunInfo(), options);
  OpHooks hooks;
  hooks.streams = [&](cudaStream_t compute, cudaStream_t copy) {
    recorder.NameStream(compute, "compute", true);
    recorder.NameStream(copy, "copy");
  };
  RunWorkload(2, hooks);
  recorder.Stop();
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  ExpectAllWork(trace.timelines[0], 2);
  std::set<std::string> names;
  for (const traces::TimelineLane& lane : trace.timelines[0].lanes) {
    if (lane.kind != LaneKind::kHost && lane.kind != LaneKind::kOther) names.insert(lane.name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"compute", "copy"}));
}

TEST_F(GpuRecording, ThroughTheCInterfaceASecondTimeInTheProcess) {
  const ScratchFile file;
  stallcast_gpu_recorder* recorder = nullptr;
  ASSERT_EQ(stallcast_gpu_recorder_open(file.path().c_str(), "c", &recorder), STALLCAST_OK)
      << stallcast_last_error();
  OpHooks hooks;
  hooks.push = [&](int32_t step, int32_t) { stallcast_gpu_recorder_push(recorder, step, -1); };
  hooks.pop = [&] { stallcast_gpu_recorder_pop(recorder); };
  RunWorkload(kSteps, hooks);

  // The library is another subscriber than this program's own recorder.
  try {
    GpuRecorder second("never.kvt", {}, {});
    ADD_FAILURE() << "two recorders at once";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("CUPTI: held by"));
    EXPECT_FALSE(std::filesystem::exists("never.kvt"));
    std::printf("conflict: %s\n", error.what());
  }

  stallcast_gpu_stats stats = {};
  ASSERT_EQ(stallcast_gpu_recorder_close(recorder, &stats), STALLCAST_OK);
  stallcast_gpu_recorder_free(recorder);
  EXPECT_EQ(stats.dropped, 0);
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  const Timeline& timeline = trace.timelines[0];
  ExpectAllWork(timeline, kSteps);
  for (size_t row = 0; row < timeline.start.size(); ++row) {
    const LaneKind kind = timeline.lanes[timeline.lane[row]].kind;
    if (kind == LaneKind::kStream || kind == LaneKind::kCopyEngine) {
      EXPECT_GE(timeline.step[row], 0);
      EXPECT_GE(timeline.op[row], 0);
    }
  }
}

TEST_F(GpuRecording, InjectedIntoAnotherProgram) {
  const ScratchFile file;
  // The programs are beside this one.
  const std::string folder = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  const std::string command = folder + "/stallcast-gpu record -o " + file.path() + " -- " + folder +
                              "/gpu_workload " + std::to_string(kSteps) + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  std::array<char, 512> line;
  while (fgets(line.data(), line.size(), pipe)) output += line.data();
  EXPECT_EQ(WEXITSTATUS(pclose(pipe)), 5) << output;
  EXPECT_THAT(output, HasSubstr("rows in"));
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  ASSERT_EQ(trace.timelines.size(), 1u);
  const Timeline& timeline = trace.timelines[0];
  ExpectAllWork(timeline, kSteps);
  EXPECT_THAT(timeline.title, HasSubstr("gpu_workload"));
  int ranges = 0;
  for (size_t row = 0; row < timeline.start.size(); ++row) {
    ranges += timeline.names[timeline.name[row]].starts_with("step ") &&
              timeline.lanes[timeline.lane[row]].kind == LaneKind::kOther;
  }
  EXPECT_EQ(ranges, kSteps);
}

TEST_F(GpuRecording, TooLittleBufferMemoryIsCountedNotHidden) {
  const ScratchFile file;
  GpuRecorderOptions options;
  options.buffer_bytes = 1;
  options.flush_period = std::chrono::milliseconds(10);
  GpuRecorder recorder(file.path(), {}, options);
  constexpr int kLaunches = 100'000;
  testing::LaunchNanoseconds(kLaunches);
  const GpuRecorderStats stats = recorder.Stop();
  const traces::Trace trace = traces::ReadTrace(file.path(), {.strict = true});
  int64_t kernels = 0;
  for (const uint32_t name : trace.timelines[0].name) {
    kernels += Holds(trace.timelines[0].names[name], "Nothing") ? 1 : 0;
  }
  std::printf("%ld kernels of %d in the file, %ld records dropped\n", kernels, kLaunches,
              stats.dropped);
  EXPECT_GE(kernels + stats.dropped, kLaunches);
}

}  // namespace
}  // namespace stallcast::capture
