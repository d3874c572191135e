#include "capture/calibrate/measure_host.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "capture/calibrate/fit.h"
#include "capture/calibrate/measure_gather.h"
#include "capture/gpu_recorder.h"
#include "capture/run_info.h"
#include "kernels/movement.h"
#include "traces/common/error.h"

namespace stallcast::capture {
namespace {

using kernels::Buffer;
using kernels::Check;
using kernels::Memory;
using SteadyClock = std::chrono::steady_clock;

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

cudaEvent_t NewEvent() {
  cudaEvent_t event = nullptr;
  Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return event;
}

// A CUDA graph of `nodes` empty kernels.
cudaGraphExec_t EmptyGraph(cudaStream_t stream, int nodes) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (int i = 0; i < nodes; ++i) kernels::Nothing(stream);
  Check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  Check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  Check(cudaGraphUpload(exec, stream), "cudaGraphUpload");
  cudaGraphDestroy(graph);
  return exec;
}

// Two threads that wake one another through a condition variable.
void MeasureHandoff(hardware::Profile& profile) {
  constexpr int kRounds = 200;
  std::mutex mutex;
  std::condition_variable wake;
  int turn = 0;
  std::vector<double> notify, latency;
  SteadyClock::time_point noticed;
  std::thread other([&] {
    for (int round = 0; round < kRounds; ++round) {
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return turn == 2 * round + 1; });
      latency.push_back(SecondsSince(noticed));
      ++turn;
      lock.unlock();
      wake.notify_all();
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    // Asleep, not about to: as a worker that has had nothing to do.
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    const auto begin = SteadyClock::now();
    {
      const std::lock_guard lock(mutex);
      noticed = SteadyClock::now();
      turn = 2 * round + 1;
    }
    wake.notify_all();
    notify.push_back(SecondsSince(begin));
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] { return turn == 2 * round + 2; });
  }
  other.join();
  const auto median = [](std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
    return values[kRounds / 2];
  };
  profile.host_notify = median(notify);
  profile.host_handoff = std::max(median(latency) - profile.host_notify, 1e-7);
}

// What calls take longer right after a thread has been woken, beside its later ones.
void MeasureColdCalls(Stopwatch& watch, hardware::Profile& profile) {
  constexpr int kRounds = 60, kCalls = 40;
  const Buffer<std::byte> host(16384, Memory::kPinned), device(16384);
  std::mutex mutex;
  std::condition_variable wake;
  int turn = 0, gpu = 0;
  Check(cudaGetDevice(&gpu), "cudaGetDevice");
  std::vector<std::vector<double>> seconds(kCalls);
  std::thread worker([&] {
    cudaSetDevice(gpu);
    for (int round = 0; round < kRounds; ++round) {
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return turn == 2 * round + 1; });
      for (int i = 0; i < kCalls; ++i) {
        const auto begin = SteadyClock::now();
        if (i % 2 == 0) {
          kernels::Nothing(watch.other());
        } else {
          Check(cudaMemcpyAsync(device.get(), host.get(), 16384, cudaMemcpyHostToDevice,
                                watch.other()),
                "cudaMemcpyAsync");
        }
        if (round > 0) seconds[static_cast<size_t>(i)].push_back(SecondsSince(begin));
      }
      ++turn;
      lock.unlock();
      wake.notify_all();
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    // Meanwhile this thread calls, as one does that hands work over.
    for (int i = 0; i < 20; ++i) kernels::Nothing(watch.stream());
    watch.Finish();
    std::unique_lock lock(mutex);
    turn = 2 * round + 1;
    wake.notify_all();
    wake.wait(lock, [&] { return turn == 2 * round + 2; });
  }
  worker.join();
  watch.Finish();
  std::vector<double> medians;
  for (std::vector<double>& of : seconds) {
    std::nth_element(of.begin(), of.begin() + kRounds / 2, of.end());
    medians.push_back(of[kRounds / 2]);
  }
  // Launches against later launches, copies against later copies.
  double longer = 0;
  for (int i = 0; i < hardware::kColdCalls; ++i) {
    double later = 0;
    for (int j = kCalls / 2 + i % 2; j < kCalls; j += 2) later += medians[static_cast<size_t>(j)];
    longer += medians[static_cast<size_t>(i)] - later / (kCalls / 4);
  }
  profile.host_cold_call = std::max(longer / hardware::kColdCalls, 0.0);
}

}  // namespace

