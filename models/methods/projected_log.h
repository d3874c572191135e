// An access log read as if the model at hand had made it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/llm/model.h"
#include "traces/access_log.h"

namespace stallcast::methods {

/// What one selection head of one sequence did in a step. Counts, not ids: plans move numbers.
struct AccessCell {
  uint8_t flags = 0;  ///< traces::AccessFlag
  int32_t selected = 0;
  int32_t recalled_now = 0;
  int32_t recalled_ahead = 0;
  int32_t attended_tokens = 0;
  int32_t cached_tokens = 0;  ///< 0 where the method drops none
  int32_t evicted = 0;
  int64_t context = 0;  ///< of the trace at that step, the step's own token included
};

/// Maps a model's (step, layer, sequence, head) to a cell of the log: layers by relative depth
/// among the layers that are not dense in the log, heads by index, and the sequences of a batch as
/// copies of the trace's one sequence, staggered evenly over its steps.
class ProjectedLog {
 public:
  /// `log` may be null: then only notes() may be called.
  ProjectedLog(const traces::AccessLog* log, const llm::Model& model, int32_t batch);

  AccessCell At(int step, int layer, int sequence, int head) const;
  /// The same cell's unit ids, ascending: attended, and recalled before and after attention.
  std::span<const uint32_t> Selected(int step, int layer, int sequence, int head) const;
  std::span<const uint32_t> RecalledNow(int step, int layer, int sequence, int head) const;
  std::span<const uint32_t> RecalledAhead(int step, int layer, int sequence, int head) const;
  /// Index in the log's layers of what stands for a model layer.
  int LayerOf(int layer) const { return layer_of_[layer]; }
  /// Trace steps by which sequence i + 1 of the batch is ahead of sequence i.
  int32_t stagger() const { return log_ == nullptr ? 0 : log_->steps / batch_; }
  /// The step of the log that a sequence replays in `step`.
  int LogStep(int step, int sequence) const;
  /// How often `steps` steps of all sequences replay each step of the log.
  std::vector<int64_t> Uses(int steps) const;
  /// Selection heads of a model layer: 1, its KV heads or its query heads, as the method selects.
  int heads() const { return heads_; }
  /// What was projected, a line each; empty if the log fits the model as it is.
  std::vector<std::string> notes() const { return notes_; }

 private:
  int64_t CellOf(int step, int layer, int sequence, int head) const;

  const traces::AccessLog* log_;
  int heads_ = 0;
  int32_t batch_;
  std::vector<int> layer_of_;  // log layer index by model layer
  std::vector<std::string> notes_;
};

}  // namespace stallcast::methods
