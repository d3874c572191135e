#include "models/methods/projected_log.h"

#include <fmt/core.h>

#include "models/methods/method.h"
#include "models/methods/projection.h"
#include "traces/common/error.h"

namespace stallcast::methods {
namespace {

// A file may leave any column out; plans and summaries need these.
void RequireCells(const traces::AccessLog& log, const traces::LayerAccess& layer) {
  const int64_t cells = int64_t{log.steps} * layer.heads;
  if (cells > 0 && std::ssize(layer.flags) == cells && layer.selected.size() == cells &&
      layer.recalled_now.size() == cells && layer.recalled_ahead.size() == cells &&
      std::ssize(layer.attended_tokens) == cells) {
    return;
  }
  throw Error(fmt::format("layer {} of the access log does not say what each step selects, recalls "
                          "and attends",
                          layer.layer),
              log.method, "replay the trace: delete the folder .stallcast beside it");
}

}  // namespace

ProjectedLog::ProjectedLog(const traces::AccessLog* log, const llm::Model& model, int32_t batch)
    : log_(log), batch_(batch) {
  if (!log) return;
  std::vector<int> selecting;  // indices of the log's layers that select
  for (size_t i = 0; i < log->layers.size(); ++i) {
    if (log->layers[i].dense) continue;
    RequireCells(*log, log->layers[i]);
    selecting.push_back(static_cast<int>(i));
  }
  if (selecting.empty()) {
    throw Error("every layer of the access log is dense", log->method,
                "use a trace with more layers or lower dense_layers");
  }
  heads_ = log->sets_of == traces::SetsOf::kLayer    ? 1
           : log->sets_of == traces::SetsOf::kKvHead ? model.kv_heads
                                                     : model.query_heads;

  std::vector<int> traced;
  for (const int i : selecting) traced.push_back(log->layers[static_cast<size_t>(i)].layer);
  for (const int i : LayersByDepth(model.layers, traced, log->model_layers)) {
    layer_of_.push_back(selecting[static_cast<size_t>(i)]);
  }
  if (log->params.contains(kKvHeadsParam)) {
    notes_.push_back(fmt::format("projected: {} layers mapped onto the trace's {} by depth",
                                 model.layers, selecting.size()));
  } else if (model.layers != static_cast<int>(log->layers.size()) ||
             model.kv_heads != log->kv_heads) {
    notes_.push_back(fmt::format(
        "projected: {} layers x {} KV heads mapped onto the trace's {} x {} by depth and index",
        model.layers, model.kv_heads, selecting.size(), log->kv_heads));
  }
  if (batch > 1) {
    notes_.push_back(fmt::format(
        "projected: the {} sequences of the batch are the trace's one, staggered by {} steps",
        batch, log->steps / batch));
  }
}

int ProjectedLog::LogStep(int step, int sequence) const {
  return (step + sequence * stagger()) % log_->steps;
}

std::vector<int64_t> ProjectedLog::Uses(int steps) const {
  std::vector<int64_t> uses(static_cast<size_t>(log_->steps));
  for (int sequence = 0; sequence < batch_; ++sequence) {
    for (int step = 0; step < steps; ++step) ++uses[static_cast<size_t>(LogStep(step, sequence))];
  }
  return uses;
}

int64_t ProjectedLog::CellOf(int step, int layer, int sequence, int head) const {
  const int heads = log_->layers[layer_of_[layer]].heads;
  return int64_t{LogStep(step, sequence)} * heads + head % heads;
}

AccessCell ProjectedLog::At(int step, int layer, int sequence, int head) const {
  const traces::LayerAccess& access = log_->layers[layer_of_[layer]];
  const int64_t cell = CellOf(step, layer, sequence, head);
  const auto count = [cell](const traces::IdLists& lists) {
    return static_cast<int32_t>(lists[cell].size());
  };
  return {access.flags[cell],
          count(access.selected),
          count(access.recalled_now),
          count(access.recalled_ahead),
          access.attended_tokens[cell],
          access.cached_tokens.empty() ? 0 : access.cached_tokens[cell],
          access.evicted.empty() ? 0 : access.evicted[cell],
          log_->prompt_tokens + cell / access.heads + 1};
}

std::span<const uint32_t> ProjectedLog::Selected(int step, int layer, int sequence,
                                                 int head) const {
  return log_->layers[layer_of_[layer]].selected[CellOf(step, layer, sequence, head)];
}

std::span<const uint32_t> ProjectedLog::RecalledNow(int step, int layer, int sequence,
                                                    int head) const {
  return log_->layers[layer_of_[layer]].recalled_now[CellOf(step, layer, sequence, head)];
}

std::span<const uint32_t> ProjectedLog::RecalledAhead(int step, int layer, int sequence,
                                                      int head) const {
  return log_->layers[layer_of_[layer]].recalled_ahead[CellOf(step, layer, sequence, head)];
}

}  // namespace stallcast::methods
