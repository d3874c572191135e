// ShadowKV's selection: chunks by the largest softmax weight that a query of the group gives their
// mean key.
#pragma once

#include "models/methods/method.h"
#include "models/methods/shadowkv/params.h"

namespace stallcast::methods {

/// As the public code: of the chunks before the local ones, those whose keys are least like their
/// mean are outliers, which are attended always, as the local chunks and everything since are. Of
/// the others a KV head attends `budget` tokens: softmax over them for each query head, the maximum
/// over its group. The GPU holds what the step before chose, and nothing after a factorization.
/// Attention is over true keys: what their rank costs is not in mass and error.
class ShadowKvPolicy final : public Policy {
 public:
  explicit ShadowKvPolicy(const ShadowKvParams& params) : params_(params) {}
  Unit unit() const override { return {"chunk", static_cast<int32_t>(params_.chunk)}; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  ShadowKvParams params_;
};

/// The mean of `tokens` keys at `keys`, [token][dim], as the GPU keeps it (bf16), and the least
/// cosine of one of them with that mean, unrounded; 0 where either is zero.
float SummarizeChunk(const float* keys, int64_t tokens, int64_t dim, float* mean);

}  // namespace stallcast::methods
