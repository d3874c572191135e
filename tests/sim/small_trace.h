// A trace of a model so small that predicting it takes milliseconds.
#pragma once

#include <filesystem>

#include "sim/synth.h"
#include "traces/format/trace_file.h"

namespace stallcast::sim {

/// Writes a synthetic prompt of 2,048 tokens and 6 steps, 2 layers of 4 query and 2 KV heads.
inline void WriteSmallTrace(const std::filesystem::path& path) {
  SynthSpec spec;
  spec.model.name = "small";
  spec.model.layers = 2;
  spec.model.query_heads = 4;
  spec.model.kv_heads = 2;
  spec.model.head_dim = 64;
  spec.model.hidden = 256;
  spec.model.intermediate = 512;
  spec.model.vocabulary = 1000;
  spec.layers = 2;
  spec.prompt_tokens = 2048;
  spec.steps = 6;
  spec.spread = 4;
  traces::TraceWriter writer(path, SynthInfo(spec));
  Synthesize(spec, writer);
  writer.Finish();
}

}  // namespace stallcast::sim
