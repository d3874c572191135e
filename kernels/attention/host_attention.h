// Decode attention by host threads, over keys and values in the host's memory.
#pragma once

#include <cstdint>
#include <span>

namespace stallcast::kernels {

/// A token's query, keys, values and output are bf16, given by their bits.
struct HostAttentionArgs {
  const uint16_t* query = nullptr;  ///< [sequences][kv_heads][group][head_dim]
  /// By row (sequence * kv_heads + KV head), each [tokens[row]][head_dim].
  std::span<const uint16_t*const> keys, values;
  std::span<const int64_t> tokens;  ///< by row, one at least
  int32_t group = 1;                ///< query heads that share a KV head
  int32_t head_dim = 0;
  float scale = 1;             ///< of logits
  uint16_t* output = nullptr;  ///< like query
  /// [sequences][kv_heads][group]: the logarithm of each softmax's sum, by which states of several
  /// parts are merged. May be null.
  float* log_sums = nullptr;
};

/// Attends with at most `threads` host threads, and no more than the machine has. Products are of
/// single precision.
void HostAttention(const HostAttentionArgs& args, int threads);

}  // namespace stallcast::kernels
