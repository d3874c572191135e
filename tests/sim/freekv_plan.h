// The plan that the benchmarks run: FreeKV, Llama-3.1-8B, 8K context, the method's defaults.
#pragma once

#include <vector>

#include "models/llm/model.h"
#include "models/methods/decoder_plan.h"

namespace stallcast::sim {

/// A log as replays give: a third of the layers corrected in a step, two or three misses a head.
inline traces::AccessLog FreeKvLog(int steps) {
  traces::AccessLog log;
  log.method = "freekv";
  log.unit = "page";
  log.unit_tokens = 32;
  log.prompt_tokens = 8192;
  log.steps = steps;
  log.kv_heads = 8;
  log.query_heads = 32;
  log.model_layers = 32;
  for (int l = 0; l < 32; ++l) {
    traces::LayerAccess layer;
    layer.layer = l;
    layer.heads = 8;
    for (int cell = 0; cell < steps * layer.heads; ++cell) {
      const bool now = (cell / layer.heads + l) % 3 == 0;
      const std::vector<uint32_t> missed(static_cast<size_t>(2 + cell % 2), 7);
      layer.flags.push_back(now ? traces::kSelectedNow : traces::kSelectedAhead);
      layer.selected.Append(std::vector<uint32_t>(32, 1));
      layer.recalled_now.Append(now ? missed : std::vector<uint32_t>());
      layer.recalled_ahead.Append(now ? std::vector<uint32_t>() : missed);
      layer.attended_tokens.push_back(2048);
    }
    log.layers.push_back(std::move(layer));
  }
  return log;
}

inline plan::Plan FreeKvPlan(int steps) {
  const traces::AccessLog log = FreeKvLog(steps);
  return methods::WriteDecode(*methods::MakeMethod("freekv", {}).method,
                              {llm::FindModel("llama-3.1-8b"), 1, 8192, steps, {}, &log});
}

}  // namespace stallcast::sim
