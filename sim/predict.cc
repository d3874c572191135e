#include "sim/predict.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "models/hardware/pytorch_costs.h"
#include "models/methods/decoder_plan.h"
#include "models/methods/projected_log.h"
#include "models/methods/projection.h"
#include "models/plan/graph.h"
#include "models/plan/operators.h"
#include "sim/log_cache.h"
#include "sim/quantile.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

// In AccessLog::params: of an estimate's log.
constexpr const char* kFirstStepsParam = "first_steps";

struct Limits {
  Bytes gpu, host;
};

Limits LimitsOf(const hardware::Profile& machine) {
  return {std::max<Bytes>(static_cast<Bytes>(machine.memory.bytes) - kGpuReserve, 0),
          static_cast<Bytes>(machine.host.bytes)};
}

// What contexts that grow from `first` to `last` tokens need: most at the end, or where they cease
// to be kept whole.
methods::Footprint Peak(const methods::Method& method, const llm::Model& model, int64_t first,
                        int64_t last, int32_t batch) {
  const llm::Model full = llm::FullAttentionOnly(model);
  methods::Footprint end = method.Bytes(full, last, batch);
  end.gpu_kv += model.OtherLayersBytes(last, batch);
  end.gpu_activations = model.ActivationBytes(batch * last, batch);
  const int64_t longest_whole = method.DenseUntil() - 1;
  if (longest_whole < first || longest_whole >= last) return end;
  methods::Footprint whole = method.Bytes(full, longest_whole, batch);
  whole.gpu_kv += model.OtherLayersBytes(longest_whole, batch);
  whole.gpu_activations = end.gpu_activations;
  if (whole.gpu() <= end.gpu()) return end;
  whole.host = end.host;
  return whole;
}

bool Fits(const methods::Method& method, const llm::Model& model, const Limits& limits,
          int64_t first, int64_t last, int32_t batch) {
  // No machine holds more, and no sum of bytes could.
  constexpr double kMost = 1e18;
  if (static_cast<double>(last) * batch *
          static_cast<double>(model.KvBytesPerTokenLayer() * model.layers) >
      kMost) {
    return false;
  }
  const methods::Footprint need = Peak(method, model, first, last, batch);
  return model.WeightBytes() + need.gpu() <= limits.gpu && need.host <= limits.host;
}

// Of the weights that every step reads: matrices of layers, the likely experts, logits.
Bytes WeightsRead(const llm::Model& model, int32_t batch) {
  Bytes sum = model.vocabulary * model.hidden * 2;
  const double taken = model.DistinctExperts(int64_t{batch} * model.queries);
  for (int layer = 0; layer < model.layers; ++layer) {
    const llm::LayerWeights weights = llm::WeightsOf(model, model.KindOf(layer));
    const Bytes experts = weights.expert_gate_up.bytes() + weights.expert_down.bytes();
    sum += weights.bytes() - weights.vectors * 2 - experts;
    if (experts > 0) {
      sum += static_cast<Bytes>(static_cast<double>(experts) * taken /
                                static_cast<double>(model.experts->count));
    }
  }
  return sum;
}

Needs NeedsOf(const methods::Method& method, const llm::Model& model,
              const hardware::Profile& machine, const PredictRequest& run) {
  const Limits limits = LimitsOf(machine);
  const int64_t shortest = run.context + 1, longest = run.context + run.steps;
  Needs needs{.weights = model.WeightBytes(),
              .footprint = Peak(method, model, shortest, longest, run.batch),
              .gpu_limit = limits.gpu,
              .host_limit = limits.host};
  needs.gpu = needs.weights + needs.footprint.gpu();
  needs.fits = Fits(method, model, limits, shortest, longest, run.batch);
  needs.least_step =
      FromSeconds(static_cast<double>(WeightsRead(model, run.batch)) / machine.memory.bandwidth);
  needs.most_tokens_per_second = run.batch * model.accepted / Seconds(needs.least_step);
  return needs;
}

// A context up to the model's limit leaves room for the steps: what it loses for them.
int64_t ShortenContext(const llm::Model& model, PredictRequest& run) {
  if (model.max_context <= run.steps || run.context > model.max_context) return 0;
  const int64_t less = std::max<int64_t>(run.context + run.steps - model.max_context, 0);
  run.context -= less;
  return less;
}

// Which memory is too small, and by how much.
std::string Shortage(const Prediction& prediction, const Limits& limits) {
  std::vector<std::string> lacks;
  const auto compare = [&](const char* where, Bytes need, Bytes room) {
    if (need <= room) return;
    const auto gibibytes = [](Bytes bytes) { return static_cast<double>(bytes) / (1 << 30); };
    lacks.push_back(fmt::format("{:.1f} GiB on the {}, where {:.1f} are free", gibibytes(need),
                                where, gibibytes(room)));
  };
  compare("GPU", prediction.gpu_memory, limits.gpu);
  compare("host", prediction.footprint.host, limits.host);
  return fmt::format("does not fit: needs {}", fmt::join(lacks, " and "));
}

