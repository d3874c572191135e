#include "capture/gpu/measured_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>
#include <variant>

#include "capture/calibrate/host/measure_gather.h"
#include "capture/calibrate/host/measure_host.h"
#include "capture/calibrate/timing/stopwatch.h"
#include "capture/calibrate/transfers/copy_ends.h"
#include "capture/gpu/background_copies.h"
#include "capture/gpu/best_run.h"
#include "capture/gpu/call_timer.h"
#include "capture/gpu/quiet_steps.h"
#include "capture/gpu/timed_as_calibrated.h"
#include "kernels/executor/cache_binder.h"
#include "kernels/executor/decoder_binder.h"
#include "kernels/executor/executor.h"
#include "kernels/executor/prefill_binder.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/host_cores.h"
#include "models/methods/decoder_plan.h"
#include "models/methods/projection.h"
#include "models/plan/graph.h"
#include "sim/quantile.h"
#include "traces/common/error.h"
#include "traces/common/median.h"
#include "traces/common/whole_file.h"

namespace stallcast::capture {
namespace {

// Tells the recorder which op the calls of a thread belong to. Host work that makes no CUDA call
// becomes a span of its own.
class RecordedOps : public kernels::OpObserver {
 public:
  explicit RecordedOps(GpuRecorder& recorder) : recorder_(recorder) {}

  void NameStream(cudaStream_t stream, const plan::Lane& lane) override {
    recorder_.NameStream(stream, lane.name, lane.compute);
  }
  void NameThread(const plan::Lane& lane) override { recorder_.NameThread(lane.name); }
  void Begin(const plan::Op& op, plan::OpId id) override {
    recorder_.PushOp(op.step, plan::Index(id));
    begun_ = recorder_.Now();
  }
  void End(const plan::Op& op, plan::OpId id) override {
    recorder_.PopOp();
    if (!std::holds_alternative<plan::HostGather>(op.work) &&
        !std::holds_alternative<plan::HostHandoff>(op.work)) {
      return;
    }
    recorder_.AddSpan(std::string(plan::KindName(op.work)), begun_, recorder_.Now(), op.step,
                      plan::Index(id), plan::MovedBytes(op.work));
  }

 private:
  GpuRecorder& recorder_;
  static thread_local Picoseconds begun_;
};
thread_local Picoseconds RecordedOps::begun_{0};

// A request made ready: tensors on the device, memory of the method, and ops bound.
class BoundRun {
 public:
  BoundRun(const RunRequest& request, const kernels::DecoderWeights& weights,
           kernels::HostPool& pool)
      : request_(request),
        weights_(weights),
        plan_(Executable(methods::WriteDecode(*request.method->method, request.input))),
        log_(request.input.log, llm::FullAttentionOnly(request.input.model), request.input.batch),
        layers_(Layers(request)),
        trace_(*request.trace, layers_, KvHeads(request)),
        run_(Describe(request, pool)),
        cache_(kernels::MakeCacheBinder(run_, *request.method)),
        decoder_(run_, weights, *cache_),
        executor_(plan_, decoder_) {}

  /// To where prefill leaves everything: before each run.
  void Reset() { decoder_.Reset(); }
  std::vector<kernels::RanStep> Run(const kernels::RunOptions& options) {
    return executor_.Run(options);
  }
  std::vector<kernels::RanStep> RunAnew(const kernels::RunOptions& options = {}) {
    Reset();
    return Run(options);
  }
  void Recapture(kernels::OpObserver& observer) { executor_.Recapture(observer); }
  const plan::Plan& plan() const { return plan_; }

  /// The prefill plan, bound when it is first needed.
  const plan::Plan& PrefillPlan() { return BoundPrefill().plan; }
  Picoseconds Prefill(const kernels::RunOptions& options = {}) {
    return BoundPrefill().executor.Run(options).front().time;
  }
  Picoseconds PrefillAnew() {
    cache_->Clear();
    return Prefill();
  }
  /// Steps from what the prefill has left.
  void RunOn(const kernels::RunOptions& options) {
    decoder_.Begin();
    executor_.Run(options);
  }
  bool StartsBehindPrompt() const { return run_.batch() == 1 || run_.stagger == 0; }
  kernels::CacheBinder& cache() { return *cache_; }
  bool has_values() const { return trace_.has_values(); }

