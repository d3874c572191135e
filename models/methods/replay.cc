#include <tbb/parallel_for.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "models/methods/attention_rule.h"
#include "models/methods/method.h"

namespace stallcast::methods {

using traces::AccessLog;
using traces::LayerAccess;
using traces::TensorKind;
using traces::Trace;

AccessLog Replay(const Trace& trace, const std::string& trace_hash, const std::string& method_name,
                 const Method& method, const ReplayOptions& options) {
  const std::unique_ptr<Policy> policy = method.NewPolicy();
  const int steps = DecodeSteps(trace);
  AccessLog log;
  log.method = method_name;
  log.params = method.Params(/*only_selection=*/true);
  log.trace_hash = trace_hash;
  log.prompt_tokens = trace.info.prompt_tokens();
  log.steps = steps;
  if (policy != nullptr) {
    Policy::Unit unit = policy->unit();
    log.unit = std::move(unit.name);
    log.unit_tokens = unit.tokens;
    log.sets_of = policy->sets_of();
  }
  for (int layer : trace.Layers()) {
    if (!options.layers.empty() && std::ranges::find(options.layers, layer) == options.layers.end())
      continue;
    LayerAccess access;
    access.layer = layer;
    access.dense = policy == nullptr || layer < method.DenseLayers();
    if (access.dense) {
      access.attention_mass.assign(static_cast<size_t>(steps), 1.0f);
      if (HasValues(trace, layer)) access.output_error.assign(static_cast<size_t>(steps), 0.0f);
    }
    log.layers.push_back(std::move(access));
  }
  if (log.layers.empty()) {
    throw Error("no layer has both queries and keys", "trace",
                "capture both for at least one layer");
  }
  log.kv_heads = trace.Find(TensorKind::kKey, log.layers.front().layer)->spec.heads;
  log.model_layers = std::max(trace.info.model().layers(), log.layers.back().layer + 1);
  log.query_heads = trace.Find(TensorKind::kQuery, log.layers.front().layer)->spec.heads;
  const int traced_group = log.query_heads / std::max(log.kv_heads, 1);
  if (options.kv_heads > log.kv_heads) {
    log.kv_heads = options.kv_heads;
    log.query_heads = log.kv_heads * traced_group;
    log.params[kKvHeadsParam] = std::to_string(log.kv_heads);
  }
  if (options.group > 0 && log.kv_heads > 0 && log.query_heads != log.kv_heads * options.group) {
    log.query_heads = log.kv_heads * options.group;
    log.params[kGroupParam] = std::to_string(options.group);
  }

  std::atomic<size_t> done = 0;
  tbb::parallel_for(size_t{0}, log.layers.size(), [&](size_t i) {
    LayerAccess& access = log.layers[i];
    if (!access.dense) {
      const LayerTensors tensors(trace, access.layer, policy->prompt_queries(), options.group,
                                 options.kv_heads);
      AttendedRanges attended;
      policy->Replay(tensors, access, attended);
      AttentionFidelity fidelity = MeasureAttention(tensors, trace.info.model(), attended);
      access.attention_mass = std::move(fidelity.mass);
      access.output_error = std::move(fidelity.output_error);
    }
    const size_t finished = ++done;
    if (options.progress) {
      options.progress(static_cast<double>(finished) / static_cast<double>(log.layers.size()));
    }
  });
  return log;
}

}  // namespace stallcast::methods