// The largest value in [1, top] for which `fits` holds, assuming that it holds up to some point.
template <class F>
int64_t Largest(int64_t top, F fits) {
  int64_t low = 0;
  for (int64_t high = top; low < high;) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

void StopIfAsked(const std::stop_token& stop) {
  if (stop.stop_requested()) throw Cancelled();
}

Quantiles QuantilesOf(std::vector<Picoseconds> values) {
  return {Quantile(values, 0.1), Quantile(values, 0.5), Quantile(values, 0.9)};
}

// Quantiles of the mean step, and of each step.
std::pair<Quantiles, std::vector<Quantiles>> SampleSteps(
    const Simulation& simulation, int32_t samples, const std::function<void(double)>& progress,
    const std::stop_token& stop) {
  const std::vector<plan::OpId>& step_ends = simulation.plan().step_ends;
  const auto count = static_cast<size_t>(samples);
  std::vector<Picoseconds> means(count);
  std::vector<std::vector<Picoseconds>> steps(step_ends.size(), std::vector<Picoseconds>(count));
  std::atomic<int32_t> done = 0;
  tbb::parallel_for(size_t{0}, count, [&](size_t i) {
    StopIfAsked(stop);
    const Execution execution = simulation.Sample(static_cast<uint64_t>(i) + 1);
    Picoseconds before{0};
    for (size_t step = 0; step < step_ends.size(); ++step) {
      const Picoseconds end = execution.end[static_cast<size_t>(plan::Index(step_ends[step]))];
      steps[step][i] = end - std::exchange(before, end);
    }
    means[i] = before / std::ssize(step_ends);
    if (progress) progress(static_cast<double>(++done) / samples);
  });
  std::vector<Quantiles> of_steps;
  for (std::vector<Picoseconds>& step : steps) of_steps.push_back(QuantilesOf(std::move(step)));
  return {QuantilesOf(std::move(means)), std::move(of_steps)};
}

// A method that selects needs keys and values of a head, and layers that attend everything.
void CheckModel(const methods::NamedMethod& named, const llm::Model& model) {
  if (!named.method->NewPolicy()) {
    if (model.FullLayers() > 0 || named.name == "full") return;
    throw UsageError(
        fmt::format("no layer of {} attends more than a window: there is nothing to offload",
                    model.title),
        named.name, "use --method full");
  }
  if (model.latent) {
    throw UsageError(
        fmt::format("{} selects by the keys of each head, and {} keeps one latent for all heads",
                    named.name, model.title),
        named.name, "use --method full or offload");
  }
  if (model.FullLayers() == 0) {
    throw UsageError(fmt::format("no layer of {} attends more than a window: there is nothing to "
                                 "select from",
                                 model.title),
                     named.name, "use --method full, or a context beyond the window");
  }
}

// The model that a trace was captured from. Adds what is assumed of it to the notes.
llm::Model OwnModel(traces::proto::Model model, std::vector<std::string>& notes) {
  if (model.intermediate() == 0 && model.hidden() > 0) {
    model.set_intermediate(4 * model.hidden());
    notes.push_back(fmt::format(
        "assumed: an MLP of {} elements, four times the hidden size: the trace does not say",
        model.intermediate()));
  }
  llm::Model made = llm::FromTrace(model);
  const auto fail = [](std::string what) {
    throw Error(std::move(what), "model of the trace", "name it with --model, as its config.json");
  };
  if (model.experts().count() > 0 && !made.experts) {
    fail(fmt::format("it is a mixture of {} experts, of which a trace says too little",
                     model.experts().count()));
  }
  const auto absent = std::ranges::count_if(model.attention(), &traces::proto::Attention::absent);
  if (absent > 0 && made.kinds.empty()) {
    fail(fmt::format("{} of its {} layers have no keys", absent, model.layers()));
  }
  return made;
}

// How the captured router spread its tokens, for a model that has as many experts. A model has one
// distribution for all layers: the mean of theirs by rank, since each prefers experts of its own.
void TakeRouting(const traces::proto::TraceInfo& info, llm::Model& model,
                 std::vector<std::string>& notes) {
  if (!model.experts || info.expert_use().empty()) return;
  const auto count = static_cast<size_t>(model.experts->count);
  std::vector<double> taken(count);
  int64_t layers = 0;
  for (const traces::proto::ExpertUse& use : info.expert_use()) {
    const auto& decode = use.decode();
    const bool decoded = std::ranges::any_of(decode, [](int64_t tokens) { return tokens > 0; });
    const auto& counted = decoded ? decode : use.prompt();
    std::vector<double> ranked(counted.begin(), counted.end());
    const double all = std::accumulate(ranked.begin(), ranked.end(), 0.0);
    if (ranked.size() != count || !(all > 0)) continue;
    std::ranges::sort(ranked, std::greater<>());
    for (size_t i = 0; i < count; ++i) taken[i] += ranked[i] / all;
    ++layers;
  }
  if (layers == 0) {
    notes.push_back(
        fmt::format("the trace's use of its experts is not that of {}'s {}", model.title, count));
    return;
  }
  model.experts->taken = std::move(taken);
  notes.push_back(fmt::format(
      "routing: tokens by expert as in {} layers of the trace (--routing changes that)", layers));
}

// Files of hooks that knew no layer's own window name the model's among their parameters.
void TakeWindow(traces::proto::TraceInfo& info, std::vector<std::string>& notes) {
  traces::proto::Model& model = *info.mutable_model();
  const auto named = info.parameters().find("sliding_window");
  if (named == info.parameters().end() || model.attention_size() > 0) return;
  int32_t window = 0;
  const std::string& text = named->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), window);
  if (error != std::errc() || end != text.data() + text.size() || window < 1) return;
  for (int layer = 0; layer < model.layers(); ++layer) model.add_attention()->set_window(window);
  notes.push_back(fmt::format(
      "assumed: every layer sees the last {} tokens alone: the trace names the window, not its "
      "layers",
      window));
}

