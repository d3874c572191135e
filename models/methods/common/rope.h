// Rotary positions (rotate-half) as a trace says that its keys have them.
#pragma once

#include <cstdint>
#include <vector>

#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

struct Rope {
  /// A trace that does not say how it encoded positions: Error.
  explicit Rope(const LayerTensors& tensors);

  std::vector<double> frequencies;  ///< [head_dim / 2], radians a token; empty: keys are not turned
  double scaling = 1;               ///< that turned keys are longer by

  /// Undoes it on one key of head_dim channels.
  void Undo(int64_t position, const float* key, float* out) const;

 private:
  int64_t half_;
};

/// Keys of `count` tokens from `token` on as they were before RoPE, rounded to bf16 as a projection
/// gives them: `out` is [token][dim]. A trace that does not say how it encoded positions: Error.
void ReadKeysBeforeRope(const LayerTensors& tensors, int head, int64_t token, int64_t count,
                        float* out);

}  // namespace stallcast::methods
