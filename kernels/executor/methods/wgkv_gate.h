// WG-KV's gates in a run: the MLP's kernel, with the trained weights or with random ones of their
// shape, and what it decides: the trained gate's scores, or a mask from the policy.
#pragma once

#include <vector>

#include "kernels/executor/cache_binder.h"
#include "kernels/methods/wgkv.h"
#include "models/methods/wgkv/gate.h"
#include "models/methods/wgkv/params.h"

namespace stallcast::kernels {

class WgKvGate {
 public:
  WgKvGate(const DecodeRun& run, const methods::WgKvParams& params);

  /// Score from which on a token is admitted.
  float threshold() const { return trained_ ? static_cast<float>(params_.threshold) : 0.5F; }
  /// Tokens that a row may admit beside those that the policy does: scores next to the threshold.
  int32_t slack() const { return trained_ ? 64 : 0; }
  /// What the policy admits of the first `tokens` tokens of a KV head, and how many they are.
  std::vector<uint32_t> Expected(int layer, int head, int64_t tokens) const;
  int32_t CountAdmitted(int layer, int head, int64_t tokens) const;

  /// Scores of a KV head's tokens, by token, on the device.
  const float* Scores(int layer, int head) const;
  /// Scores of the tokens that leave the windows in a step, [layer][sequence][KV head].
  const float* Leaving(int step) const { return leaving_.get() + int64_t{step} * all_; }
  /// The gate on a step's new tokens of a layer, whose keys are in `keys`: a row is a KV head, a
  /// token a sequence.
  OpWork Decode(const plan::Op& op, const TokenView& keys) const;

  /// The gate on the prompts of a layer, whose keys are in `keys`: a row is a KV head of a
  /// sequence.
  OpWork Prefill(const plan::Op& op, const TokenView& keys);
  /// Scores of a sequence's prompt once Prefill() is done, a row a KV head.
  const float* PromptScores(int layer, int sequence) const;
  int64_t prompt_stride() const { return trained_ ? run_.input.prompt_tokens : tokens_; }

 private:
  // Of a model layer; weights are read anew in each.
  struct Layer {
    Buffer<__nv_bfloat16> w1, b1, w2, b2, pre_norm, post_norm;
  };
  // Of a layer of the trace.
  struct Source {
    methods::Admission admitted;
    std::vector<std::vector<int32_t>> before;  // [head][token]: admitted before it
    Buffer<float> scores;                      // [KV head of the model][token]
    Buffer<__nv_bfloat16> before_rope;         // [KV head of the model][token][d]; trained gates
  };

  GateWeights Weights(int layer) const;
  Layer MakeLayer(int layer) const;
  Source MakeSource(int source) const;
  const Source& Of(int layer) const {
    return sources_[static_cast<size_t>(run_.source_of[static_cast<size_t>(layer)])];
  }
  int Traced(int head) const { return head % run_.trace->kv_heads(); }
  void FillLeaving();

  const DecodeRun& run_;
  methods::WgKvParams params_;
  bool trained_;
  int32_t all_;     // rows of all layers
  int64_t tokens_;  // of the trace
  std::vector<Layer> layers_;
  std::vector<Source> sources_;
  Buffer<float> leaving_;  // [step, and then as many as a window has][layer][sequence][KV head]
  Buffer<float> decided_, workspace_;
  Buffer<float> prompt_scores_;  // [sequence][KV head][token]
};

}  // namespace stallcast::kernels