// What the policies leave to the measure of attention: they select as if every layer saw all
// tokens.
std::optional<std::string> OfWindows(const traces::proto::Model& model,
                                     const traces::AccessLog& log) {
  std::vector<int> limited;
  for (const traces::LayerAccess& layer : log.layers) {
    if (layer.layer >= model.attention_size()) continue;
    const traces::proto::Attention& attention = model.attention(layer.layer);
    if (attention.window() > 0 || attention.chunk() > 0) limited.push_back(layer.layer);
  }
  if (limited.empty()) return {};
  return fmt::format(
      "attention mass and error of the trace's layers {} are of the window that each sees; the "
      "method selects from all tokens there too",
      fmt::join(limited, ", "));
}

// Where one step takes much of the time, how many steps are predicted decides the mean. So it does
// where the sequences of a batch, each at its own place in the trace, leave some of it out.
std::optional<std::string> FewSteps(const Metrics& metrics, const PredictRequest& run,
                                    const traces::AccessLog* log) {
  constexpr double kMuch = 0.2;
  const bool leaves_out = log != nullptr && run.batch > 1 && run.steps < log->steps / run.batch;
  if (metrics.step_times.size() < 2 && !leaves_out) return std::nullopt;
  const auto longest = std::max_element(metrics.step_times.begin(), metrics.step_times.end());
  const Picoseconds all =
      std::accumulate(metrics.step_times.begin(), metrics.step_times.end(), Picoseconds(0));
  const double share = Milliseconds(*longest) / Milliseconds(all);
  const bool rare =
      metrics.step_times.size() > 1 && share >= kMuch && *longest >= 2 * metrics.step_p50;
  if (!rare && !leaves_out) return std::nullopt;
  if (!rare) {
    return fmt::format(
        "few steps: {} of {} sequences replay {} of the trace's {}: what a method does seldom "
        "counts too much or not at all",
        run.steps, run.batch, int64_t{run.steps} * run.batch, log->steps);
  }
  return fmt::format(
      "few steps: step {} of {} takes {:.1f} ms, {:.0f} % of the time; with more --steps the mean "
      "tells more",
      longest - metrics.step_times.begin(), metrics.step_times.size(), Milliseconds(*longest),
      share * 100);
}

// Kinds of work that a measured machine has from public tables, of other programs' kernels.
std::optional<std::string> OfTables(const plan::Plan& plan, const hardware::Profile& machine) {
  if (machine.status != "measured") return std::nullopt;  // said of the machine
  std::set<std::string_view> kinds;
  for (const plan::Work& work : plan.ops.works()) {
    if (plan::CostedAs(plan::KindOf(work)).empty() || plan::PredictedOnly(work)) continue;
    const auto fit = machine.kernels.find(plan::KindName(work));
    if (fit != machine.kernels.end() && !fit->second.source.starts_with("measured")) {
      kinds.insert(plan::KindName(work));
    }
  }
  if (kinds.empty()) return std::nullopt;
  return fmt::format(
      "from tables: {}, as other programs' kernels take; a new calibration times ours",
      fmt::join(kinds, ", "));
}

// Who issues it where nothing else is asked for.
plan::Host HostOf(const PredictRequest& request) {
  return request.host.value_or(request.as_run ? plan::Host::kPyTorch : plan::Host::kCpp);
}

// Nothing of our own program in C++, of which all figures are unless they say otherwise.
std::string AboutProgram(const PredictRequest& run, const methods::Method& method) {
  if (!run.as_run && run.host == plan::Host::kCpp) return {};
  const std::string program = fmt::format("these figures are of {}", ProgramOf(run));
  if (run.as_run) return fmt::format("{}: {}", program, method.AsRun());
  if (run.host == plan::Host::kPyTorch) {
    return program + ": its fused kernels, each called as an operator";
  }
  return program;
}

// The mean step where each operator of PyTorch takes so long.
Picoseconds MeanStep(const plan::Plan& plan, hardware::Profile machine, double each) {
  machine.pytorch.each = each;
  const hardware::CostModel costs(std::move(machine));
  const Execution execution = Simulation(plan, costs).Run();
  return execution.end[At(plan.step_ends.back())] / std::ssize(plan.step_ends);
}

}  // namespace

struct Predictor::Impl {
  PreparedRun Begin(PredictRequest& run) const;

  struct Replayed {
    std::shared_ptr<const traces::AccessLog> log;
    std::vector<std::string> problems;  // of the trace, found on the way
    bool cached = false;                // the cache holds the log
  };

