#include "kernels/executor/executor.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/cuda_handles.h"
#include "kernels/runtime/fast_streams.h"
#include "kernels/runtime/host_cores.h"
#include "models/plan/events.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using plan::LaneId;
using plan::Op;
using plan::OpId;

class Graph {
 public:
  Graph() = default;
  Graph(Graph&& other) noexcept
      : graph_(std::exchange(other.graph_, nullptr)), exec_(std::exchange(other.exec_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(graph_, other.graph_);
    std::swap(exec_, other.exec_);
    return *this;
  }
  ~Graph() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  void EndCapture(cudaStream_t origin) {
    Check(cudaStreamEndCapture(origin, &graph_), "cudaStreamEndCapture");
    Check(cudaGraphInstantiate(&exec_, graph_, 0), "cudaGraphInstantiate");
    Check(cudaGraphUpload(exec_, origin), "cudaGraphUpload");
  }
  cudaGraphExec_t exec() const { return exec_; }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

size_t StreamLanes(const plan::Plan& plan) {
  return static_cast<size_t>(
      std::ranges::count(plan.lanes, traces::LaneKind::kStream, &plan::Lane::kind));
}

}  // namespace

struct Executor::Impl {
  const plan::Plan& plan;
  std::vector<OpWork> work;              // by op
  std::vector<std::vector<OpId>> calls;  // by host lane, in its order
  std::vector<OpId> issued_before;       // by op: op of its stream that another thread issues first
  std::vector<Event> events;             // by op; made where another lane waits for it
  plan::EventUse uses;
  FastStreams fast;
  std::vector<cudaStream_t> streams;  // by lane; null of a host lane
  std::vector<int> step_ending_at;    // by op: the step whose last compute op it is, or -1
  std::vector<Event> step_events;     // start, then the end of each step
  std::vector<Graph> graphs;          // by op; made for GraphLaunch
  LaneId compute = LaneId::kNone;
  std::vector<int> cores;  // for the host lanes with calls, in order, chosen at the last run
  std::vector<std::vector<double>> core_loads;  // by lane; at the start and each step's end

  // Which ops have been issued (stream work) or done (host work).
  std::vector<std::atomic<bool>> passed;
  // A thread that sleeps until an op is done: no notice wakes those that it is not for.
  struct Sleeper {
    std::atomic<OpId> until = OpId::kNone;
    std::condition_variable notice;
  };
  std::mutex mutex;
  std::vector<Sleeper> sleepers;  // by lane
  std::atomic<bool> failed = false;
  std::exception_ptr failure;

  Impl(const plan::Plan& p, Binder& binder);

  void MakeEvents();
  void CaptureGraphs(OpObserver* observer);
  void Capture(OpId launch, OpObserver* observer);
  /// `launch`: the op whose graph is being captured, if any.
  void Enqueue(OpId id, OpId launch = OpId::kNone);
  void WaitUntilPassed(OpId id);
  void SleepUntilPassed(OpId id, LaneId lane);
  /// Wakes all, for them to end. Under `mutex`.
  void Fail();
  void Sync(const Op& op);
  void Do(OpId id, const RunOptions& options);
  /// Tells those that sleep until `id` is done.
  void Notify(OpId id);
  void RunLane(size_t lane, const RunOptions& options);
  bool IsHost(LaneId lane) const { return plan.lanes[At(lane)].kind == traces::LaneKind::kHost; }
};

Executor::Impl::Impl(const plan::Plan& p, Binder& binder)
    : plan(p),
      calls(p.lanes.size()),
      issued_before(p.ops.size(), OpId::kNone),
      events(p.ops.size()),
      fast(StreamLanes(p)),
      step_ending_at(p.ops.size(), -1),
      graphs(p.ops.size()),
      passed(p.ops.size()),
      sleepers(p.lanes.size()) {
  for (size_t lane = 0; lane < plan.lanes.size(); ++lane) {
    if (plan.lanes[lane].compute) compute = LaneId{static_cast<int16_t>(lane)};
  }
  if (compute == LaneId::kNone) throw std::logic_error("executor: a plan without a compute lane");
  // The compute lane gets the first, the others those that come next.
  streams.resize(plan.lanes.size());
  streams[At(compute)] = fast[0];
  for (size_t lane = 0, next = 1; lane < plan.lanes.size(); ++lane) {
    const bool stream = plan.lanes[lane].kind == traces::LaneKind::kStream;
    if (stream && lane != At(compute)) streams[lane] = fast[next++];
  }
  std::vector<OpId> last(plan.lanes.size(), OpId::kNone);
  work.reserve(plan.ops.size());
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const OpId id{static_cast<int32_t>(i)};
    calls[At(op.issuer)].push_back(id);
    if (const OpId before = last[At(op.lane)];
        before != OpId::kNone && plan[before].issuer != op.issuer) {
      issued_before[i] = before;
    }
    last[At(op.lane)] = id;
    work.push_back(binder.Bind(op));
  }
  MakeEvents();
  CaptureGraphs(nullptr);
}

