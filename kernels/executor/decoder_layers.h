// The decoder's own ops on new tokens of each sequence: norms, projections, MLP and sampling, with
// weights of the true shapes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/decoder/decoder.h"
#include "kernels/decoder/experts.h"
#include "kernels/executor/executor.h"
#include "kernels/executor/expert_choices.h"
#include "kernels/runtime/buffer.h"
#include "models/llm/model.h"

namespace stallcast::kernels {

/// Random weights of a model, on the device; good for any number of runs, one at a time, which all
/// have the same kernels for their GEMMs.
class DecoderWeights {
 public:
  explicit DecoderWeights(const llm::Model& model);

  struct Layer {
    Buffer<__nv_bfloat16> qkv, out;       ///< [n][k]
    Buffer<__nv_bfloat16> gate_up, down;  ///< [n][k], of what all rows take; empty: nothing
    Buffer<__nv_bfloat16> router, expert_gate_up, expert_down;  ///< [n][k], [expert][n][k]
  };
  const llm::Model& model() const { return model_; }
  const Layer& layer(int i) const { return layers_[static_cast<size_t>(i)]; }
  const Buffer<__nv_bfloat16>& head() const { return head_; }
  const Buffer<__nv_bfloat16>& norm() const { return norm_; }
  Gemm& gemms() const { return *gemms_; }

 private:
  llm::Model model_;
  std::vector<Layer> layers_;
  Buffer<__nv_bfloat16> head_, norm_;
  std::unique_ptr<Gemm> gemms_ = std::make_unique<Gemm>();
};

/// Activations of `sequences` * `tokens` rows, sequence after sequence, and what the ops of a plan
/// do to them. Projections of queries, keys and values are computed, but not used: the binder gives
/// the trace's to RopeAppend(). Routers rank the experts, but rows take those of ExpertChoices.
class DecoderLayers {
 public:
  /// `weights` must outlive it.
  DecoderLayers(const DecoderWeights& weights, int32_t sequences, int64_t tokens);

  /// The work of an op that is the decoder's own, or that has none to do beyond its waits; plan
  /// order. Nothing: the op is the binder's.
  std::optional<OpWork> Bind(const plan::Op& op);

  /// Attention output, read by the output projection: [row][query_heads][head_dim].
  __nv_bfloat16* attention() const { return attention_.get(); }
  /// [row][hidden]
  const Buffer<__nv_bfloat16>& residual() const { return residual_; }

 private:
  /// Of c = a b^T.
  struct Operands {
    const __nv_bfloat16 *a = nullptr, *b = nullptr;
    __nv_bfloat16* c = nullptr;
  };
  /// Of a layer's GEMMs, in the order of the plan; layer -1: of the logits.
  std::vector<Operands> GemmsOf(int layer) const;
  OpWork BindNorm(const plan::Op& op, const plan::Norm& norm);
  OpWork BindGemm(const plan::Op& op, const plan::Gemm& gemm);
  OpWork BindExperts(const plan::Op& op, const plan::GroupedGemm& gemm);
  OpWork BindSwiGlu(const plan::Op& op, const plan::SwiGlu& swiglu);
  bool HasExperts(int layer) const { return layer >= 0 && weights_.layer(layer).router.size() > 0; }

  const DecoderWeights& weights_;
  const int32_t sequences_;
  const int64_t tokens_;
  Buffer<__nv_bfloat16> residual_, normed_, qkv_, attention_, projected_, gate_up_, activated_,
      last_normed_, logits_;
  // Of a mixture: by row, and by place (Routing).
  Buffer<__nv_bfloat16> router_logits_, expert_gate_up_, expert_activated_;
  RoutingMemory routing_;
  ExpertChoices choices_;
  Buffer<int32_t> token_, host_token_;
  std::set<std::tuple<int64_t, int64_t, int64_t>> seen_;  // m, n, k of GEMMs already run
  /// How many ops of a kind the layer has had.
  struct InLayer {
    int layer = -1, norms = 0, gemms = 0, expert_gemms = 0, swiglus = 0;
  };
  InLayer in_layer_;
};

}  // namespace stallcast::kernels