void MeasureHost(Stopwatch& watch, hardware::Profile& profile) {
  profile.host_launch = watch.HostTime(200, [&](int) { kernels::Nothing(watch.stream()); });
  const Buffer<std::byte> page_on_host(16384, Memory::kPinned), page(16384);
  const auto copy = [&] {
    Check(cudaMemcpyAsync(page.get(), page_on_host.get(), 16384, cudaMemcpyHostToDevice,
                          watch.stream()),
          "cudaMemcpyAsync");
  };
  const double copies = watch.HostTime(200, [&](int) { copy(); });
  const double pairs = watch.HostTime(100, [&](int) {
    kernels::Nothing(watch.stream());
    copy();
  });
  profile.host_copy_switch = std::max(pairs - copies - profile.host_launch, 0.0);
  const cudaEvent_t event = NewEvent();
  profile.host_event_record = watch.HostTime(
      200, [&](int) { Check(cudaEventRecord(event, watch.stream()), "cudaEventRecord"); });
  profile.host_stream_wait = watch.HostTime(200, [&](int) {
    Check(cudaStreamWaitEvent(watch.stream(), event, 0), "cudaStreamWaitEvent");
  });
  // What they take of the stream: a wait for what is done, and a record.
  const double alone = watch.Period(100, [&](int) { kernels::Nothing(watch.stream()); });
  Check(cudaEventRecord(event, watch.other()), "cudaEventRecord");
  watch.Finish();
  const double waited = watch.Period(100, [&](int) {
    Check(cudaStreamWaitEvent(watch.stream(), event, 0), "cudaStreamWaitEvent");
    kernels::Nothing(watch.stream());
  });
  const cudaEvent_t recorded_event = NewEvent();
  const double recorded = watch.Period(100, [&](int) {
    kernels::Nothing(watch.stream());
    Check(cudaEventRecord(recorded_event, watch.stream()), "cudaEventRecord");
  });
  profile.device_event_wait = std::max(waited - alone, 0.0);
  profile.device_event_record = std::max(recorded - alone, 0.0);
  cudaEventDestroy(recorded_event);
  cudaEventDestroy(event);

  std::vector<double> nodes, launches;
  for (const int count : {20, 100, 400, 1000}) {
    const cudaGraphExec_t graph = EmptyGraph(watch.stream(), count);
    nodes.push_back(count);
    launches.push_back(
        watch.WallTime([&] { Check(cudaGraphLaunch(graph, watch.stream()), "cudaGraphLaunch"); }));
    watch.Finish();
    cudaGraphExecDestroy(graph);
  }
  const Line line = FitLine(nodes, launches);
  profile.host_graph_launch = line.a;
  profile.host_graph_node = line.b;

  // The whole of launch, run and synchronisation; MeasureGaps() splits it.
  const auto sync = [&] { Check(cudaStreamSynchronize(watch.stream()), "cudaStreamSynchronize"); };
  const double round_trip = watch.WallTime(
      [&] {
        kernels::Nothing(watch.stream());
        sync();
      },
      201);
  profile.host_sync = std::max((round_trip - profile.host_launch) / 2, 1e-7);
  profile.device_launch_latency = profile.host_sync;

  // Likewise of a copy of four bytes; without what MeasureGaps() gives to the synchronisation it
  // becomes the latency.
  const Buffer<int> host(1, Memory::kPinned), device(1);
  profile.device_copy_latency = watch.WallTime(
      [&] {
        Check(cudaMemcpyAsync(host.get(), device.get(), sizeof(int), cudaMemcpyDeviceToHost,
                              watch.stream()),
              "cudaMemcpyAsync");
        sync();
      },
      201);
  MeasureHandoff(profile);
  MeasureColdCalls(watch, profile);
  MeasureGather(profile);
  profile.host_spread = 0.1;
}

