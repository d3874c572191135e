// Small traces for tests: every value is made by a rule, so that a reader's result can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "traces/format/trace_file.h"

namespace stallcast::traces {

inline TensorSpec SampleSpec(TensorKind kind, DType dtype, int layer, int64_t first_token,
                             int64_t tokens) {
  TensorSpec spec;
  spec.kind = kind;
  spec.dtype = dtype;
  spec.layer = layer;
  spec.heads = 2;
  spec.head_dim = 4;
  spec.first_token = first_token;
  spec.tokens = tokens;
  return spec;
}

/// A byte that depends on the element's place in the sequence and not on how it was cut into
/// chunks.
inline std::byte SampleByte(const TensorSpec& spec, int head, int64_t token, int64_t byte) {
  const uint64_t place =
      (((static_cast<uint64_t>(spec.kind) * 1000 + spec.layer) * 100 + head) * 1'000'000 + token) *
          4096 +
      byte;
  return static_cast<std::byte>((place * 0x9e3779b97f4a7c15u) >> 56);
}

inline Tensor SampleTensor(const TensorSpec& spec) {
  Tensor tensor{spec, {}};
  tensor.data.reserve(spec.bytes());
  for (int head = 0; head < spec.heads; ++head) {
    for (int64_t token = spec.first_token; token < spec.end_token(); ++token) {
      for (int64_t byte = 0; byte < spec.head_dim * ElementBytes(spec.dtype); ++byte) {
        tensor.data.push_back(SampleByte(spec, head, token, byte));
      }
    }
  }
  return tensor;
}

inline proto::TraceInfo SampleInfo() {
  proto::TraceInfo info;
  info.mutable_model()->set_name("tiny");
  info.mutable_model()->set_layers(2);
  (*info.mutable_software())["stallcast"] = "0.1";
  info.set_prompt_tokens(7);
  return info;
}

/// Two steps on a host and a stream, with a wait, a slice without an op, and extreme values.
inline Timeline SampleTimeline() {
  Timeline timeline;
  timeline.origin = Timeline::Origin::kPredicted;
  timeline.title = "freekv, tiny, 8K";
  timeline.notes = {"projected from tiny", "derived profile"};
  timeline.lanes = {{"host", LaneKind::kHost, false},
                    {"compute", LaneKind::kStream, true},
                    {"copy", LaneKind::kCopyEngine, false}};
  timeline.names = {"launch", "attention", "recall"};
  const auto add = [&](uint16_t lane, int64_t op, int32_t step, int16_t layer, Role role,
                       uint32_t name, int64_t start, int64_t duration, int64_t bytes) {
    timeline.lane.push_back(lane);
    timeline.op.push_back(op);
    timeline.step.push_back(step);
    timeline.layer.push_back(layer);
    timeline.role.push_back(role);
    timeline.name.push_back(name);
    timeline.start.emplace_back(start);
    timeline.duration.emplace_back(duration);
    timeline.bytes.push_back(bytes);
  };
  add(0, 1, 0, 0, Role::kHost, 0, 0, 4'000'500, 0);
  add(0, 2, 0, 0, Role::kHost, 0, 4'000'500, 3'999'500, 0);
  add(2, 2, 0, 0, Role::kRecall, 2, 9'000'000, 20'000'000, 1 << 20);
  add(1, 1, 0, 0, Role::kAttention, 1, 29'500'000, 10'000'499, 0);
  add(1, 3, 1, 1, Role::kAttention, 1, 40'000'000, 0, 0);
  add(0, -1, -1, -1, Role::kOther, 0, 50'000'000, 1, std::numeric_limits<int64_t>::max());
  timeline.flows = {{2, 1}, {1, 3}};
  return timeline;
}

inline AccessLog SampleLog() {
  AccessLog log;
  log.method = "quest";
  log.params = {{"budget", "64"}, {"page", "16"}};
  log.trace_hash = "00112233";
  log.unit = "page";
  log.unit_tokens = 16;
  log.sets_of = SetsOf::kQueryHead;
  log.prompt_tokens = 7;
  log.steps = 3;
  log.kv_heads = 2;
  log.query_heads = 4;
  log.model_layers = 2;
  LayerAccess dense;
  dense.layer = 0;
  dense.dense = true;
  dense.attention_mass = {1, 1, 1};
  LayerAccess sparse;
  sparse.layer = 1;
  sparse.heads = 2;
  for (uint32_t cell = 0; cell < 6; ++cell) {
    sparse.flags.push_back(static_cast<uint8_t>(cell));
    sparse.similarity.push_back(0.125f * static_cast<float>(cell));
    const uint32_t ids[] = {cell, cell + 5, 4'000'000'000u + cell};
    sparse.selected.Append(std::span(ids).first(cell % 4));
    sparse.recalled_now.Append({});
    sparse.recalled_ahead.Append(std::span(ids).first(1));
    sparse.attended_tokens.push_back(static_cast<int32_t>(100 + cell));
    sparse.evicted.push_back(static_cast<int32_t>(cell % 3));
    sparse.cached_tokens.push_back(static_cast<int32_t>(300 + cell));
  }
  sparse.attention_mass = {0.5f, 0.75f, 0.875f};
  sparse.output_error = {0.25f, 0.125f, 0};
  log.layers = {dense, sparse};
  return log;
}

/// Info, two layers of queries and keys in two pieces each, a timeline, a log, and an End chunk.
inline std::vector<std::byte> SampleFile() {
  std::vector<std::byte> file;
  TraceWriter writer(&file, SampleInfo());
  for (int layer = 0; layer < 2; ++layer) {
    for (const auto kind : {TensorKind::kQuery, TensorKind::kKey}) {
      for (const int64_t first : {0, 7}) {
        const TensorSpec spec = SampleSpec(kind, DType::kBf16, layer, first, first == 0 ? 7 : 3);
        writer.Write(spec, SampleTensor(spec).data);
      }
    }
  }
  writer.Write(SampleTimeline());
  writer.Write(SampleLog());
  writer.Finish(3, 2);
  return file;
}

}  // namespace stallcast::traces
