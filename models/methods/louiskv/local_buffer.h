// The newest tokens on the GPU, cut into segments (LouisKV 4.2).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "models/methods/louiskv/params.h"

namespace stallcast::methods {

/// How a prompt is divided: [0, sink) and the local buffer stay on the GPU, what lies between is
/// clustered and offloaded.
struct PromptParts {
  PromptParts(const LouisKvParams& params, int64_t prompt)
      : sink(std::min(params.sink, prompt)),
        local(params.prompt_window ? std::min(params.window, prompt - sink) : 0),
        clustered(prompt - sink - local),
        clusters((clustered + params.cluster - 1) / params.cluster) {}
  int64_t sink, local;
  int64_t clustered;  ///< tokens
  int64_t clusters;   ///< or pages
};

/// A queue of segments of at most `window` tokens. The prompt's last tokens, whose queries nobody
/// compared, are segments as long as a cluster.
class LocalBuffer {
 public:
  LocalBuffer(const LouisKvParams& params, int64_t prompt)
      : window_(params.window), longest_(params.longest_segment()) {
    int64_t left = PromptParts(params, prompt).local;
    for (int64_t part = left % params.cluster; left > 0; part = params.cluster) {
      if (part > 0) segments_.push_back(part);
      left -= part;
      tokens_ += part;
    }
    cut_ = true;
  }

  /// Adds a token, which begins a segment if `begins` or if the last one is as long as may be. If
  /// the buffer is full the oldest segment leaves first: its tokens, else 0.
  int64_t Append(bool begins) {
    int64_t left = 0;
    if (tokens_ == window_) {
      left = segments_.front();
      segments_.pop_front();
      tokens_ -= left;
    }
    if (begins || cut_ || segments_.empty() || segments_.back() >= longest_) segments_.push_back(0);
    cut_ = false;
    ++segments_.back();
    ++tokens_;
    return left;
  }
  int64_t tokens() const { return tokens_; }

 private:
  int64_t window_, longest_;
  std::deque<int64_t> segments_;  // lengths, oldest first
  int64_t tokens_ = 0;
  bool cut_ = false;
};

/// What a step's token does to the local buffer.
struct LocalStep {
  int64_t leaving = 0;  ///< tokens of the segment that leaves, else 0
  int64_t tokens = 0;   ///< in the buffer at the step's attention
};
/// Of the `steps` steps after a prompt; `boundary` says of a step whether its queries have drifted.
inline std::vector<LocalStep> LocalSteps(const LouisKvParams& params, int64_t prompt, int steps,
                                         const std::function<bool(int)>& boundary) {
  LocalBuffer buffer(params, prompt);
  std::vector<LocalStep> local;
  for (int step = 0; step < steps; ++step) {
    const bool begins =
        params.units == LouisKvParams::Units::kPages ? step % params.cluster == 0 : boundary(step);
    const bool sink = prompt + step < params.sink;
    const int64_t leaving = sink ? 0 : buffer.Append(begins);
    local.push_back({leaving, buffer.tokens()});
  }
  return local;
}

}  // namespace stallcast::methods
