// The decoder's own ops: projections, norms, MLP and sampling, with weights of the true shapes.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/decoder.h"
#include "kernels/executor/cache_binder.h"
#include "kernels/executor/executor.h"
#include "models/llm/model.h"

namespace stallcast::kernels {

/// Random weights of a model, on the device; good for any number of runs.
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

 private:
  llm::Model model_;
  std::vector<Layer> layers_;
  Buffer<__nv_bfloat16> head_, norm_;
};

/// Binds the ops of a decode plan. Queries, keys and values of each step are the trace's: RoPE and
/// append read them in place of the projection's output, turned by an angle of zero, as they have
/// been turned already.
class DecoderBinder : public Binder {
 public:
  /// All arguments must outlive the binder.
  DecoderBinder(const DecodeRun& run, const DecoderWeights& weights, CacheBinder& cache);

  OpWork Bind(const plan::Op& op) override;
  /// Brings everything to where prefill leaves it: before each run of the plan.
  void Reset();

 private:
  OpWork BindGemm(const plan::Op& op, const plan::Gemm& gemm);
  OpWork BindNorm(const plan::Op& op, const plan::Norm& norm);
  OpWork BindRopeAppend(const plan::Op& op);
  LayerIo Io(const plan::Op& op) const;
  /// Injected [sequence][query heads, keys, values][head_dim] of a step, -1 being the last prompt
  /// token's.
  __nv_bfloat16* Injected(int step, int layer) const;
  __nv_bfloat16* Queries(int step, int layer) const;
  void LoadInjected();

  const DecodeRun& run_;
  const DecoderWeights& weights_;
  CacheBinder& cache_;
  Gemm gemm_;
  Buffer<__nv_bfloat16> residual_, normed_, qkv_, attention_, projected_, gate_up_, activated_,
      logits_, injected_, queries_;
  Buffer<int32_t> position_, token_, host_token_;
  Buffer<float> frequencies_;
  std::set<std::pair<int64_t, int64_t>> seen_;  // n, k of products already run
  int gemms_in_layer_ = 0, norms_in_layer_ = 0, layer_ = -1;
};

}  // namespace stallcast::kernels
