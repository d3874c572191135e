// Records to a timeline file without a GPU: rows a second, and the memory that ten million take.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "capture/record_thread.h"
#include "traces/format/trace_file.h"

namespace stallcast::capture {
namespace {

constexpr char kPath[] = "/dev/shm/stallcast_bench_timeline.kvt";
constexpr int64_t kRecords = 10'000'000;  // calls, ids and kernels
constexpr uint32_t kBatch = 10'000;       // calls of a buffer
constexpr int kBuffers = 32;              // that a source has

double PeakMebibytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void RecordTenMillion(benchmark::State& state) {
  constexpr int64_t kOrigin = 1'700'000'000'000'000'000;
  std::vector<std::string> names;
  for (int i = 0; i < 300; ++i)
    names.push_back("kernel of some length, number " + std::to_string(i));
  for (auto _ : state) {
    const double before = PeakMebibytes();
    traces::TraceWriter writer(kPath, {});
    RecordThread thread(&writer, {}, kOrigin);
    // As a pool of buffers bounds what waits.
    std::counting_semaphore<kBuffers> buffers(kBuffers);
    for (int64_t first = 1; first < kRecords / 3; first += kBatch) {
      buffers.acquire();
      while (!thread.Post([&, first](TimelineAssembler& to) {
        std::minstd_rand generator(static_cast<uint32_t>(first));
        const auto below = [&](uint32_t bound) {
          return static_cast<int64_t>(generator() % bound);
        };
        for (int64_t i = first; i < first + kBatch; ++i) {
          const auto correlation = static_cast<uint32_t>(i);
          const int64_t at = kOrigin + i * 2000 + below(400);
          to.Add(ExternalRecord{correlation, static_cast<uint64_t>(i)});
          to.Add(CallRecord{"cudaLaunchKernel", at, at + 1000 + below(200), correlation, 1});
          DeviceRecord kernel;
          kernel.name = names[static_cast<size_t>(below(300))];
          kernel.start_ns = at + 3000;
          kernel.end_ns = at + 4000 + below(1000);
          kernel.correlation = correlation;
          kernel.stream = {1, 7};
          to.Add(kernel);
        }
        buffers.release();
      })) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    const GpuRecorderStats stats = thread.Stop();
    writer.Finish();
    state.counters["rows"] = static_cast<double>(stats.rows);
    state.counters["bytes_a_row"] =
        static_cast<double>(std::filesystem::file_size(kPath)) / static_cast<double>(stats.rows);
    state.counters["peak_MiB_more"] = PeakMebibytes() - before;
  }
  state.SetItemsProcessed(state.iterations() * kRecords);
  std::filesystem::remove(kPath);
}
BENCHMARK(RecordTenMillion)->UseRealTime()->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stallcast::capture

BENCHMARK_MAIN();
