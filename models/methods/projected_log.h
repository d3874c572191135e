// An access log read as if the model at hand had made it.
#pragma once

#include <cstdint>
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
  int64_t context = 0;        ///< of the trace at that step, the step's own token included
};

/// Maps a model's (step, layer, sequence, head) to a cell of the log: layers by relative depth
/// among the layers that are not dense in the log, heads by index, and the sequences of a batch as
/// copies of the trace's one sequence, staggered evenly over its steps.
class ProjectedLog {
 public:
  /// `log` may be null: then only notes() may be called.
  ProjectedLog(const traces::AccessLog* log, const llm::Model& model, int32_t batch);

  AccessCell At(int step, int layer, int sequence, int head) const;
  /// Selection heads of a model layer: 1, its KV heads or its query heads, as the method selects.
  int heads() const { return heads_; }
  /// What was projected, a line each; empty if the log fits the model as it is.
  std::vector<std::string> notes() const { return notes_; }

 private:
  const traces::AccessLog* log_;
  int heads_ = 0;
  int32_t batch_;
  std::vector<int> layer_of_;  // log layer index by model layer
  std::vector<std::string> notes_;
};

}  // namespace stallcast::methods