  std::filesystem::path path;
  Options options;
  traces::ReadReport report;
  traces::proto::TraceInfo info;
  std::string key;
  std::vector<std::string> assumed;  // of the trace
  std::optional<LogCache> cache;
  std::mutex mutex;  // guards what follows
  std::map<std::string, Replayed> logs;

  // A machine's costs take longer to make than a short plan takes to run, and points of a sweep
  // have them in common. A user's file may change between two predictions: it is read each time.
  class KnownCosts {
   public:
    std::shared_ptr<const hardware::CostModel> Of(const PredictRequest& request) {
      const auto make = [&] {
        return std::make_shared<const hardware::CostModel>(MachineOf(request));
      };
      if (request.machine.ends_with(".toml")) return make();
      const auto now = std::chrono::steady_clock::now();
      const std::pair key(request.machine, request.machine_overrides);
      {
        const std::lock_guard lock(mutex_);
        if (now - since_ > kKept || costs_.size() > kMost) {
          costs_.clear();
          since_ = now;
        }
        const auto at = costs_.find(key);
        if (at != costs_.end()) return at->second;
      }
      auto made = make();
      const std::lock_guard lock(mutex_);
      return costs_.emplace(key, std::move(made)).first->second;
    }

   private:
    static constexpr std::chrono::seconds kKept{1};
    static constexpr size_t kMost = 100;
    std::mutex mutex_;
    std::chrono::steady_clock::time_point since_;
    std::map<std::pair<std::string, decltype(PredictRequest::machine_overrides)>,
             std::shared_ptr<const hardware::CostModel>>
        costs_;
  } known_costs;

  // Calls what uses the trace; an error then names the file, and what reading it found wrong.
  template <class Use>
  auto InTrace(const traces::ReadReport& found, Use use) const {
    try {
      return use();
    } catch (const Error& error) {
      if (error.usage() || error.where() == path.string()) throw;
      std::string problem = error.problem();
      if (!found.problems.empty()) problem += fmt::format(" ({})", found.problems.front());
      throw Error(std::move(problem), fmt::format("{}, {}", path.string(), error.where()),
                  error.remedy());
    }
  }

  // Query heads a KV head of the trace; 0: it does not say.
  int32_t TracedGroup() const {
    const traces::proto::Model& model = info.model();
    return model.kv_heads() > 0 ? model.query_heads() / model.kv_heads() : 0;
  }

  // The method with what its paper takes for such a trace, and a note on each such value.
  std::pair<methods::NamedMethod, std::vector<std::string>> MethodOf(
      const std::string& name, methods::ParamValues params) const {
    std::vector<std::string> notes = methods::AddKindDefaults(
        *methods::MakeMethod(name, params).info, methods::KindOf(info), params);
    return {methods::MakeMethod(name, params), std::move(notes)};
  }

  // The trace without elements.
  traces::Trace Outline() const {
    traces::Trace outline;
    outline.info = info;
    for (const traces::TensorSpec& spec : report.tensors) outline.tensors.push_back({spec, {}});
    return outline;
  }

  // KV heads a traced layer; 0: none is traced.
  int32_t TracedKvHeads() const {
    for (const traces::TensorSpec& spec : report.tensors) {
      if (spec.kind == traces::TensorKind::kKey) return spec.heads;
    }
    return 0;
  }

  // Heads of the model that a log is to be of; 0: the trace's.
  struct Heads {
    int32_t group = 0, kv = 0;
  };
  Heads HeadsFor(const methods::Method& method, const llm::Model& model, bool repeat) const {
    Heads heads;
    if (TracedGroup() != 0 && model.group() != TracedGroup()) heads.group = model.group();
    const int32_t traced = TracedKvHeads();
    if (!repeat && options.first_steps == 0 && !method.OwnHeadsOnly() && traced > 0 &&
        model.kv_heads > traced && Outline().Layers().size() > 1) {
      heads.kv = model.kv_heads;
    }
    return heads;
  }

  struct ReplayRequest {
    const std::string& name;
    const methods::Method& method;
    Heads heads;
    std::function<void(double)> progress;
  };

  // The layer, and those that lend it heads.
  std::vector<int> LayersToRead(const traces::Trace& outline, int layer, int32_t kv_heads) const {
    std::vector<int> layers;
    const int32_t traced = TracedKvHeads();
    for (const methods::TracedKvHead& head :
         methods::TracedKvHeads(outline.Layers(), layer, traced, std::max(kv_heads, traced))) {
      if (std::ranges::find(layers, head.layer) == layers.end()) layers.push_back(head.layer);
    }
    return layers;
  }

  // Empty where all keys or queries of the layer are damaged. Adds what is to `found`.
  traces::AccessLog ReplayLayer(const traces::Trace& outline, int layer,
                                const ReplayRequest& request,
                                const std::function<void(double)>& progress,
                                traces::ReadReport& found) const {
    traces::ReadReport of_layer;
    const traces::ReadOptions read{.strict = options.strict,
                                   .layers = LayersToRead(outline, layer, request.heads.kv)};
    traces::Trace tensors = traces::ReadTrace(path, read, &of_layer);
    if (of_layer.content_hash != report.content_hash) found.content_hash = of_layer.content_hash;
    for (std::string& problem : of_layer.problems) {
      if (std::ranges::find(found.problems, problem) == found.problems.end()) {
        found.problems.push_back(std::move(problem));
      }
    }
    if (!std::ranges::binary_search(tensors.Layers(), layer)) return {};
    tensors.info = info;
    const int steps = methods::DecodeSteps(outline);
    tensors.info.set_decode_steps(options.first_steps > 0 ? std::min(steps, options.first_steps)
                                                          : steps);
    return methods::Replay(tensors, report.content_hash, request.name, request.method,
                           {.group = request.heads.group,
                            .kv_heads = request.heads.kv,
                            .layers = {layer},
                            .progress = progress});
  }