 private:
  static plan::Plan Executable(plan::Plan plan) {
    if (const std::string why = plan::WhyNotExecutable(plan); !why.empty()) {
      throw UsageError(fmt::format("it cannot be run on a GPU: {}", why), "--host",
                       "use --host cpp without --as-run, or `stallcast predict`");
    }
    return plan;
  }
  // Of the trace's layers those that the log selects in, or all.
  static std::vector<int> Layers(const RunRequest& request) {
    if (request.input.log == nullptr) return request.trace->Layers();
    std::vector<int> layers;
    for (const traces::LayerAccess& access : request.input.log->layers) {
      if (!access.dense) layers.push_back(access.layer);
    }
    return layers;
  }
  // As many a layer as the log has.
  static int KvHeads(const RunRequest& request) {
    return request.input.log == nullptr ? 0 : request.input.log->kv_heads;
  }
  kernels::DecodeRun Describe(const RunRequest& request, kernels::HostPool& pool) const {
    const methods::PlanInput& input = request.input;
    if (input.prompt_tokens != trace_.prompt_tokens()) {
      throw UsageError(fmt::format("a run of context {} on a trace of {}", input.prompt_tokens,
                                   trace_.prompt_tokens()),
                       "--context", "capture or synthesize a trace with that prompt");
    }
    kernels::DecodeRun run;
    run.input = input;
    kernels::SetModel(input.model, run);
    run.trace = &trace_;
    run.source_of = methods::LayersByDepth(run.input.model.layers, layers_,
                                           request.trace->info.model().layers());
    run.recording = request.trace;
    run.recorded_layers = layers_;
    run.log = input.log == nullptr ? nullptr : &log_;
    run.stagger = log_.stagger();
    run.pool = &pool;
    const int64_t last = run.TraceStep(input.steps - 1, input.batch - 1);
    if (last >= trace_.steps()) {
      throw UsageError(
          fmt::format("step {} of the trace is needed, which has {}", last + 1, trace_.steps()),
          "--steps",
          fmt::format("run at most {} steps", trace_.steps() - (input.batch - 1) * run.stagger));
    }
    return run;
  }

  struct Prefilling {
    Prefilling(const RunRequest& request, const kernels::DecodeRun& run,
               const kernels::DecoderWeights& weights, kernels::CacheBinder& cache)
        : plan(methods::WritePrefill(*request.method->method, request.input)),
          binder(run, weights, cache),
          executor(plan, binder) {}
    plan::Plan plan;
    kernels::PrefillBinder binder;
    kernels::Executor executor;
  };
  Prefilling& BoundPrefill() {
    if (!prefill_) prefill_ = std::make_unique<Prefilling>(request_, run_, weights_, *cache_);
    return *prefill_;
  }

  const RunRequest& request_;
  const kernels::DecoderWeights& weights_;
  plan::Plan plan_;
  methods::ProjectedLog log_;
  std::vector<int> layers_;
  kernels::TraceTensors trace_;
  kernels::DecodeRun run_;
  std::unique_ptr<kernels::CacheBinder> cache_;
  kernels::DecoderBinder decoder_;
  kernels::Executor executor_;
  std::unique_ptr<Prefilling> prefill_;
};

kernels::RunOptions Compares(BoundRun& run, kernels::SelectionCheck& check) {
  kernels::RunOptions options;
  options.after_step = [&](int step) { run.cache().CheckStep(step, check); };
  return options;
}

// What `work` runs of `plan`, as a measured timeline.
GpuRecorderStats Recorded(const RunRequest& request, const std::string& title,
                          const plan::Plan& plan, const std::filesystem::path& path,
                          const traces::proto::TraceInfo& info,
                          const std::function<void(RecordedOps&)>& work) {
  GpuRecorderOptions options;
  options.title = title;
  options.notes = request.notes;
  options.copy_lanes = CopyLanes::kStreams;
  options.nvtx = false;
  options.flush_period = kBehindAll;
  options.label = [&plan](int32_t, int32_t op) -> OpLabel {
    if (op < 0 || static_cast<size_t>(op) >= plan.ops.size()) return {};
    const plan::Op& of = plan.ops[static_cast<size_t>(op)];
    return {of.role, of.layer};
  };
  GpuRecorder recorder(path, info, options);
  RecordedOps observer(recorder);
  work(observer);
  return recorder.Stop();
}

// How fast large copies to the GPU are, and what calls of small ones take.
class LinkProbe {
 public:
  /// Seconds of a call that copies a page, on the calling thread's core.
  double PageCall(Stopwatch& watch) const {
    int at = 0;
    return CopyHere(watch, ends_, at);
  }
  /// Bytes a second, now.
  double Rate() const {
    constexpr int kCopies = 8;  // 6 ms, of which their ends are a thousandth
    Stopwatch watch;
    return static_cast<double>(kLarge) /
           watch.Period(kCopies, [&](int) { ends_.Copy(0, kLarge, true, watch.stream()); });
  }