void Executor::Impl::CaptureGraphs(OpObserver* observer) {
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (std::holds_alternative<plan::GraphLaunch>(plan.ops[i].work)) {
      Capture(OpId{static_cast<int32_t>(i)}, observer);
    }
  }
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void Executor::Impl::MakeEvents() {
  uses = plan::FindEvents(plan);
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (uses.recorded[i]) events[i] = Event(cudaEventDisableTiming);
  }
  step_events.emplace_back(cudaEventDefault);
  const bool prefill = plan.step_ends.empty();
  std::vector<OpId> last_compute(prefill ? 1 : plan.step_ends.size(), OpId::kNone);
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.lane == compute && (prefill || op.step >= 0)) {
      last_compute[prefill ? 0 : static_cast<size_t>(op.step)] = OpId{static_cast<int32_t>(i)};
    }
  }
  for (size_t step = 0; step < last_compute.size(); ++step) {
    step_events.emplace_back(cudaEventDefault);
    if (last_compute[step] == OpId::kNone) throw std::logic_error("executor: a step without work");
    step_ending_at[At(last_compute[step])] = static_cast<int>(step);
  }
}

// The launch's nodes: the ops that follow until one that is none. Streams beside the compute stream
// fork from it and join it again.
void Executor::Impl::Capture(OpId launch, OpObserver* observer) {
  const cudaStream_t origin = streams[At(compute)];
  const Event fork(cudaEventDisableTiming);
  std::vector<bool> joined(plan.lanes.size(), false);
  Check(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  Check(cudaEventRecord(fork, origin), "cudaEventRecord");
  joined[At(compute)] = true;
  for (size_t i = At(launch) + 1; i < plan.ops.size() && plan.ops[i].graph_node; ++i) {
    const size_t lane = At(plan.ops[i].lane);
    if (!joined[lane]) Check(cudaStreamWaitEvent(streams[lane], fork, 0), "cudaStreamWaitEvent");
    joined[lane] = true;
    const OpId id{static_cast<int32_t>(i)};
    if (observer != nullptr) observer->Begin(plan[id], id);
    Enqueue(id, launch);
    if (observer != nullptr) observer->End(plan[id], id);
  }
  for (size_t lane = 0; lane < joined.size(); ++lane) {
    if (!joined[lane] || lane == At(compute)) continue;
    const Event join(cudaEventDisableTiming);
    Check(cudaEventRecord(join, streams[lane]), "cudaEventRecord");
    Check(cudaStreamWaitEvent(origin, join, 0), "cudaStreamWaitEvent");
  }
  Graph graph;
  graph.EndCapture(origin);
  graphs[At(launch)] = std::move(graph);
}

void Executor::Impl::Enqueue(OpId id, OpId launch) {
  const Op& op = plan[id];
  const cudaStream_t stream = streams[At(op.lane)];
  for (const OpId wait : plan.Waits(op)) {
    // Inside the graph, an edge; before the launch, over by then: it is in the compute stream or in
    // an earlier graph, which joins that stream.
    if (op.graph_node && wait < launch) continue;
    Check(cudaStreamWaitEvent(stream, events[At(wait)], 0), "cudaStreamWaitEvent");
  }
  if (work[At(id)]) work[At(id)](stream);
  if (events[At(id)]) Check(cudaEventRecord(events[At(id)], stream), "cudaEventRecord");
}

void Executor::Impl::WaitUntilPassed(OpId id) {
  while (!passed[At(id)].load(std::memory_order_acquire)) {
    if (failed) throw std::runtime_error("another thread of the plan failed");
    std::this_thread::yield();
  }
}

void Executor::Impl::SleepUntilPassed(OpId id, LaneId lane) {
  Sleeper& sleeper = sleepers[At(lane)];
  std::unique_lock lock(mutex);
  sleeper.until = id;
  sleeper.notice.wait(lock, [&] { return passed[At(id)] || failed; });
  sleeper.until = OpId::kNone;
  if (failed) throw std::runtime_error("another thread of the plan failed");
}

void Executor::Impl::Fail() {
  failed = true;
  for (Sleeper& sleeper : sleepers) sleeper.notice.notify_one();
}

void Executor::Impl::Sync(const Op& op) {
  for (uint32_t w = op.waits_begin; w < op.waits_begin + op.waits_count; ++w) {
    const OpId wait = plan.waits[w];
    WaitUntilPassed(wait);
    if (IsHost(plan[wait].lane)) continue;
    if (uses.whole_stream[w]) {
      Check(cudaStreamSynchronize(streams[At(plan[wait].lane)]), "cudaStreamSynchronize");
    } else {
      Check(cudaEventSynchronize(events[At(wait)]), "cudaEventSynchronize");
    }
  }
}

void Executor::Impl::Do(OpId id, const RunOptions& options) {
  const Op& op = plan[id];
  if (op.graph_node) {
    passed[At(id)].store(true, std::memory_order_release);
    return;
  }
  const bool of_stream = !IsHost(op.lane);
  if (of_stream) {
    if (issued_before[At(id)] != OpId::kNone) WaitUntilPassed(issued_before[At(id)]);
    for (const OpId wait : plan.Waits(op)) WaitUntilPassed(wait);
  }
  if (options.observer != nullptr) options.observer->Begin(op, id);
  if (of_stream) {
    Enqueue(id);
  } else if (std::holds_alternative<plan::HostSync>(op.work)) {
    Sync(op);
  } else if (std::holds_alternative<plan::GraphLaunch>(op.work)) {
    Check(cudaGraphLaunch(graphs[At(id)].exec(), streams[At(compute)]), "cudaGraphLaunch");
  } else {
    for (const OpId wait : plan.Waits(op)) {
      if (std::holds_alternative<plan::HostHandoff>(op.work)) {
        SleepUntilPassed(wait, op.lane);
      } else if (IsHost(plan[wait].lane)) {
        WaitUntilPassed(wait);
      } else {
        WaitUntilPassed(wait);
        Check(cudaEventSynchronize(events[At(wait)]), "cudaEventSynchronize");
      }
    }
    if (work[At(id)]) work[At(id)](nullptr);
  }
  const bool notifies = std::holds_alternative<plan::HostHandoff>(op.work);
  if (notifies) Notify(id);  // its time is the notice's
  if (options.observer != nullptr) options.observer->End(op, id);
  if (!notifies) passed[At(id)].store(true, std::memory_order_release);
}

void Executor::Impl::Notify(OpId id) {
  {
    const std::lock_guard lock(mutex);
    passed[At(id)] = true;
  }
  for (Sleeper& sleeper : sleepers) {
    if (sleeper.until == id) sleeper.notice.notify_one();
  }
}

void Executor::Impl::RunLane(size_t lane, const RunOptions& options) {
  try {
    if (options.observer != nullptr) options.observer->NameThread(plan.lanes[lane]);
    std::vector<double>& core = core_loads[lane];
    size_t looked = 1;
    const auto look_at_core = [&](size_t until) {
      const double now = CoreLoad();
      while (looked <= until) core[looked++] = now;
    };
    size_t step = 0;
    for (const OpId id : calls[lane]) {
      if (const auto begun = static_cast<size_t>(std::max(plan[id].step, 0));
          begun >= looked && begun < core.size()) {
        look_at_core(begun);
      }
      Do(id, options);
      if (const int ends = step_ending_at[At(id)]; ends >= 0 && !plan[id].graph_node) {
        Check(cudaEventRecord(step_events[static_cast<size_t>(ends) + 1], streams[At(compute)]),
              "cudaEventRecord");
      }
      if (std::holds_alternative<plan::GraphLaunch>(plan[id].work)) {
        Check(cudaEventRecord(step_events[static_cast<size_t>(plan[id].step) + 1],
                              streams[At(compute)]),
              "cudaEventRecord");
      }
      if (step < plan.step_ends.size() && plan.step_ends[step] == id) {
        if (options.after_step) {
          // Other threads may not have issued all of theirs yet.
          for (int32_t op = 0; op <= plan::Index(id); ++op) WaitUntilPassed(OpId{op});
          Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
          options.after_step(static_cast<int>(step));
        }
        ++step;
      }
    }
    look_at_core(core.size() - 1);
  } catch (...) {
    const std::lock_guard lock(mutex);
    if (!failed) failure = std::current_exception();
    Fail();
  }
}

Executor::Executor(const plan::Plan& plan, Binder& binder)
    : impl_(std::make_unique<Impl>(plan, binder)) {}

Executor::~Executor() = default;

void Executor::Recapture(OpObserver& observer) { impl_->CaptureGraphs(&observer); }

std::vector<RanStep> Executor::Run(const RunOptions& options) {
  Impl& run = *impl_;
  for (auto& passed : run.passed) passed = false;
  run.failed = false;
  run.failure = nullptr;
  int device = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  if (options.observer != nullptr) {
    for (size_t lane = 0; lane < run.plan.lanes.size(); ++lane) {
      if (run.plan.lanes[lane].kind != traces::LaneKind::kStream) continue;
      options.observer->NameStream(run.streams[lane], run.plan.lanes[lane]);
    }
  }
  std::vector<size_t> callers;  // host lanes
  for (size_t lane = 0; lane < run.calls.size(); ++lane) {
    if (!run.calls[lane].empty()) callers.push_back(lane);
  }
  if (options.after_step) {
    run.cores.clear();  // who looks at each step may use all
  } else if (options.observer == nullptr) {
    // A recorder would see launches that are not the plan's: there the last run's choice holds.
    run.cores = FastestCores(callers.size(), LaunchTimer());
  }
  run.core_loads.assign(run.plan.lanes.size(), {});
  for (const size_t lane : callers) run.core_loads[lane].resize(run.step_events.size());
  if (!callers.empty()) {
    const OnCore core(run.cores, 0);
    run.core_loads[callers.front()].front() = WokenCoreLoad();
  }
  Check(cudaEventRecord(run.step_events[0], run.streams[At(run.compute)]), "cudaEventRecord");

  // The first host lane is this thread.
  std::vector<std::jthread> threads;
  try {
    for (size_t i = 1; i < callers.size(); ++i) {
      threads.emplace_back([&, i, device] {
        cudaSetDevice(device);
        const OnCore core(run.cores, i);
        run.core_loads[callers[i]].front() = WokenCoreLoad();
        run.RunLane(callers[i], options);
      });
    }
  } catch (const std::system_error&) {
    // Those that have started wait for this one.
    const std::lock_guard lock(run.mutex);
    run.Fail();
    throw Error("cannot start another thread", "executor", "end other programs");
  }
  if (!callers.empty()) {
    const OnCore core(run.cores, 0);
    run.RunLane(callers.front(), options);
  }
  for (std::jthread& thread : threads) thread.join();
  const cudaError_t finished = cudaDeviceSynchronize();
  if (run.failure) std::rethrow_exception(run.failure);
  Check(finished, "cudaDeviceSynchronize");

  std::vector<RanStep> steps;
  for (size_t step = 1; step < run.step_events.size(); ++step) {
    RanStep& ran = steps.emplace_back();
    ran.time = FromSeconds(ElapsedSeconds(run.step_events[step - 1], run.step_events[step]));
    for (const size_t lane : callers) {
      const std::vector<double>& core = run.core_loads[lane];
      ran.core_load = std::max({ran.core_load, core[step - 1], core[step]});
    }
  }
  return steps;
}

}  // namespace stallcast::kernels
