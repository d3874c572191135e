// Attention outputs of many rows, with the softmax over the attended tokens and over all.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "models/methods/layer_tensors.h"
#include "models/methods/vector_kernels.h"

namespace stallcast::methods {

/// What `rows` attention rows of a KV head sum up from the values, panel by panel: weight times
/// value over the attended tokens, and over the rest. The weights are those of an OnlineSoftmax a
/// row. The layer must have values.
class OutputSums {
 public:
  OutputSums(const LayerTensors& tensors, int64_t rows);

  /// Goes on to the panel of `count` tokens from `begin` on.
  void LoadPanel(int kv_head, int64_t begin, int64_t count);
  /// Row `r` of the block of kRowBlock that Add() takes next: the weights of the panel's first
  /// `count` tokens, and the factor that a new largest logit shrinks all weights before by.
  void SetRow(int64_t r, const float* weights, int64_t count, float shrink,
              std::span<const AttendedRanges::Range> attended);
  /// Adds a block of `count` rows, the first of which is `row`.
  void Add(int64_t row, int64_t count);

  /// ||sparse - full|| / ||full||; NaN where the full output is zero. `sink` is the weight without
  /// a value that both softmaxes have beside their tokens.
  double RelativeError(int64_t row, const OnlineSoftmax& softmax, double sink) const;

 private:
  struct Part {
    std::vector<float> weights;  // [row of the block][kPanel]
    std::vector<float> sums;     // [row][dim]
    bool empty = true;           // no weight in the block
  };
  // Values of the dimensions from `first` on, [token][kPanel].
  float* Panel(int64_t first) { return panels_.data() + first * kPanel; }

  const LayerTensors& tensors_;
  int64_t dim_, begin_ = 0;
  std::vector<float> values_, panels_, products_;
  std::array<float, kRowBlock> shrink_{};
  std::array<Part, 2> parts_;  // attended, rest
};

}  // namespace stallcast::methods