 private:
  static constexpr int64_t kLarge = int64_t{40} << 20;
  const CopyEnds ends_{kLarge};
};

HostNow MeanOf(const std::vector<HostNow>& looks) {
  HostNow mean;
  for (const HostNow& look : looks) {
    mean.launch += look.launch, mean.copy += look.copy, mean.gather += look.gather;
  }
  const auto count = static_cast<double>(looks.size());
  return {mean.launch / count, mean.copy / count, mean.gather / count};
}

}  // namespace

Picoseconds StepTimes::Mean() const {
  if (steps.empty()) return Picoseconds{0};
  return std::accumulate(steps.begin(), steps.end(), Picoseconds{0}) /
         static_cast<int64_t>(steps.size());
}

// As the predicted one is taken: steps differ by what they recall, more than an error may be.
Picoseconds StepTimes::P50() const {
  if (steps.empty()) return Picoseconds{0};
  std::vector<Picoseconds> ranked = steps;
  return sim::Quantile(ranked, 0.5);
}

struct GpuMachine {
  kernels::HostPool pool;
  LinkProbe link;
  kernels::CoreLoadSampler loads;
  std::unique_ptr<kernels::DecoderWeights> weights;

  const kernels::DecoderWeights& WeightsOf(const llm::Model& model) {
    if (!weights || llm::Describe(weights->model()) != llm::Describe(model)) {
      weights.reset();
      weights = std::make_unique<kernels::DecoderWeights>(model);
    }
    return *weights;
  }
  HostNow LookAtHost(Stopwatch& watch, const plan::Plan& plan) const;
};

// On cores as a plan's threads are kept on: others slow one, and not the next.
HostNow GpuMachine::LookAtHost(Stopwatch& watch, const plan::Plan& plan) const {
  const auto gathers = [](const plan::Op& op) {
    return std::holds_alternative<plan::HostGather>(op.work);
  };
  const auto calls = [](const plan::Lane& lane) { return lane.kind == traces::LaneKind::kHost; };
  const auto threads =
      std::max<size_t>(1, static_cast<size_t>(std::ranges::count_if(plan.lanes, calls)));
  const std::vector<int> cores = kernels::FastestCores(threads, kernels::LaunchTimer());
  std::vector<HostNow> looks;
  for (size_t thread = 0; thread < threads; ++thread) {
    const kernels::OnCore core(cores, thread);
    looks.push_back({.launch = LaunchHere(watch), .copy = link.PageCall(watch)});
  }
  HostNow now = MeanOf(looks);
  if (std::ranges::any_of(plan.ops, gathers)) {
    const kernels::OnCore core(cores, 0);
    now.gather = GatherHere(pool.memory());
  }
  return now;
}

GpuRunner::GpuRunner() {
  int devices = 0;
  kernels::Check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  kernels::Check(cudaFree(nullptr), "cudaFree");
  machine_ = std::make_unique<GpuMachine>();
}

GpuRunner::~GpuRunner() = default;

struct GpuRun::Impl {
  Impl(const RunRequest& of, GpuMachine& on)
      : request(of), machine(on), run(of, on.WeightsOf(of.input.model), on.pool) {}

  // Others' traffic, under way while this lives.
  std::unique_ptr<const BackgroundCopies> Background() const {
    if (request.machine == nullptr) return nullptr;
    return std::make_unique<const BackgroundCopies>(*request.machine);
  }
  // Before what counts, once: the first run of kernels and of memory is slower.
  void WarmUp() {
    if (!std::exchange(warm, true)) run.RunAnew();
  }
  StepTimes TimeSteps(int repetitions);