bool MeasureGaps(Stopwatch& watch, hardware::Profile& profile) {
  constexpr int kTrain = 100;
  enum Train : int32_t { kKernels, kRoundTrips, kGraph };
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("stallcast-calibrate-" + std::to_string(getpid()) + ".kvt");
  std::unique_ptr<GpuRecorder> recorder;
  try {
    GpuRecorderOptions options;
    options.copy_lanes = CopyLanes::kStreams;
    options.nvtx = false;
    recorder = std::make_unique<GpuRecorder>(path, RunInfo(), std::move(options));
  } catch (const Error&) {
    return false;
  }
  const auto train = [&](Train kind, const auto& work) {
    watch.Hold();
    for (int i = 0; i < kTrain; ++i) {
      recorder->PushOp(kind, i);
      work(i);
      recorder->PopOp();
    }
    watch.Release();
    watch.Finish();
  };
  train(kKernels, [&](int) { kernels::Nothing(watch.stream()); });
  for (int i = 0; i < kTrain; ++i) {
    recorder->PushOp(kRoundTrips, i);
    kernels::Nothing(watch.stream());
    Check(cudaStreamSynchronize(watch.stream()), "cudaStreamSynchronize");
    recorder->PopOp();
  }
  recorder->PushOp(kGraph, 0);
  const cudaGraphExec_t graph = EmptyGraph(watch.stream(), kTrain);
  recorder->PopOp();
  recorder->PushOp(kGraph, 0);
  Check(cudaGraphLaunch(graph, watch.stream()), "cudaGraphLaunch");
  recorder->PopOp();
  watch.Finish();
  recorder->Stop();
  cudaGraphExecDestroy(graph);
  const traces::Trace trace = traces::ReadTrace(path);
  std::filesystem::remove(path);

  // Work of the GPU and calls, by train, in order of start.
  struct Row {
    double start, end;
  };
  std::vector<std::vector<Row>> gpu(3), calls(3);
  for (const traces::Timeline& timeline : trace.timelines) {
    for (int64_t i = 0; i < timeline.rows(); ++i) {
      const auto at = static_cast<size_t>(i);
      if (timeline.step[at] < 0 || timeline.step[at] > kGraph) continue;
      const double start = Seconds(timeline.start[at]);
      const bool call = timeline.lanes[timeline.lane[at]].kind == traces::LaneKind::kHost;
      (call ? calls : gpu)[static_cast<size_t>(timeline.step[at])].push_back(
          {start, start + Seconds(timeline.duration[at])});
    }
  }
  const auto median = [](std::vector<double> values) {
    if (values.empty()) return 0.0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return std::max(*middle, 1e-8);
  };
  const auto gap = [&](Train kind) {
    std::vector<Row>& rows = gpu[kind];
    std::ranges::sort(rows, {}, &Row::start);
    std::vector<double> gaps;
    for (size_t i = 1; i < rows.size(); ++i) gaps.push_back(rows[i].start - rows[i - 1].end);
    return median(gaps);
  };
  if (gpu[kKernels].size() < kTrain / 2) return false;
  profile.device_gap = gap(kKernels);
  if (const double in_graph = gap(kGraph); in_graph > 0) profile.device_graph_gap = in_graph;

  // Of a round trip: from the launch call's end to the kernel, and from its end to the host.
  std::vector<Row>& runs = gpu[kRoundTrips];
  std::vector<Row>& made = calls[kRoundTrips];
  std::ranges::sort(runs, {}, &Row::start);
  std::ranges::sort(made, {}, &Row::start);
  std::vector<double> before, after, alone;
  for (const Row& run : runs) {
    // The launch is the last call that begins before the run, the wait the first that ends after.
    const auto next = std::ranges::upper_bound(made, run.start, {}, &Row::start);
    if (next != made.begin()) before.push_back(run.start - std::prev(next)->end);
    const auto wait = std::ranges::find_if(made, [&](const Row& row) { return row.end > run.end; });
    if (wait != made.end()) after.push_back(wait->end - run.end);
    alone.push_back(run.end - run.start);
  }
  const double total = profile.host_sync + profile.device_launch_latency - median(alone);
  const double launch = median(before), sync = median(after);
  if (launch + sync > 0 && total > 0) {
    profile.device_launch_latency = total * launch / (launch + sync);
    profile.host_sync = total * sync / (launch + sync);
  }
  return true;
}

}  // namespace stallcast::capture