  // That the trace decodes; where its capture was killed, that every layer has. 0: none.
  int32_t Steps() const {
    try {
      return methods::DecodeSteps(Outline());
    } catch (const Error&) {
      return 0;
    }
  }

  // All that were traced; for an estimate the middle one of those that select.
  std::vector<int> LayersToReplay(const traces::Trace& outline,
                                  const methods::Method& method) const {
    std::vector<int> layers = outline.Layers();
    if (options.first_steps == 0) return layers;
    const auto selects = std::ranges::lower_bound(layers, method.DenseLayers());
    if (selects == layers.end()) return layers;
    return {*(selects + (layers.end() - selects) / 2)};
  }

  // A layer at a time, so that no more than a layer's tensors are in memory.
  traces::AccessLog Replay(const ReplayRequest& request, traces::ReadReport& found) const {
    traces::Trace outline = Outline();
    const std::vector<int> layers = LayersToReplay(outline, request.method);
    found = report;
    traces::AccessLog log;
    std::optional<Error> unusable;
    std::vector<std::string> left_out;
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto progress = [&](double share) {
        request.progress((static_cast<double>(i) + share) / static_cast<double>(layers.size()));
      };
      traces::AccessLog part;
      try {
        part = ReplayLayer(outline, layers[i], request, progress, found);
      } catch (const Error& error) {
        // Of a damaged file the layers that are whole are used.
        if (options.strict || error.usage() || found.problems.empty()) throw;
        if (!unusable) unusable = error;
        left_out.push_back(fmt::format("layer {} is left out: {}", layers[i], error.problem()));
        continue;
      }
      if (part.layers.empty()) {
        left_out.push_back(
            fmt::format("layer {} is left out: its keys or queries are damaged", layers[i]));
        continue;
      }
      if (log.layers.empty()) {
        log = std::move(part);
        continue;
      }
      log.model_layers = std::max(log.model_layers, part.model_layers);
      log.layers.push_back(std::move(part.layers.front()));
    }
    if (log.layers.empty() && unusable) throw *unusable;
    found.problems.insert(found.problems.end(), left_out.begin(), left_out.end());
    if (log.layers.empty()) {
      // Of a trace without tensors: the error that says so.
      outline.tensors.clear();
      return methods::Replay(outline, report.content_hash, request.name, request.method);
    }
    return log;
  }

  Replayed Log(const std::string& name, const methods::Method& method, const Heads& heads,
               const std::stop_token& stop) {
    if (!method.NewPolicy()) return {.log = nullptr, .problems = report.problems};
    auto params = method.Params(/*only_selection=*/true);
    if (heads.group > 0) params[methods::kGroupParam] = std::to_string(heads.group);
    if (heads.kv > 0) params[methods::kKvHeadsParam] = std::to_string(heads.kv);
    if (options.first_steps > 0) params[kFirstStepsParam] = std::to_string(options.first_steps);
    std::string log_key = name;
    for (const auto& [param, value] : params) log_key += fmt::format("\n{}={}", param, value);
    const std::lock_guard lock(mutex);
    StopIfAsked(stop);
    // Of the logs that the cache holds, the last one asked for stays in memory.
    for (auto& [other, replayed] : logs) {
      if (replayed.cached && other != log_key) replayed.log.reset();
    }
    Replayed& known = logs[log_key];
    if (known.log) return known;
    known.problems = report.problems;
    if (cache) known.log = cache->Load(name, params);
    known.cached = known.log != nullptr;
    if (known.cached) return known;

    traces::ReadReport found;
    const auto progress = [this, &name, &stop](double share) {
      StopIfAsked(stop);
      if (options.progress) options.progress("replaying " + name, share);
    };
    // While this thread holds the lock it must not take up other work, which may want the lock.
    tbb::this_task_arena::isolate([&] {
      traces::AccessLog log = InTrace(found, [&] {
        return Replay({name, method, heads, progress}, found);
      });
      if (options.first_steps > 0) log.params[kFirstStepsParam] = params.at(kFirstStepsParam);
      known.log = std::make_shared<const traces::AccessLog>(std::move(log));
    });
    malloc_trim(0);  // what the replay's threads have left is not there beside the plan
    known.problems = found.problems;
    // Damaged tensors have the hash of their own that a next run does not know before reading them.
    known.cached = cache && found.content_hash == report.content_hash && cache->Store(*known.log);
    return known;
  }
};

