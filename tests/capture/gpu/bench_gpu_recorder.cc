// What recording costs: launches before, while and after a recorder is there, and steps of the
// workload. One process, in this order, because CUDA stays slower once CUPTI was attached.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "capture/gpu_recorder.h"
#include "tests/capture/gpu/workload.h"
#include "tests/kernels/has_device.h"
#include "traces/common/error.h"
#include "traces/common/median.h"

namespace {

using namespace stallcast;
using capture::testing::LaunchNanoseconds;
using capture::testing::RunWorkload;

constexpr char kPath[] = "/dev/shm/stallcast_bench_gpu_recorder.kvt";
constexpr int kLaunches = 20'000;
constexpr int kSteps = 500;
constexpr int kRounds = 7;

template <typename Measure>
double MedianOf(const Measure& measure) {
  std::vector<double> values;
  for (int i = 0; i < kRounds; ++i) values.push_back(measure());
  return Median(std::move(values));
}

struct Costs {
  double launch_ns, step_us;
};

Costs Measure(const capture::testing::OpHooks& hooks) {
  const double launch = MedianOf([] { return LaunchNanoseconds(kLaunches); });
  const double step = MedianOf([&] {
    const auto begin = std::chrono::steady_clock::now();
    RunWorkload(kSteps, hooks);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    return took.count() / kSteps;
  });
  return {launch, step};
}

void Print(const char* what, Costs costs, Costs without) {
  std::printf("%-28s %8.0f ns (%+6.1f %%) %8.1f us (%+6.1f %%)\n", what, costs.launch_ns,
              100 * (costs.launch_ns / without.launch_ns - 1), costs.step_us,
              100 * (costs.step_us / without.step_us - 1));
}

void Run() {
  if (!kernels::HasDevice()) {
    std::puts("no CUDA device");
    return;
  }
  RunWorkload(10, {});
  std::printf("%-28s %11s %23s\n", "medians of 7", "a launch", "a step of the workload");
  const Costs before = Measure({});
  Print("without a recorder", before, before);
  capture::GpuRecorderStats stats;
  {
    capture::GpuRecorder recorder(kPath, {}, {});
    capture::testing::OpHooks hooks;
    hooks.push = [&](int32_t step, int32_t op) { recorder.PushOp(step, op); };
    hooks.pop = [&] { recorder.PopOp(); };
    Print("recording", Measure({}), before);
    Print("recording, ops pushed", Measure(hooks), before);
    stats = recorder.Stop();
  }
  Print("after the recording", Measure({}), before);
  std::printf(
      "%ld rows, %ld dropped, %ld without a time, %.1f bytes a row in the file\n", stats.rows,
      stats.dropped, stats.zero_stamps,
      static_cast<double>(std::filesystem::file_size(kPath)) / static_cast<double>(stats.rows));
  std::filesystem::remove(kPath);
}

}  // namespace

int main() {
  try {
    Run();
  } catch (const Error& error) {
    std::fprintf(stderr, "bench_gpu_recorder: %s\n", error.what());
    return 1;
  }
}
