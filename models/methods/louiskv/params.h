// LouisKV with every piece switchable. What the paper leaves open is said where it is decided.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stallcast::methods {

struct LouisKvParams {
  /// When a layer retrieves: where its queries drift (paper), in every step, or every `stride`
  /// steps. In all three the first step does.
  enum class Trigger : uint8_t { kBoundary, kEveryToken, kStride };
  /// What is retrieved: k-means clusters of the prompt and temporal segments of the output (paper),
  /// or runs of `cluster` tokens in both.
  enum class Units : uint8_t { kClusters, kPages };
  /// Who chooses: a KV head for its group, or each query head for itself.
  enum class Group : uint8_t { kConsistent, kQueryHead };
  /// How units are chosen under the budget: one kernel, or a framework's passes over the scores.
  enum class Kernel : uint8_t { kFused, kPasses };
  /// How rows cross the link: read by a kernel (paper: DGL), or gathered by the host into a pinned
  /// buffer and copied at once.
  enum class Recall : uint8_t { kRows, kStaged };
  /// Host layout: keys and values in tensors of their own, or a token's key beside its value.
  enum class Pool : uint8_t { kSplit, kPaired };

  int64_t budget = 2048;     ///< tokens on the GPU, sink and local buffer included
  int64_t sink = 64;         ///< first tokens, kept
  int64_t window = 256;      ///< tokens that the local buffer holds at most
  int64_t dense_layers = 2;  ///< first layers that attend everything
  double tau = 0.7;          ///< a mean cosine below begins a segment
  Trigger trigger = Trigger::kBoundary;
  int64_t stride = 16;  ///< steps
  Units units = Units::kClusters;
  int64_t cluster = 16;       ///< tokens of a cluster, on average; of a page
  int64_t iterations = 5;     ///< assignments of k-means
  bool prompt_window = true;  ///< the local buffer starts with the prompt's last tokens
  Group group = Group::kConsistent;
  Kernel kernel = Kernel::kFused;
  Recall recall = Recall::kRows;
  Pool pool = Pool::kSplit;
  int64_t zero_copy_blocks = 32;
  int64_t workers = 4;  ///< host threads that gather for Recall::kStaged

  /// Tokens that a retrieval brings.
  int64_t capacity() const { return budget - sink - window; }
  /// Whether queries of adjacent steps are compared.
  bool compares() const {
    return trigger == Trigger::kBoundary ||
           (trigger == Trigger::kEveryToken && units == Units::kClusters);
  }
  /// A segment is closed at this length, so that the local buffer is never one segment.
  int64_t longest_segment() const { return std::max<int64_t>(1, window / 2); }
};

}  // namespace stallcast::methods
