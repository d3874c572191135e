// The decoder of Hugging Face's transformers as its code is written: LlamaForCausalLM of 5.17 in
// eager PyTorch 2.11. Operators and their order are those of its source and of recordings by
// PyTorch's profiler.
#pragma once

#include <cstdint>

#include "models/llm/model.h"
#include "models/methods/decoder_plan.h"
#include "models/plan/work.h"

namespace stallcast::methods {

/// Writes what stands around a layer's attention. Each norm, RoPE, residual and activation is some
/// kernels that read and write device memory; q, k, v, gate and up are a GEMM each.
class TransformersDecoder {
 public:
  /// Usage Error for a model that this decoder does not have: other layers than attention over all
  /// tokens or a window with a dense MLP, several GPUs.
  TransformersDecoder(DecoderPlan& plan, PlanWriter::Decoder kernels);

  /// Embedding, and cosines and sines of `rows` positions.
  void BeginPass(int64_t rows);
  /// Norm, projections and RoPE.
  void BeforeAttention(int layer, const llm::LayerWeights& weights, int64_t rows);
  /// Output projection and residual.
  void AfterAttention(int layer, const llm::LayerWeights& weights, int64_t rows);
  void Mlp(int layer, const llm::LayerWeights& weights, int64_t rows);
  /// Logits of `rows` tokens, the next token, and its way to the host.
  void NextToken(int64_t rows);

 private:
  struct Calls {
    int16_t views = 0, slices = 0, modules = 0;
  };
  void Run(plan::Operator op, Bytes read, Bytes written, Calls calls);
  void Run(plan::Operator op, Bytes read, Bytes written) { Run(op, read, written, {}); }
  void Norm(int64_t rows, int16_t modules);
  void Linear(int64_t rows, int64_t n, int64_t k, plan::Width width);
  void Residual(int64_t rows);

  DecoderPlan& plan_;
  const llm::Model& model_;
  bool fused_, streams_;
};

/// What ArkVale's and FreeKV's engines do before a step: lengths and positions are made on the GPU,
/// and two plans of FlashInfer's attention read theirs back.
void PrepareEngineStep(DecoderPlan& plan);

/// What a DynamicCache does with a layer's new keys and values: it concatenates both with all
/// `tokens` before them, all rows together, once `fetched` is done.
void ConcatenateCache(DecoderPlan& plan, int64_t tokens, plan::OpId fetched = plan::OpId::kNone);

/// scaled_dot_product_attention of a step without a mask. Over a number of keys that no layer
/// before had, cuDNN compiles a plan for it first, which takes the host long; PyTorch chooses
/// cuDNN's attention on Hopper and later.
plan::OpId AttendBySdpa(DecoderPlan& plan, int step, int layer);
/// The same as repeat_kv() and a mask make it over a StaticCache of `tokens` tokens: keys and
/// values are written out for each query head; a block a (sequence, head) reads them.
plan::OpId AttendExpanded(DecoderPlan& plan, int layer, int64_t tokens);

}  // namespace stallcast::methods
