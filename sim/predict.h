// From a trace, a method, a model and a machine to a prediction: the program's main job.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "models/hardware/profile.h"
#include "models/llm/model.h"
#include "models/llm/model_options.h"
#include "models/methods/method.h"
#include "sim/metrics.h"

namespace stallcast::sim {

/// Left free on the GPU for the CUDA context, workspaces and slack of allocators.
inline constexpr Bytes kGpuReserve = Bytes{1} << 30;

struct PredictRequest {
  std::string method = "freekv";
  methods::ParamValues params;
  std::string model;               ///< empty: the trace's own
  llm::ModelValues model_options;  ///< by name, as models/llm/model_options.h has them
  int32_t tensor_parallel = 1;
  std::string machine = "h200";
  std::vector<std::pair<std::string, std::string>> machine_overrides;  ///< path, value
  int64_t context = 0;  ///< tokens before the first step; 0: the trace's prompt
  int32_t batch = 1;
  int32_t steps = 0;    ///< 0: all of the trace's
  int32_t samples = 0;  ///< 0: no P10/P50/P90
  /// Who issues the plan; none: C++, or PyTorch as run.
  std::optional<plan::Host> host;
  bool as_run = false;  ///< the method's public program, instead of our own
  bool prefill = true;  ///< predict prefill time too
  /// KV heads that the model has beyond the trace's are the same layer's again, instead of those of
  /// neighbouring layers.
  bool repeat_heads = false;

  bool operator==(const PredictRequest&) const = default;
};

/// What program a request's figures are about: "our own program", "as run, from PyTorch", ...
std::string ProgramOf(const PredictRequest& request);

/// The machine of a request, with what the request overrides. Error: no such machine, or value.
hardware::Profile MachineOf(const PredictRequest& request);

/// A request with all that its plan is written from.
struct PreparedRun {
  methods::NamedMethod method;
  llm::Model whole;  ///< the model, and in `input` one GPU's shard
  std::shared_ptr<const traces::AccessLog> log;
  methods::PlanInput input;  ///< points to `log`
  std::vector<std::string> notes;
  std::vector<std::string> problems;  ///< what reading the trace found wrong
};

struct Prediction {
  PredictRequest request;                     ///< as Prepare() fills it in
  llm::Model model;                           ///< the model predicted, whole
  std::string machine_status;                 ///< of its profile: "measured" or "derived"
  std::map<std::string, std::string> params;  ///< all, canonical
  Metrics metrics;
  SelectionMetrics selection;
  std::string traced;  ///< the model, and the text where known, whose attention `selection` is of
  std::optional<Quantiles> sampled;      ///< of the mean step
  std::vector<Quantiles> sampled_steps;  ///< of each step; empty without samples
  /// Where the host's operators were not measured: the mean step with the least and the most that
  /// they may take. All else is of their geometric mean.
  struct Band {
    Picoseconds least{0}, most{0};
  };
  std::optional<Band> host_band;
  std::optional<Picoseconds> prefill;  ///< time to the first decode step
  methods::Footprint footprint;
  Bytes weights = 0;
  Bytes gpu_memory = 0;         ///< weights + footprint
  Bytes gpu_limit = 0;          ///< what there is for that: kGpuReserve is left free
  Bytes host_limit = 0;         ///< what there is for footprint.host
  int64_t largest_context = 0;  ///< that with these steps fits both at this batch; 0: none
  int32_t largest_batch = 0;    ///< that fits at this context; 0: none
  bool fits = true;
  /// Everything that qualifies the figures: projected, synthetic, derived, extrapolated,
  /// overridden.
  std::vector<std::string> notes;
};

/// What a request needs, and what its machine has: known without a replay.
struct Needs {
  Bytes weights = 0;
  methods::Footprint footprint;
  Bytes gpu = 0;         ///< weights + footprint
  Bytes gpu_limit = 0;   ///< what there is for that: kGpuReserve is left free
  Bytes host_limit = 0;  ///< what there is for footprint.host
  bool fits = true;
  Picoseconds least_step{0};          ///< to read the weights of a step; no step is shorter
  double most_tokens_per_second = 0;  ///< with such steps
};

struct PredictorOptions {
  bool strict = false;  ///< a damaged trace is an Error
  bool cache = true;
  /// For estimates: replays so many steps of a single layer and its own KV heads instead of the
  /// whole trace; 0: all.
  int32_t first_steps = 0;
  std::function<void(const std::string& what, double share)> progress;
};

/// Thrown by a prediction that was asked to stop.
struct Cancelled {};

/// A trace opened for predictions. Access logs are cached beside it (or in the user's cache folder
/// where that cannot be written; see LogCache), so only the first prediction of a method replays.
class Predictor {
 public:
  using Options = PredictorOptions;
  explicit Predictor(std::filesystem::path trace, Options options = {});
  ~Predictor();

  Prediction Predict(const PredictRequest& request);
  /// The same with the timeline of the nominal run, where it is not null. Throws Cancelled soon
  /// after `stop` was requested: between layers of a replay, plans, runs and samples.
  Prediction Predict(const PredictRequest& request, traces::Timeline* timeline,
                     const std::stop_token& stop = {});
  /// What Predict() writes its plan from: the same plan can be run on a GPU. Fills in context,
  /// steps and the parameters that follow the trace's kind.
  PreparedRun Prepare(PredictRequest& request, const std::stop_token& stop = {});
  /// Throws what Prepare() throws of a request that cannot run.
  Needs NeedsOf(const PredictRequest& request) const;
  /// The log of a method, from the cache or replayed. Null for methods that select nothing.
  std::shared_ptr<const traces::AccessLog> Log(const PredictRequest& request,
                                               const std::stop_token& stop = {});

  const std::filesystem::path& path() const;
  const Options& options() const;
  const traces::proto::TraceInfo& info() const;
  const traces::ReadReport& report() const;
  /// TraceKey(): the same where a replay gives the same.
  const std::string& key() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stallcast::sim
