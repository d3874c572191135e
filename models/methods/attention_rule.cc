#include "models/methods/attention_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stallcast::methods {

AttentionRule::AttentionRule(const traces::proto::Model& model,
                             const LayerTensors::Source& source) {
  const traces::TensorSpec& keys = source.keys->spec;
  if (keys.layer >= model.attention_size()) return;
  const traces::proto::Attention& attention = model.attention(keys.layer);
  window_ = std::max(attention.window(), 0);
  chunk_ = std::max(attention.chunk(), 0);
  soft_cap_ = static_cast<float>(attention.soft_cap());
  scale_ = static_cast<float>(attention.softmax_scale());
  const int group = attention.sinks_size() / keys.heads;
  const auto first = attention.sinks().begin() + int64_t{source.head} * group;
  sinks_.assign(first, first + group);
}

int64_t AttentionRule::FirstSeen(int64_t token) const {
  const int64_t of_window = window_ > 0 ? std::max<int64_t>(token + 1 - window_, 0) : 0;
  const int64_t of_chunk = chunk_ > 0 ? token / chunk_ * chunk_ : 0;
  return std::max(of_window, of_chunk);
}

float AttentionRule::Cap(float scale, int64_t count, float* dots) const {
  if (scale_ > 0) scale = scale_;
  if (!(soft_cap_ > 0)) return scale;
  for (int64_t i = 0; i < count; ++i) dots[i] = soft_cap_ * std::tanh(dots[i] * scale / soft_cap_);
  return 1;
}

double AttentionRule::Sink(int member) const {
  if (sinks_.empty()) return -std::numeric_limits<double>::infinity();
  return sinks_[static_cast<size_t>(member) % sinks_.size()];
}

}  // namespace stallcast::methods
