#include "capture/calibrate/host/measure_host.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <utility>

#include "capture/calibrate/timing/device_times.h"
#include "capture/calibrate/timing/fit.h"
#include "capture/calibrate/timing/recording.h"
#include "kernels/movement/movement.h"
#include "kernels/runtime/cuda_handles.h"
#include "kernels/runtime/host_cores.h"
#include "kernels/runtime/probe.h"
#include "traces/common/error.h"
#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

using hardware::How;
using hardware::Site;

using kernels::Buffer;
using kernels::Check;
using kernels::Event;
using kernels::Memory;
using kernels::OnCore;
using SteadyClock = std::chrono::steady_clock;

// Calls of one kind, one after the other.
constexpr int kTrainCalls = 200, kTrainTrials = 15;

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

// Seconds of what `enqueue` gives the stream and the wait for it, one after the other as a method's
// are that decides by them. Their mean, since some waits are several times as long as most.
template <class Enqueue>
double WaitFor(const Stopwatch& watch, const Enqueue& enqueue) {
  constexpr int kTrials = 5, kRounds = 31;
  return Stopwatch::Median(kTrials, [&] {
    const auto begin = SteadyClock::now();
    for (int i = 0; i < kRounds; ++i) {
      enqueue();
      Check(cudaStreamSynchronize(watch.stream()), "cudaStreamSynchronize");
    }
    return SecondsSince(begin) / kRounds;
  });
}

constexpr int64_t kScalar = sizeof(int), kLargePage = 131072;

struct Copied {
  bool to_device;
  int64_t bytes;
};

// Seconds of copies to an idle stream, one behind the other, and of the wait for the last.
double WaitForCopies(const Stopwatch& watch, const CopyEnds& ends,
                     std::initializer_list<Copied> copies) {
  int at = 0;
  return WaitFor(watch, [&] {
    for (const auto& [to_device, bytes] : copies) {
      ends.CopyPage(at++, bytes, to_device, watch.stream());
    }
  });
}

// What a copy comes later behind one the other way than behind one the same way, on a stream that
// was idle: such are the copies that a host waits for between two of its decisions. The mean over
// first ones that end at each moment of a period of looks, the host being ahead. In a train, whose
// commands all lie ready, the handover is shorter.
double DirectionGap(const Stopwatch& watch, const CopyEnds& ends, bool to_device) {
  constexpr int64_t kShortest = 262144, kStep = 57344, kLengths = 8;
  const Copied second{to_device, to_device ? kLargePage : kScalar};
  const double of_second =
      WaitForCopies(watch, ends, {second, second}) - WaitForCopies(watch, ends, {second});
  double sum = 0;
  for (int i = 0; i < kLengths; ++i) {
    const Copied first{!to_device, kShortest + i * kStep};
    sum += WaitForCopies(watch, ends, {first, second}) - WaitForCopies(watch, ends, {first});
  }
  return sum / kLengths - of_second;
}

}  // namespace

double LaunchHere(Stopwatch& watch, int trials) {
  return watch.HostTime(
      kTrainCalls, [&](int) { kernels::Nothing(watch.stream()); }, trials);
}

double CopyHere(Stopwatch& watch, const CopyEnds& ends, int& at, int trials) {
  return watch.HostTime(
      kTrainCalls, [&](int) { ends.CopyPage(at++, CopyEnds::kPage, true, watch.stream()); },
      trials);
}

