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
#include "kernels/executor/executor.h"
#include "kernels/runtime/buffer.h"
#include "models/llm/model.h"

namespace stallcast::kernels {

/// Random weights of a model, on the device; good for any number of runs, one at a time, which all
/// have the same kernels for their GEMMs.
class DecoderWeights {
 public:
  explicit DecoderWeights(const llm::Model& model);

  struct Layer {
    Buffer<__nv_bfloat16> qkv, out, gate_up, down;  ///< [n][k]
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
/// the trace's to RopeAppend().
class DecoderLayers {
 public:
  /// `weights` must outlive it.
  DecoderLayers(const DecoderWeights& weights, int32_t sequences, int64_t tokens);

  /// The work of an op that is the decoder's own, or that has none to do beyond its waits; plan
  /// order. Nothing: the op is the binder's.
  std::optional<OpWork> Bind(const plan::Op& op);

  /// Attention output, read by the output projection: [row][query_heads][head_dim].
  __nv_bfloat16* attention() const { return attention_.get(); }

 private:
  OpWork BindNorm(const plan::Op& op, const plan::Norm& norm);
  OpWork BindGemm(const plan::Op& op, const plan::Gemm& gemm);

  const DecoderWeights& weights_;
  const int32_t sequences_;
  const int64_t tokens_;
  Buffer<__nv_bfloat16> residual_, normed_, qkv_, attention_, projected_, gate_up_, activated_,
      last_normed_, logits_;
  Buffer<int32_t> token_, host_token_;
  std::set<std::tuple<int64_t, int64_t, int64_t>> seen_;  // m, n, k of GEMMs already run
  int gemms_in_layer_ = 0, norms_in_layer_ = 0, layer_ = -1;
};

}  // namespace stallcast::kernels