  const RunRequest& request;
  GpuMachine& machine;
  BoundRun run;
  bool warm = false;
};

StepTimes GpuRun::Impl::TimeSteps(int repetitions) {
  Stopwatch watch;
  StepTimes times;
  std::vector<HostNow> looks = {machine.LookAtHost(watch, run.plan())};
  machine.loads.LookAround();
  QuietSteps steps(machine.loads);
  const Repetitions wanted(repetitions);
  do {
    steps.Add(run.RunAnew());
    looks.push_back(machine.LookAtHost(watch, run.plan()));
  } while (wanted.WantMore(steps.runs(), steps.Fewest() < repetitions));
  times.host = MeanOf(looks);
  times.steps = steps.Medians();
  times.disturbed = steps.Disturbed();
  if (times.disturbed > 0) {
    times.notes.push_back(
        fmt::format("in {} of {} steps another program had a core of its threads' in each of {} "
                    "runs, which slows their calls",
                    times.disturbed, times.steps.size(), steps.runs()));
  }
  return times;
}

GpuRun::GpuRun(const RunRequest& request, GpuMachine& machine)
    : impl_(std::make_unique<Impl>(request, machine)) {}

GpuRun::~GpuRun() = default;

StepTimes GpuRun::Time(int repetitions, const hardware::Profile* calibrated) {
  const auto as_calibrated = [&](const StepTimes& times) {
    return calibrated == nullptr || HostDriftWarning(times.host, *calibrated).empty();
  };
  const double before = impl_->machine.link.Rate();  // a run may have traffic of its own beside it
  StepTimes times;
  {
    const auto background = impl_->Background();
    impl_->WarmUp();
    bool again = false;
    std::tie(times, again) =
        TimedAsCalibrated([&] { return impl_->TimeSteps(repetitions); }, as_calibrated);
    if (again) {
      times.notes.emplace_back("timed a second time: the host was not as calibrated at the first");
    }
    if (background) std::ranges::move(background->notes(), std::back_inserter(times.notes));
  }
  if (!impl_->run.has_values()) {
    times.notes.emplace_back("the trace holds no values: random ones were attended");
  }
  if (impl_->request.input.model.experts) {
    times.notes.emplace_back(
        "the experts of each row are set, not the router's choice: as many distinct ones a layer "
        "as the prediction expects");
  }
  times.link_h2d = (before + impl_->machine.link.Rate()) / 2;
  return times;
}

kernels::SelectionCheck GpuRun::CheckSelection() {
  kernels::SelectionCheck check;
  impl_->run.RunAnew(Compares(impl_->run, check));
  return check;
}

PrefillRun GpuRun::TimePrefill(int repetitions, bool check) {
  const auto background = impl_->Background();
  BoundRun& run = impl_->run;
  // What takes seconds is not made faster by a run that warms up.
  constexpr double kLong = 2;
  PrefillRun prefill;
  prefill.time = run.PrefillAnew();
  if (Seconds(prefill.time) <= kLong) {
    std::vector<Picoseconds> times;
    for (int i = 0; i < repetitions; ++i) times.push_back(run.PrefillAnew());
    prefill.time = Median(std::move(times));
  }
  if (check) {
    const kernels::RunOptions options = Compares(run, prefill.check);
    if (run.StartsBehindPrompt()) {
      run.RunOn(options);
    } else {
      run.RunAnew(options);
    }
  }
  return prefill;
}

traces::Timeline GpuRun::TimeCalls(int repetitions) {
  const auto background = impl_->Background();
  impl_->WarmUp();
  BoundRun& run = impl_->run;
  BestRun best(impl_->machine.loads, repetitions);
  traces::Timeline kept;
  do {
    run.Reset();
    CallTimer timer(run.plan());
    if (best.Add(run.Run({.observer = &timer, .after_step = {}}))) {
      kept = timer.Calls(impl_->request.title);
    }
  } while (best.WantsMore());
  return kept;
}

RecordedRun GpuRun::Record(const std::filesystem::path& path, const traces::proto::TraceInfo& info,
                           int repetitions) {
  const auto background = impl_->Background();
  impl_->WarmUp();
  BoundRun& run = impl_->run;
  impl_->machine.loads.LookAround();
  BestRun best(impl_->machine.loads, repetitions);
  RecordedRun kept;
  do {
    WriteWholeIf(path, [&](const std::filesystem::path& part) {
      std::vector<kernels::RanStep> ran;
      run.Reset();
      const GpuRecorderStats stats = Recorded(
          impl_->request, impl_->request.title, run.plan(), part, info, [&](RecordedOps& observer) {
            if (impl_->request.input.host == plan::Host::kGraph) run.Recapture(observer);
            ran = run.Run({.observer = &observer, .after_step = {}});
          });
      if (!best.Add(ran)) return false;
      kept.stats = stats;
      return true;
    });
  } while (best.WantsMore());
  kept.disturbed = best.disturbed();
  return kept;
}

GpuRecorderStats GpuRun::RecordPrefill(const std::filesystem::path& path,
                                       const traces::proto::TraceInfo& info) {
  const auto background = impl_->Background();
  BoundRun& run = impl_->run;
  run.PrefillAnew();
  run.cache().Clear();
  return Recorded(
      impl_->request, impl_->request.title + ", prefill", run.PrefillPlan(), path, info,
      [&](RecordedOps& observer) { run.Prefill({.observer = &observer, .after_step = {}}); });
}

}  // namespace stallcast::capture