// As plans have them: each op's own event, recorded behind a kernel and awaited on another stream
// before it has come (the same event over and over takes half as long); each copy of another page
// (the same again are found faster), and flags to the host that a kernel has written. One after the
// other in each trial: a core that others slow for a while slows them all.
HostCalls MeasureCalls(Stopwatch& watch, const CopyEnds& ends) {
  constexpr int64_t kFlag = 256;
  std::vector<Event> events;
  events.reserve(kTrainCalls);
  for (int i = 0; i < kTrainCalls; ++i) events.emplace_back(cudaEventDisableTiming);
  const auto record = [&](int i) {
    Check(cudaEventRecord(events[static_cast<size_t>(i)], watch.stream()), "cudaEventRecord");
  };
  int at = 0;
  const auto trial = [&] {
    HostCalls calls;
    calls.launch = LaunchHere(watch, 1);
    const auto behind_a_launch = [&](const auto& call) {
      const double both = watch.HostTime(
          kTrainCalls,
          [&](int i) {
            kernels::Nothing(watch.stream());
            call(i);
          },
          1);
      return std::max(both - calls.launch, 1e-8);
    };
    calls.event_record = behind_a_launch(record);
    calls.stream_wait = Stopwatch::Median(1, [&] {
      watch.Hold();
      for (int i = 0; i < kTrainCalls; ++i) record(i);
      const auto begin = SteadyClock::now();
      for (const Event& event : events) {
        Check(cudaStreamWaitEvent(watch.other(), event, 0), "cudaStreamWaitEvent");
      }
      const double seconds = SecondsSince(begin);
      watch.Release();
      watch.Finish();
      return seconds / kTrainCalls;
    });
    calls.copy = CopyHere(watch, ends, at, 1);
    calls.copy_back =
        behind_a_launch([&](int) { ends.CopyPage(at++, kFlag, false, watch.stream()); });
    return calls;
  };
  return Typical(Stopwatch::QuietTrials(kTrainTrials, trial));
}

HostWaits MeasureWaits(Stopwatch& watch, const CopyEnds& ends) {
  watch.Finish();
  int at = 0;
  // Among copies of pages; alone, the same flag over and over, they take 1 us less.
  const auto behind_a_page = [&](int flags) {
    return WaitFor(watch, [&] {
      ends.CopyPage(at++, kLargePage, true, watch.stream());
      for (int i = 0; i < flags; ++i) {
        if (i > 0) Check(cudaStreamSynchronize(watch.stream()), "cudaStreamSynchronize");
        ends.CopyPage(at++, kScalar, false, watch.stream());
      }
    });
  };
  return {.kernel = WaitFor(watch, [&] { kernels::Nothing(watch.stream()); }),
          .flag = (behind_a_page(4) - behind_a_page(1)) / 3,
          .to_host_gap = DirectionGap(watch, ends, false),
          .to_device_gap = DirectionGap(watch, ends, true)};
}

void MeasureHost(Stopwatch& watch, hardware::Profile& profile) {
  const OnCore core = kernels::OnFastestCore();
  profile.host.launch = LaunchHere(watch);
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
  profile.host.graph_launch = line.a;
  profile.host.graph_node = line.b;

  profile.host.spread = 0.1;
}

