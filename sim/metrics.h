// What a run tells: the metrics of the design.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "models/methods/method.h"
#include "sim/engine.h"
#include "traces/access_log.h"
#include "traces/timeline.h"

namespace stallcast::sim {

/// Per step, mean over the run's steps.
struct RoleTime {
  Picoseconds busy{0};        ///< its ops running, on any stream, and its host work
  Picoseconds exposed{0};     ///< compute lane not computing, waiting for it
  Picoseconds overlapped{0};  ///< busy while the compute lane computes something else
  Bytes bytes = 0;            ///< moved
  double overlap() const {    ///< share of busy time that is overlapped
    return busy.count() ? static_cast<double>(overlapped.count()) / busy.count() : 0;
  }
};

struct Quantiles {
  Picoseconds p10{0}, p50{0}, p90{0};
};

/// Decode metrics of one run of a plan. Steps are cut at the plan's step ends.
struct Metrics {
  std::vector<Picoseconds> step_times;
  Picoseconds step_mean{0}, step_p50{0}, step_p95{0};
  double tokens_per_second = 0;  ///< batch / mean step
  std::array<RoleTime, traces::kRoles> roles{};
  Picoseconds compute_busy{0};  ///< compute lane running kernels, mean a step
  /// Compute lane idle or running a transfer, mean a step: the roles' exposed times add up to it,
  /// and with compute_busy to the mean step.
  Picoseconds exposed{0};
  Bytes recall_bytes = 0;    ///< a step
  double recall_pieces = 0;  ///< a step
  double recall_rate = 0;    ///< bytes/s while recall transfers run
  Picoseconds ceiling{0};    ///< a step: no schedule of the same work is faster
  std::array<Picoseconds, traces::kRoles> critical{};  ///< a step: the critical path by role
  double extrapolated = 0;  ///< share of ops outside the profile's calibrated range
  double background_h2d = 0, background_d2h = 0;  ///< bytes/s that others copied meanwhile
};
/// `batch`: sequences decoded together. A plan without steps gives zeros.
///
/// Exposed time follows the causes: from the start of each op of the compute lane back along what
/// it waited for, each instant of the gap before it is charged to the op, call or wait under way on
/// that chain: a transfer to its role, a call, launch latency or gap to `host`, the time between an
/// op's end and the host's going on to `sync`.
Metrics Measure(const Simulation& simulation, const Execution& execution, int32_t batch);

/// Least time a step that any schedule could take of the work that the last step's end depends on
/// (recalls for steps that never come do not count): the compute lane's ops one after another at
/// full speed, or any shared resource or copy engine at full rate, whichever is longest.
Picoseconds Ceiling(const Simulation& simulation);

/// What the access log says, over the predicted steps and all layers that select.
struct SelectionMetrics {
  double hit_rate = 0;         ///< selected units already on the GPU; NaN where nothing is selected
  double correction_rate = 0;  ///< (step, layer) with selection on the critical path; NaN likewise
  double attention_mass =
      0;  ///< mean over all layers and steps, dense layers included; NaN: not known
  /// Relative error of the attention output, mean over the steps of the layers whose values were
  /// captured, dense layers included; NaN: not known.
  double output_error = 0;
  double similarity = 0;  ///< mean of what was compared; NaN: nothing was
  /// Units that left the GPU, mean over steps, layers and selection heads; NaN: not known.
  double evictions = 0;
  double kept =
      0;  ///< mean share of the context that the cache holds; NaN where nothing is dropped
  double eviction_rate = 0;  ///< (step, layer) with an eviction; NaN likewise
};
/// `uses`: how often each step of the log was predicted, as ProjectedLog::Uses() counts them;
/// empty: each once.
SelectionMetrics Summarize(const traces::AccessLog& log, std::span<const int64_t> uses = {});

}  // namespace stallcast::sim