Predictor::Predictor(std::filesystem::path trace, Options options)
    : impl_(std::make_unique<Impl>()) {
  impl_->path = std::move(trace);
  impl_->options = std::move(options);
  traces::ReadOptions read;
  read.strict = impl_->options.strict;
  read.tensors = false;
  traces::Trace file = traces::ReadTrace(impl_->path, read, &impl_->report);
  impl_->info = std::move(file.info);
  TakeWindow(impl_->info, impl_->assumed);
  impl_->key = TraceKey(impl_->info, impl_->report.content_hash);
  if (impl_->options.cache) {
    impl_->cache.emplace(impl_->path, impl_->info, impl_->report.content_hash);
  }
}

Predictor::~Predictor() = default;

const std::filesystem::path& Predictor::path() const { return impl_->path; }
const Predictor::Options& Predictor::options() const { return impl_->options; }
const traces::proto::TraceInfo& Predictor::info() const { return impl_->info; }
const traces::ReadReport& Predictor::report() const { return impl_->report; }
const std::string& Predictor::key() const { return impl_->key; }

std::shared_ptr<const traces::AccessLog> Predictor::Log(const PredictRequest& request,
                                                        const std::stop_token& stop) {
  const methods::NamedMethod named = impl_->MethodOf(request.method, request.params).first;
  Impl::Heads heads;
  if (!request.model.empty()) {
    heads = impl_->HeadsFor(*named.method,
                            llm::Shard(llm::FindModel(request.model), request.tensor_parallel),
                            request.repeat_heads);
  }
  return impl_->Log(named.info->name, *named.method, heads, stop).log;
}

std::string ProgramOf(const PredictRequest& request) {
  const plan::Host host = HostOf(request);
  const std::string_view program = request.as_run ? "the public program" : "our own program";
  switch (host) {
    case plan::Host::kCpp:
      return request.as_run ? "the public program's kernels, from C++" : std::string(program);
    case plan::Host::kPyTorch:
      return fmt::format("{}, from PyTorch", program);
    case plan::Host::kGraph:
      return fmt::format("{}, as CUDA graphs", program);
  }
  return std::string(program);
}

hardware::Profile MachineOf(const PredictRequest& request) {
  hardware::Profile machine = hardware::FindProfile(request.machine);
  for (const auto& [path, value] : request.machine_overrides) hardware::Set(machine, path, value);
  return machine;
}

// What the plan is written from but the log.
PreparedRun Predictor::Impl::Begin(PredictRequest& run) const {
  const std::string where = path.string();
  PreparedRun out;
  std::tie(out.method, out.notes) = MethodOf(run.method, run.params);
  for (const methods::KindDefault& by_kind : out.method.info->by_kind) {
    run.params[by_kind.name] = out.method.method->Params(false).at(by_kind.name);
  }
  const methods::Method& method = *out.method.method;
  out.whole = run.model.empty() ? InTrace(report, [&] { return OwnModel(info.model(), out.notes); })
                                : llm::FindModel(run.model);
  if (run.context == 0) run.context = info.prompt_tokens();
  if (run.context < 1 && report.tensors.empty()) {
    throw Error("the trace holds no tokens", where,
                "capture a run with a prompt and at least one decoded token");
  }
  if (run.context < 1) throw UsageError("no context to predict for", where, "give --context");
  if (run.batch < 1) throw UsageError("batch is below 1", "--batch", "use 1 or more");
  if (!run.model_options.contains("routing")) TakeRouting(info, out.whole, out.notes);
  out.whole = llm::WithOptions(std::move(out.whole), run.model_options);
  out.whole = llm::AtContext(std::move(out.whole), run.context + run.steps);
  out.input.model = llm::Shard(out.whole, run.tensor_parallel);
  CheckModel(out.method, out.input.model);
  method.Check(llm::FullAttentionOnly(out.input.model), run.context);
  out.notes.insert(out.notes.end(), out.whole.notes.begin(), out.whole.notes.end());
  return out;
}

Needs Predictor::NeedsOf(const PredictRequest& request) const {
  PredictRequest run = request;
  const PreparedRun prepared = impl_->Begin(run);
  const llm::Model& model = prepared.input.model;
  if (run.steps == 0) run.steps = impl_->Steps();
  ShortenContext(model, run);
  return sim::NeedsOf(*prepared.method.method, model, MachineOf(run), run);
}