std::optional<double> MeasureGaps(Stopwatch& watch, const CopyEnds& ends,
                                  hardware::Profile& profile) {
  constexpr int kTrain = 100;
  enum Train : int32_t { kKernels, kWaits, kFlags, kGraph, kTrains };
  const std::vector<int> cores = kernels::FastestCores(1, kernels::LaunchTimer());
  const std::unique_ptr<Recording> recording = Recording::Begin();
  if (!recording) return std::nullopt;
  const OnCore core(cores, 0);  // its threads have started elsewhere
  GpuRecorder& recorder = recording->recorder();
  const auto train = [&](Train kind, const auto& work) {
    watch.Hold();
    for (int i = 0; i < kTrain; ++i) {
      recorder.PushOp(kind, i);
      work(i);
      recorder.PopOp();
    }
    watch.Release();
    watch.Finish();
  };
  train(kKernels, [&](int) { kernels::Nothing(watch.stream()); });
  const auto waits = [&](Train kind, const auto& work) {
    for (int i = 0; i < kTrain; ++i) {
      recorder.PushOp(kind, i);
      work(i);
      Check(cudaStreamSynchronize(watch.stream()), "cudaStreamSynchronize");
      recorder.PopOp();
    }
  };
  waits(kWaits, [&](int) { kernels::Nothing(watch.stream()); });
  waits(kFlags, [&](int i) { ends.CopyPage(i, kScalar, false, watch.stream()); });
  recorder.PushOp(kGraph, 0);
  const cudaGraphExec_t graph = EmptyGraph(watch.stream(), kTrain);
  recorder.PopOp();
  recorder.PushOp(kGraph, 0);
  Check(cudaGraphLaunch(graph, watch.stream()), "cudaGraphLaunch");
  recorder.PopOp();
  watch.Finish();
  const traces::Trace trace = recording->End();
  cudaGraphExecDestroy(graph);

  struct Span {
    double start, end;
  };
  // An op's work on the GPU, and its calls, in order.
  struct Ran {
    std::vector<Span> gpu, calls;
  };
  std::vector<std::vector<Ran>> ran(kTrains, std::vector<Ran>(kTrain));
  for (const traces::Timeline& timeline : trace.timelines) {
    for (int64_t i = 0; i < timeline.rows(); ++i) {
      const auto at = static_cast<size_t>(i);
      const int32_t step = timeline.step[at];
      const int64_t op = timeline.op[at];
      if (step < 0 || step >= kTrains || op < 0 || op >= kTrain) continue;
      Ran& of = ran[static_cast<size_t>(step)][static_cast<size_t>(op)];
      const bool call = timeline.lanes[timeline.lane[at]].kind == traces::LaneKind::kHost;
      const double start = Seconds(timeline.start[at]);
      (call ? of.calls : of.gpu).push_back({start, start + Seconds(timeline.duration[at])});
    }
  }
  for (std::vector<Ran>& ops : ran) {
    for (Ran& of : ops) {
      std::ranges::sort(of.gpu, {}, &Span::start);
      std::ranges::sort(of.calls, {}, &Span::start);
    }
  }
  // The mean: some are several times as long as most, in a step too.
  const auto gap = [&](Train kind) {
    std::vector<Span> rows;
    for (const Ran& of : ran[kind]) rows.insert(rows.end(), of.gpu.begin(), of.gpu.end());
    std::ranges::sort(rows, {}, &Span::start);
    double gaps = 0;
    for (size_t i = 1; i < rows.size(); ++i) gaps += rows[i].start - rows[i - 1].end;
    return rows.size() < kTrain / 2 ? 0.0
                                    : std::max(gaps / static_cast<double>(rows.size() - 1), 1e-8);
  };
  // Of what passes beside a call and its work until the host knows, the share before the work.
  struct Wait {
    double share, work;
  };
  const auto wait_of = [&](Train kind) -> std::optional<Wait> {
    std::vector<double> before, after, work;
    for (const Ran& of : ran[kind]) {
      // The launch, or copy, and the synchronisation; CUPTI has the wait in that once more.
      if (of.gpu.size() != 1 || of.calls.size() < 2) continue;
      before.push_back(of.gpu.front().start - of.calls[0].end);
      after.push_back(of.calls[1].end - of.gpu.front().end);
      work.push_back(of.gpu.front().end - of.gpu.front().start);
    }
    if (std::ssize(work) < kTrain / 2) return std::nullopt;
    const double launch = std::max(Median(std::move(before)), 1e-8);
    const double sync = std::max(Median(std::move(after)), 1e-8);
    return Wait{launch / (launch + sync), Median(std::move(work))};
  };
  const double between = gap(kKernels), in_graph = gap(kGraph);
  const std::optional<Wait> of_kernel = wait_of(kWaits), of_flag = wait_of(kFlags);
  if (between == 0 || !of_kernel || !of_flag) return std::nullopt;
  profile.handoff(Site::kKernel, Site::kKernel, How::kStream) = between;
  if (in_graph > 0) profile.handoff(Site::kKernel, Site::kKernel, How::kGraph) = in_graph;
  const double total = profile.handoff(Site::kKernel, Site::kHost, How::kEvent) +
                       profile.handoff(Site::kHost, Site::kKernel, How::kStream) - of_kernel->work;
  if (total > 0) {
    profile.handoff(Site::kHost, Site::kKernel, How::kStream) = total * of_kernel->share;
    profile.handoff.SetHostSync(total * (1 - of_kernel->share));
  }
  return of_flag->share;
}

