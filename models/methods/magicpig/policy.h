// MagicPIG's policy: a query attends the tokens whose hashes meet its own.
#pragma once

#include "models/methods/magicpig/params.h"
#include "models/methods/method.h"

namespace stallcast::methods {

/// As the public code: signs of products with random vectors, of keys less their mean; each query
/// head attends the hashed tokens that meet it in `collisions` tables at least, and what the GPU
/// holds. Tokens count with their own weight, while MagicPIG weighs them by how likely they were to
/// be sampled: mass is the share that it has seen, its estimate is of all.
///
/// No selected units are logged: what is sampled lies on the host, and none of it comes to the GPU.
class MagicPigPolicy final : public Policy {
 public:
  explicit MagicPigPolicy(const MagicPigParams& params) : params_(params) {}
  Unit unit() const override { return {"token", 1}; }
  traces::SetsOf sets_of() const override { return traces::SetsOf::kQueryHead; }
  void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
              AttendedRanges& attended) const override;

 private:
  MagicPigParams params_;
};

/// The `hash`-th random vector's `i`-th element, of `dim`.
float HashDirection(int64_t hash, int64_t i, int64_t dim);

}  // namespace stallcast::methods
