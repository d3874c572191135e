#include "models/methods/common/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/methods/common/bf16.h"
#include "traces/common/error.h"

namespace stallcast::methods {

Rope::Rope(const LayerTensors& tensors) : half_(tensors.head_dim() / 2) {
  const traces::proto::Rope& rope = tensors.rope();
  if (rope.type() == "none") return;
  if (rope.inverse_frequencies_size() == half_) {
    frequencies.assign(rope.inverse_frequencies().begin(), rope.inverse_frequencies().end());
  } else if (rope.theta() > 0 && rope.inverse_frequencies_size() == 0) {
    for (int64_t i = 0; i < half_; ++i) {
      frequencies.push_back(
          std::pow(rope.theta(), -static_cast<double>(i) / static_cast<double>(half_)));
    }
  } else {
    throw Error("the trace does not say how positions were encoded",
                fmt::format("layer {}", tensors.layer()), "capture it with its RoPE parameters");
  }
  if (rope.attention_scaling() > 0) scaling = rope.attention_scaling();
}

void Rope::Undo(int64_t position, const float* key, float* out) const {
  if (frequencies.empty()) {
    std::copy(key, key + 2 * half_, out);
    return;
  }
  for (int64_t i = 0; i < half_; ++i) {
    const double angle = static_cast<double>(position) * frequencies[static_cast<size_t>(i)];
    const double c = std::cos(angle) / scaling, s = std::sin(angle) / scaling;
    out[i] = static_cast<float>(key[i] * c + key[i + half_] * s);
    out[i + half_] = static_cast<float>(key[i + half_] * c - key[i] * s);
  }
}

void ReadKeysBeforeRope(const LayerTensors& tensors, int head, int64_t token, int64_t count,
                        float* out) {
  const Rope rope(tensors);
  const int64_t dim = tensors.head_dim();
  std::vector<float> keys(static_cast<size_t>(count * dim));
  tensors.ReadKeys(head, token, count, keys.data());
  for (int64_t i = 0; i < count; ++i) rope.Undo(token + i, keys.data() + i * dim, out + i * dim);
  for (int64_t i = 0; i < count * dim; ++i) out[i] = RoundToBf16(out[i]);
}

}  // namespace stallcast::methods
