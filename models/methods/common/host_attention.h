// Attention of a part of the tokens by host threads: the same in every method that has it.
#pragma once

#include <cstdint>
#include <functional>

#include "models/methods/decoder_plan.h"

namespace stallcast::methods {

struct HostPart {
  int64_t kv_tokens = 0;  ///< summed over sequences and the heads that choose
  int32_t group = 1;      ///< query heads that attend each of them
  int32_t threads = 1;
  bool sends_new_token = false;  ///< whether its keys and values follow the queries to the host
  bool merged = true;            ///< with what the GPU attends, so that softmax sums come back too
  /// Host work between the queries' arrival and the attention (a search); may be empty.
  std::function<void()> search = {};
};

/// Copies the step's queries to the host, lets `meanwhile` issue what the GPU does at the same
/// time, waits for the queries, attends, and copies outputs back. Returns
/// that copy, which is on the compute stream.
plan::OpId AttendOnHost(DecoderPlan& plan, int layer, const HostPart& part,
                        const std::function<void()>& meanwhile);

/// Merges what came from the host with what the GPU attended, on the compute stream.
plan::OpId MergeWithHost(DecoderPlan& plan, int layer);

}  // namespace stallcast::methods
