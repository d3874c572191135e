// Shapes of language models: what a decode step multiplies and how large its KV cache is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/plan/width.h"
#include "traces/common/units.h"
#include "traces/format/schema.pb.h"

namespace stallcast::llm {

/// Of activations, queries, indices and embeddings: bf16, whatever weights and KV are.
inline constexpr Bytes kActivationBytes = 2;

/// How one layer attends, and what its MLP is.
struct Layer {
  enum class Attention : uint8_t {
    kFull,    ///< every earlier token: the layers that KV-cache methods work on
    kWindow,  ///< the last `window` tokens, whose KV stays on the GPU
    kLinear,  ///< a state of fixed size, no KV
    kNone,    ///< does not attend
  };
  Attention attention = Attention::kFull;
  int64_t window = 0;    ///< of kWindow: tokens, the newest included
  bool experts = false;  ///< the MLP is a mixture of experts
  bool operator==(const Layer&) const = default;
};

/// A mixture of experts: `active` of `count` gated MLPs a token, and `shared` width for all.
struct Experts {
  int32_t count = 0, active = 0;
  int64_t intermediate = 0;         ///< of one expert
  int64_t shared_intermediate = 0;  ///< of the experts that every token takes, together; 0: none
  plan::Width width = {};
  /// Of each expert, the tokens that took it; empty: all are as likely.
  std::vector<double> taken;
};

/// Multi-head latent attention (DeepSeek-V2): one latent key and value a token for all heads.
struct Latent {
  int32_t query_rank = 0;  ///< 0: queries are not compressed
  int32_t rank = 0, rope = 0;
  int32_t nope = 0, value = 0;  ///< a head's key without RoPE, and its value
  /// DeepSeek sparse attention: an indexer scores every token and `top_k` are attended; 0: all are.
  int32_t top_k = 0;
  int32_t index_heads = 0, index_dim = 0;
  int32_t width() const { return rank + rope; }
};

/// Gated linear attention: a state of key_dim x value_dim a value head, in single precision.
struct LinearAttention {
  int32_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int32_t convolution = 0;  ///< tokens of the short convolution before it
};

struct Model {
  std::string name;   ///< "llama-3.1-8b"
  std::string title;  ///< "Llama-3.1-8B"
  int32_t layers = 0;
  int32_t query_heads = 0, kv_heads = 0, head_dim = 0;
  int64_t hidden = 0, intermediate = 0, vocabulary = 0;
  bool qkv_bias = false;
  bool tied_embeddings = false;
  bool output_gate = false;     ///< the attention's output is gated by a projection of its own
  int64_t max_context = 0;      ///< 0: unknown
  int32_t tensor_parallel = 1;  ///< this is one GPU's shard of so many
  plan::Width weights = {};     ///< of the layers' matrices but the experts'; embeddings are bf16
  plan::Width kv = {};          ///< of keys and values
  std::vector<Layer> kinds;     ///< a layer each; empty: all attend everything, none has experts
  std::optional<Experts> experts;
  std::optional<Latent> latent;
  std::optional<LinearAttention> linear;
  /// Tokens of a sequence that a step runs (speculation), and how many of them it keeps, the mean.
  int32_t queries = 1;
  double accepted = 1;
  int64_t prefill_chunk = 8192;    ///< tokens of all prompts that run together; 0: all
  std::vector<std::string> notes;  ///< what was assumed or ignored of its description, a line each
  std::string source;

  int32_t group() const { return query_heads / kv_heads; }
  Layer KindOf(int layer) const;
  /// Layers that attend every earlier token.
  int32_t FullLayers() const;
  /// One head's key, or value, of a token.
  Bytes KvRowBytes() const { return kv.Of(head_dim); }
  /// What one token adds to the cache of one layer that attends.
  Bytes KvBytesPerTokenLayer() const;
  /// What one token adds to all layers that attend everything.
  Bytes KvBytesPerToken() const { return KvBytesPerTokenLayer() * FullLayers(); }
  /// What the other layers keep on the GPU at this context: windows of KV, and linear states.
  Bytes OtherLayersBytes(int64_t context, int32_t batch) const;
  /// Expected number of a layer's experts that `tokens` tokens take, each independently.
  double DistinctExperts(int64_t tokens) const;
  /// What one pass over so many tokens keeps of them at a time, and the logits of `sequences`.
  Bytes ActivationBytes(int64_t tokens, int64_t sequences) const;
  /// Weights on this GPU, embeddings included.
  Bytes WeightBytes() const;
};

/// C[m,n] = A[m,k] B[k,n]: `count` such matrices B.
struct Matrix {
  int64_t n = 0, k = 0;
  plan::Width width = {};
  int64_t count = 1;
  bool operator==(const Matrix&) const = default;
  Bytes bytes() const { return count * width.Of(n * k); }
};

/// A layer's weights on one GPU. What a layer does not have has n = 0.
struct LayerWeights {
  Matrix input;             ///< of attention: q, k, v side by side; of latents, what is hidden wide
  Matrix query_up;          ///< latent: compressed queries to heads
  Matrix key_up, value_up;  ///< latent: a matrix a head, absorbed into queries and outputs
  Matrix index_query, index_key;  ///< DSA
  Matrix output;
  Matrix router, expert_gate_up, expert_down;
  Matrix gate_up, down;  ///< dense MLP, or the shared experts
  int64_t vectors = 0;   ///< elements of norms, biases and convolutions
  Bytes bytes() const;
};
LayerWeights WeightsOf(const Model& model, const Layer& layer);

/// The model as a KV-cache method sees it: the layers that attend everything.
Model FullAttentionOnly(const Model& model);
/// Layers whose window holds `longest` tokens attend everything; what was changed is noted.
Model AtContext(Model model, int64_t longest);
/// All of a shape as one line: two models are alike if theirs are.
std::string Describe(const Model& model);
/// Why the executor cannot run its decode steps on a GPU; empty: it can.
std::string WhyNotExecutable(const Model& model);
/// Why the executor cannot run its prefill, where it can run its steps; empty: it can.
std::string WhyNoPrefill(const Model& model);

std::vector<std::string> ModelNames();
/// A known model by name, or the one of a config.json. Unknown: usage Error listing all.
Model FindModel(std::string_view name);
/// The model that a trace was captured from. Missing or senseless fields: Error.
Model FromTrace(const traces::proto::Model& model);
/// What a file says of the model: its shape, without RoPE and softmax scale.
traces::proto::Model ToTrace(const Model& model);
/// One GPU's shard: heads, intermediate and vocabulary divided by `ways`; norms, routers, latents
/// and what an indexer needs are whole. Not divisible: usage Error.
Model Shard(const Model& model, int32_t ways);

}  // namespace stallcast::llm