PreparedRun Predictor::Prepare(PredictRequest& run, const std::stop_token& stop) {
  const std::string where = impl_->path.string();
  PreparedRun out = impl_->Begin(run);
  const methods::Method& method = *out.method.method;
  const llm::Model& model = out.input.model;

  const Impl::Heads heads = impl_->HeadsFor(method, model, run.repeat_heads);
  Impl::Replayed replayed = impl_->Log(out.method.info->name, method, heads, stop);
  out.log = std::move(replayed.log);
  out.problems = std::move(replayed.problems);
  if (out.log && out.log->params.contains(methods::kGroupParam)) {
    out.notes.push_back(fmt::format(
        "projected: {} query heads share a KV head, from the trace's {} by index, repeated",
        model.group(), impl_->TracedGroup()));
  }
  if (out.log && heads.kv > 0) {
    const auto lent = static_cast<size_t>(heads.kv - impl_->TracedKvHeads());
    const size_t others =
        (out.log->layers.size() - 1) * static_cast<size_t>(impl_->TracedKvHeads());
    out.notes.push_back(fmt::format(
        "projected: {} KV heads a layer, the trace's {} and {} of its other layers, the nearest "
        "first{}",
        heads.kv, impl_->TracedKvHeads(), lent, lent > others ? ", repeated" : ""));
  }
  const auto traced = out.log ? out.log->steps : impl_->Steps();
  if (run.steps == 0) run.steps = traced;
  if (run.steps < 1) {
    throw Error("the trace has no decode steps", where, "capture at least one, or give --steps");
  }
  if (out.log && run.steps > out.log->steps) {
    out.notes.push_back(fmt::format("projected: {} steps from the trace's {}, repeated", run.steps,
                                    out.log->steps));
  }
  if (const int64_t less = ShortenContext(model, run); less > 0) {
    out.notes.push_back(fmt::format("context {} less {}: the steps reach {}'s {}",
                                    run.context + less, less, out.whole.title, model.max_context));
  }
  const int64_t longest = run.context + run.steps;
  if (model.max_context > 0 && longest > model.max_context) {
    out.notes.push_back(
        fmt::format("context {} is beyond {}'s {}", longest, out.whole.title, model.max_context));
  }
  if (model.queries > 1) {
    out.notes.push_back(fmt::format("a step runs {} tokens of a sequence and keeps {:g} of them{}",
                                    model.queries, model.accepted,
                                    out.log ? "; pages are selected for the first of them" : ""));
  }
  if (model.experts && model.experts->taken.empty()) {
    out.notes.push_back(fmt::format(
        "assumed: every expert is as likely: a step reads {:.1f} of {} in a layer",
        model.DistinctExperts(int64_t{run.batch} * model.queries), model.experts->count));
  }
  run.host = HostOf(run);
  if (run.as_run && method.AsRun().empty()) {
    throw UsageError(fmt::format("no public program of {} is written down", run.method), "--as-run",
                     "leave it out; --host pytorch issues our own program from PyTorch");
  }
  out.input.batch = run.batch;
  out.input.prompt_tokens = run.context;
  out.input.steps = run.steps;
  out.input.host = *run.host;
  out.input.log = out.log.get();
  out.input.as_run = run.as_run;
  if (std::string about = AboutProgram(run, method); !about.empty()) {
    out.notes.push_back(std::move(about));
  }
  return out;
}

Prediction Predictor::Predict(const PredictRequest& request) { return Predict(request, nullptr); }