void MeasureRecorder(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile) {
  // Differences of some 1 us between two measurements, which cannot take turns: what has been
  // recorded once stays slower.
  constexpr int kQuiet = 3, kMost = 15, kOps = 2000, kCopies = 100, kWaits = 101;
  constexpr int64_t kFlag = 256;
  enum Step : int32_t { kOthers, kTrains };
  const auto copy = [&](int i) { ends.CopyPage(i, CopyEnds::kPage, true, watch.stream()); };
  // As a method waits for a flag.
  const auto wait = [&] {
    return watch.WallTime(
        [&] {
          ends.CopyPage(0, kFlag, false, watch.stream());
          Check(cudaStreamSynchronize(watch.stream()), "cudaStreamSynchronize");
        },
        kWaits);
  };
  struct Round {
    HostCalls calls;
    double wait = 0;
    double other = 0;  // between copies alone, an op's own time recorded
  };
  // Rounds until enough are quiet: others slow all calls of one by 1.4 times. No core is kept
  // between them, where the recorder would start its threads.
  const auto rounds = [&](const auto& within, const auto& other) {
    int round = 0;
    return Stopwatch::QuietTrials(kQuiet, kMost, kernels::OnFastestCore, [&] {
      Round of;
      within([&] { of.calls = MeasureCalls(watch, ends), of.wait = wait(); });
      of.other = other(round++);
      return of;
    });
  };
  const auto median = [](const std::vector<Round>& of, double Round::*value) {
    std::vector<double> values;
    for (const Round& round : of) values.push_back(round.*value);
    return Median(std::move(values));
  };
  const auto typical = [](const std::vector<Round>& of) {
    std::vector<HostCalls> calls;
    for (const Round& round : of) calls.push_back(round.calls);
    return Typical(calls);
  };
  const std::vector<Round> alone =
      rounds([](const auto& work) { work(); }, [&](int) { return watch.Period(kCopies, copy); });
  const HostCalls unrecorded = typical(alone);
  SetRecorded(unrecorded, unrecorded, profile);  // nothing more, where nothing is recorded
  profile.recorder.op = profile.recorder.copy = profile.recorder.sync = 0;
  profile.recorder.kernel = 0;
  const std::unique_ptr<Recording> recording = Recording::Begin();
  if (!recording) return;
  GpuRecorder& recorder = recording->recorder();
  const auto op = [&](Step step, int32_t id, const auto& work) {
    recorder.PushOp(step, id);
    work();
    recorder.PopOp();
  };
  const auto within = [&](const auto& work) { op(kOthers, 0, work); };
  const std::vector<Round> recorded = rounds(within, [&](int round) {
    const auto begin = SteadyClock::now();
    for (int i = 0; i < kOps; ++i) op(kOthers, 0, [] {});
    const double of_op = SecondsSince(begin) / kOps;
    watch.Hold();
    for (int i = 0; i < kCopies; ++i) op(kTrains, round * kCopies + i, [&] { copy(i); });
    watch.Release();
    watch.Finish();
    return of_op;
  });
  SetRecorded(unrecorded, typical(recorded), profile);
  profile.recorder.op = median(recorded, &Round::other);
  // What is neither the copy's call nor its time.
  profile.recorder.sync = std::max(median(recorded, &Round::wait) - median(alone, &Round::wait) -
                                       profile.recorder.copy_back_call,
                                   0.0);

  // From copy to copy, most of them: one that stood still would make its train a slow one.
  const auto spans = DeviceSpans(recording->End());
  const auto trains = spans.find(kTrains);
  if (trains == spans.end()) return;
  std::vector<double> apart;
  const DeviceSpan* before = nullptr;
  for (const auto& [id, span] : trains->second) {
    if (before != nullptr) apart.push_back(span.start - before->start);
    before = &span;
  }
  if (apart.empty()) return;
  profile.recorder.copy = std::max(Median(std::move(apart)) - median(alone, &Round::other), 0.0);
}

void RecordInlinedCopies(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile) {
  constexpr int kCopies = 40;
  profile.copy.h2d_inline_time = {};
  const std::vector<double> sizes = profile.copy.h2d_inline_call.x();
  const std::unique_ptr<Recording> recording = sizes.empty() ? nullptr : Recording::Begin();
  if (!recording) return;
  GpuRecorder& recorder = recording->recorder();
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (int copy = 0; copy < kCopies; ++copy) {
      recorder.PushOp(static_cast<int32_t>(i), copy);
      ends.CopyPage(copy, static_cast<int64_t>(sizes[i]), true, watch.stream());
      recorder.PopOp();
      watch.Finish();  // the next finds its stream idle
    }
  }
  auto spans = DeviceSpans(recording->End());
  std::vector<double> times;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::optional<double> seconds = MeanTime(spans[static_cast<int32_t>(i)]);
    if (!seconds) return;
    times.push_back(std::max(*seconds, 1e-8));
  }
  profile.copy.h2d_inline_time = hardware::Curve(sizes, std::move(times));
}

}  // namespace stallcast::capture
