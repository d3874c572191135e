// Shapes of language models: what a decode step multiplies and how large its KV cache is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "traces/common/units.h"
#include "traces/format/schema.pb.h"

namespace stallcast::llm {

struct Model {
  std::string name;   ///< "llama-3.1-8b"
  std::string title;  ///< "Llama-3.1-8B"
  int32_t layers = 0;
  int32_t query_heads = 0, kv_heads = 0, head_dim = 0;
  int64_t hidden = 0, intermediate = 0, vocabulary = 0;
  bool qkv_bias = false;
  bool tied_embeddings = false;
  int64_t max_context = 0;      ///< 0: unknown
  int32_t tensor_parallel = 1;  ///< this is one GPU's shard of so many
  int32_t element_bytes = 2;
  std::string source;

  int32_t group() const { return query_heads / kv_heads; }
  /// Keys and values of one token in one layer.
  Bytes KvBytesPerTokenLayer() const { return int64_t{2} * kv_heads * head_dim * element_bytes; }
  Bytes KvBytesPerToken() const { return KvBytesPerTokenLayer() * layers; }
  /// Weights on this GPU, embeddings included.
  Bytes WeightBytes() const;
};

std::vector<std::string> ModelNames();
/// A known model by name, or the one of a config.json. Unknown: usage Error listing all.
Model FindModel(std::string_view name);
/// The model that a trace was captured from. Missing or senseless fields: Error.
Model FromTrace(const traces::proto::Model& model);
/// What a file says of the model: its shape, without RoPE and softmax scale.
traces::proto::Model ToTrace(const Model& model);
/// One GPU's shard: heads, intermediate and vocabulary divided by `ways`; norms are whole. Not
/// divisible: usage Error.
Model Shard(const Model& model, int32_t ways);

}  // namespace stallcast::llm