Prediction Predictor::Predict(const PredictRequest& request, traces::Timeline* timeline,
                              const std::stop_token& stop) {
  Prediction out;
  out.request = request;
  PredictRequest& run = out.request;
  const traces::proto::TraceInfo& trace = info();
  std::shared_ptr<const hardware::CostModel> known = impl_->known_costs.Of(run);
  const PreparedRun prepared = Prepare(run, stop);
  const methods::PlanInput& input = prepared.input;
  const llm::Model& model = input.model;
  const methods::Method& method = *prepared.method.method;
  const std::shared_ptr<const traces::AccessLog>& log = prepared.log;
  out.params = method.Params(/*only_selection=*/false);
  out.model = prepared.whole;
  out.notes = prepared.notes;
  const int64_t longest = run.context + run.steps;

  const bool pytorch = plan::CallsOperators(*run.host, run.as_run);
  const bool unmeasured =
      pytorch && !known->profile().pytorch.measured() && known->profile().pytorch.each == 0;
  if (unmeasured) {
    hardware::Profile profile = known->profile();
    profile.pytorch.each = std::sqrt(hardware::kLeastOperator * hardware::kMostOperator);
    out.notes.push_back(fmt::format(
        "assumed: each operator of PyTorch takes {:.0f} us of the host, and {:.0f} to {:.0f} where "
        "a band is given: {} has no [pytorch]; python3 -m stallcast_capture.host_costs measures it",
        profile.pytorch.each * 1e6, hardware::kLeastOperator * 1e6, hardware::kMostOperator * 1e6,
        profile.name));
    known = std::make_shared<const hardware::CostModel>(std::move(profile));
  } else if (pytorch && known->profile().pytorch.each == 0) {
    if (std::string note = hardware::AssumedOperators(known->profile()); !note.empty()) {
      out.notes.push_back(std::move(note));
    }
  }
  const hardware::CostModel& costs = *known;
  {
    StopIfAsked(stop);
    const plan::Plan plan = methods::WriteDecode(method, input);
    if (unmeasured) {
      out.host_band = {MeanStep(plan, costs.profile(), hardware::kLeastOperator),
                       MeanStep(plan, costs.profile(), hardware::kMostOperator)};
    }
    if (const int graphs = plan::GraphsAStep(plan); graphs > 1) {
      out.notes.push_back(fmt::format(
          "up to {} CUDA graphs a step: between them the host works, or copies whose number it "
          "learns late",
          graphs));
    }
    StopIfAsked(stop);
    const Simulation simulation(plan, costs);
    const Execution execution = simulation.Run();
    StopIfAsked(stop);
    out.metrics = Measure(simulation, execution, run.batch);
    out.metrics.tokens_per_second *= model.accepted;
    if (run.samples > 0) {
      std::function<void(double)> progress;
      if (impl_->options.progress) {
        progress = [&](double share) { impl_->options.progress("sampling " + run.method, share); };
      }
      std::tie(out.sampled, out.sampled_steps) =
          SampleSteps(simulation, run.samples, progress, stop);
    }
    if (timeline) *timeline = ToTimeline(simulation, execution);
    out.notes.insert(out.notes.end(), plan.notes.begin(), plan.notes.end());
    if (auto note = OfTables(plan, costs.profile())) out.notes.push_back(*std::move(note));
  }
  if (run.prefill) {
    StopIfAsked(stop);
    const plan::Plan plan = methods::WritePrefill(method, input);
    out.prefill = Simulation(plan, costs).Run().end_of_all;
  }
  if (log) {
    out.selection =
        Summarize(*log, methods::ProjectedLog(log.get(), model, run.batch).Uses(run.steps));
    std::vector<int> with_values;
    for (const traces::LayerAccess& layer : log->layers) {
      if (!layer.output_error.empty()) with_values.push_back(layer.layer);
    }
    if (!with_values.empty() && with_values.size() < log->layers.size()) {
      out.notes.push_back(fmt::format(
          "projected: output error of the trace's layer {} alone, whose values were captured",
          fmt::join(with_values, ", ")));
    }
    out.notes.insert(out.notes.end(), impl_->assumed.begin(), impl_->assumed.end());
    if (auto note = OfWindows(trace.model(), *log)) out.notes.push_back(*note);
    if (log->prompt_tokens != run.context) {
      out.notes.push_back(fmt::format(
          "projected: context {} from a trace of {}: what is selected, hits and mass are "
          "those of the trace's context",
          run.context, log->prompt_tokens));
    }
  } else {
    out.selection = {.hit_rate = std::numeric_limits<double>::quiet_NaN(),
                     .correction_rate = std::numeric_limits<double>::quiet_NaN(),
                     .attention_mass = 1,
                     .output_error = 0,
                     .similarity = std::numeric_limits<double>::quiet_NaN(),
                     .evictions = 0,
                     .kept = std::numeric_limits<double>::quiet_NaN(),
                     .eviction_rate = std::numeric_limits<double>::quiet_NaN()};
  }

  const auto text = trace.parameters().find("text");
  out.traced = trace.model().name();
  if (text != trace.parameters().end()) out.traced += " on " + text->second;
  if (log && !out.traced.empty()) {
    out.notes.push_back(fmt::format("attention mass holds for {}", out.traced));
  }
  const hardware::Profile& machine = costs.profile();
  out.machine_status = machine.status;
  const int64_t shortest = run.context + 1;
  const Limits limits = LimitsOf(machine);
  const Needs needs = sim::NeedsOf(method, model, machine, run);
  out.weights = needs.weights;
  out.footprint = needs.footprint;
  out.gpu_memory = needs.gpu;
  out.gpu_limit = needs.gpu_limit;
  out.host_limit = needs.host_limit;
  out.fits = needs.fits;
  // One that every shorter context may grow to.
  out.largest_context = Largest(int64_t{1} << 30, [&](int64_t context) {
    return Fits(method, model, limits, 1, context + run.steps, run.batch);
  });
  out.largest_batch = static_cast<int32_t>(Largest(1 << 20, [&](int64_t batch) {
    return Fits(method, model, limits, shortest, longest, static_cast<int32_t>(batch));
  }));

  if (!out.fits) out.notes.push_back(Shortage(out, limits));
  if (auto note = FewSteps(out.metrics, run, log.get())) out.notes.push_back(*note);
  if (trace.synthetic())
    out.notes.emplace_back("synthetic: the trace was not captured from a model");
  if (machine.status != "measured") {
    out.notes.push_back(fmt::format(
        "derived: no machine called {} was measured; its profile comes from {}", machine.title,
        machine.status == "tables" ? "public tables of other programs' kernels"
                                   : "published figures"));
  }
  if (out.metrics.extrapolated > 0) {
    const double percent = out.metrics.extrapolated * 100;
    out.notes.push_back(fmt::format(
        "extrapolated: {} % of ops lie outside the range that {}'s profile was calibrated for",
        percent < 0.1 ? "under 0.1" : fmt::format("{:.1f}", percent), machine.name));
  }
  const auto background = [&](std::string_view path, double asked, double copied) {
    if (asked > 0) {
      out.notes.push_back(
          fmt::format("{}: {:.1f} of {:.1f} GB/s copied", path, copied / 1e9, asked / 1e9));
    }
  };
  background("background.h2d", machine.background.h2d, out.metrics.background_h2d);
  background("background.d2h", machine.background.d2h, out.metrics.background_d2h);
  for (const std::string& changed : machine.overrides) {
    out.notes.push_back("overridden: " + changed);
  }
  out.notes.insert(out.notes.end(), prepared.problems.begin(), prepared.problems.end());
  if (timeline) {
    timeline->title = fmt::format("{}, {}, {}, context {}, batch {}", run.method, out.model.title,
                                  machine.title, run.context, run.batch);
    timeline->notes = out.notes;
  }
  return out;
}

}  // namespace stallcast::sim
