// The experiments that papers published, predicted.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/papers/paper.h"
#include "sim/metrics.h"

namespace stallcast::sim {

struct ReproduceOptions {
  int32_t steps = 32;   ///< decode steps predicted at each point of a generation
  bool cache = true;    ///< keep access logs
  bool as_run = false;  ///< also as the papers' programs run
  /// Of every paper's machine: path, value.
  std::vector<std::pair<std::string, std::string>> machine_overrides{};
  std::function<void(const std::string& what, double share)> progress{};
};

/// A run at one model and batch. A generation that is longer than its prompt is predicted in the
/// middle of each of its quarters, another one in its middle; `step` is the mean.
struct ReproducedRun {
  papers::Run run;
  bool fits = false;  ///< with the whole generation in memory
  Bytes gpu_memory = 0;
  Picoseconds prefill{0}, step{0};
  /// With the least and the most that an unmeasured host may take; else `step`.
  Picoseconds step_least{0}, step_most{0};
  std::array<Picoseconds, traces::kRoles> busy{}, exposed{};  ///< a step, as in RoleTime
  std::array<Picoseconds, traces::kRoles> critical{};         ///< a step: critical path by role
  double recall_bytes = 0;                                    ///< a step
  double hit_rate = 0, correction_rate = 0;  ///< at the generation's end; NaN: does not apply
  Picoseconds EndToEnd() const { return prefill + run.generated * step; }
  double TokensPerSecond() const { return run.batch / Seconds(step); }
};

struct Reproduction {
  enum class Status : uint8_t {
    kPredicted,
    kInput,     ///< nothing to predict: the predictions take it from the paper
    kNotBuilt,  ///< a method that does not exist here; `reason` names it
    kNoRoom,    ///< none of its cases fits the machine
  };
  const papers::Paper* paper = nullptr;
  const papers::Row* row = nullptr;
  Status status = Status::kPredicted;
  std::string reason;
  double predicted = std::numeric_limits<double>::quiet_NaN();
  /// Predicted over published; NaN where there is nothing to divide (fits).
  double ratio = std::numeric_limits<double>::quiet_NaN();
  /// What `predicted` was computed from: the run, and the one against which it is held.
  std::vector<ReproducedRun> runs;
  std::vector<std::string> notes;  ///< what qualifies the predictions
  /// The same from PyTorch programs: a method's public one, or else our kernels called from
  /// PyTorch; and with the least and the most that an unmeasured host may take. NaN: not asked for.
  struct AsRun {
    double predicted = std::numeric_limits<double>::quiet_NaN();
    double least = predicted, most = predicted, ratio = predicted;
    bool off() const { return !IsNear(ratio); }
  } as_run;
  /// Whether a ratio is within 25 % of 1.
  static bool IsNear(double ratio);
  /// Off by more than 25 %, or the other answer to whether it fits.
  bool off() const;
};
std::string_view Name(Reproduction::Status status);

/// Every row of `papers`, which must outlive the result, in their order. Synthetic traces are kept
/// where CacheFolders() of the papers' folder says. A run that cannot be (wrong parameters of a
/// known method): Error naming paper and run.
std::vector<Reproduction> Reproduce(std::span<const papers::Paper> papers,
                                    const ReproduceOptions& options = {});

struct RatioSummary {
  int64_t rows = 0, within = 0;  ///< with a ratio, and of them those that are not off
  double p10 = 0, p50 = 0, p90 = 0;
};
/// Of the rows that have a ratio; NaN without any.
RatioSummary Summarize(std::span<const Reproduction> rows);

}  // namespace stallcast::sim
